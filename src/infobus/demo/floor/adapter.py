"""What an adapter does: read a vendor's lines, publish stories, and remember recent ones."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from itertools import count

from infobus import id_of
from infobus.adapters.stories import Bulletin, Skipped
from infobus.demo.floor.feeds import Format, read_feed
from infobus.demo.programs import on_the_floor

RECENT_COUNT_MAX = 40
PAUSE_S = 1.6  # between two stories, on average


def run(format: Format) -> None:
    """Publish the vendor's sample stories, with pauses, again and again until the demo ends.

    New subscribers get the recent ones as initial state.
    """
    recent: deque[Bulletin] = deque(maxlen=RECENT_COUNT_MAX)
    pauses = random.Random(format.name)
    with on_the_floor() as (bus, over):
        # A story gets its id when it is published; until then it is not yet news.
        bus.initial_state("news.>", lambda: [b for b in recent.copy() if id_of(b.story)])
        for bulletin in _received(format):
            recent.append(bulletin)
            bus.publish(*bulletin)
            if over.wait(pauses.uniform(0.2, 2) * PAUSE_S / 1.1):
                return


def _received(format: Format) -> Iterator[Bulletin]:
    skipped_count = 0
    for _ in count():
        for found in read_feed(sample_lines(format), format, datetime.now(UTC).date()):
            if isinstance(found, Bulletin):
                yield found
            else:
                skipped_count += 1
                _tell(format, found, skipped_count)


def sample_lines(format: Format) -> list[str]:
    """The sample data in that vendor's format."""
    return (files("infobus.demo") / "data" / format.file).read_text("utf-8").splitlines()


def _tell(format: Format, skipped: Skipped, count: int) -> None:
    what = f"{format.name}: skipped the record at line {skipped.line}: {skipped.why}"
    print(f"{what} ({count} so far)", file=sys.stderr, flush=True)
