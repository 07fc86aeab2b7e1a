"""The Reuters newswire as a feed of the newsroom: publish its files once, then end."""

from __future__ import annotations

import sys
from pathlib import Path

from infobus.adapters.reuters import read_files
from infobus.adapters.stories import Bulletin
from infobus.demo.programs import on_the_floor

PAUSE_S = 0.005


def main() -> None:
    """Publish the stories of the files named on the command line."""
    with on_the_floor() as (bus, over):
        for found in read_files([Path(name) for name in sys.argv[3:]]):
            if isinstance(found, Bulletin):
                bus.publish(*found)
            if over.wait(PAUSE_S):
                return


if __name__ == "__main__":
    main()
