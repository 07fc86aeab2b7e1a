"""The newsroom's pipeline: a program that runs what its TOML file describes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Thread

from infobus import BusError
from infobus.demo.programs import lifeline
from infobus.pipeline.runner.plan import load_plan
from infobus.pipeline.runner.runner import Pipeline


def main() -> None:
    """Run the pipeline until it is asked to stop; it dies with the demo at once."""
    over = lifeline()
    os.environ["INFOBUS_BUS"] = sys.argv[1]
    plan = Path(sys.argv[3])
    os.chdir(plan.parent)
    os.environ["INFOBUS_HOME"] = str(plan.parent / "newsroom.state" / "home")

    def end_with_the_demo() -> None:
        over.wait()
        os._exit(1)  # Spark and the journal end with this process, which loses nothing

    Thread(target=end_with_the_demo, daemon=True).start()
    try:
        is_well = Pipeline(load_plan(plan)).run()
    except BusError as error:  # no Java, for example
        sys.exit(f"infobus: {error}")
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
