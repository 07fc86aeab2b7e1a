"""The newsroom: from feeds over bus, journal and Spark into a repository, and back to the bus.

    meridian, harbor    two feeds                              -> news.>
    newsroom.pipeline   journal and Spark: objects into tables, keywords back onto the bus
    monitor             shows everything while it happens

At the end, it queries the repository for all stories, whatever their types, and shows the traffic.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from infobus import type_of
from infobus.adapters.stories import Story
from infobus.demo.floor.floor import Floor, RunningProgram, tell_of
from infobus.pipeline.runner.progress import STATUS, Status, read_status
from infobus.pipeline.runner.runner import request_stop
from infobus.repository import Repository

SECONDS = 60.0
"""How long it is open by default; longer if Spark takes longer to start."""
PATIENCE_S = 300.0
"""For Spark to start or to stop on a busy machine."""
SHOWN_COUNT = 10
WIRE = "wire"
PLAN, STATE = "newsroom.toml", "newsroom.state"
MADE_HERE = (PLAN, STATE, "news.db", "news.db-wal", "news.db-shm", "journal", "traffic")

Condition = Callable[[Status], bool]


class Newsroom:
    """One run of the newsroom, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / STATE
        _make_room(folder)

    def run(self, seconds: float, wire: Sequence[Path]) -> RunningProgram | None:
        """Run all programs; returns the one that ended too early, if any did."""
        begun_s = time.monotonic()
        with Floor() as floor:
            floor.start("news monitor", "floor.monitor", str(self.state))
            floor.start("pipeline", "newsroom.pipeline", str(self.folder / PLAN))
            ended = self._wait(floor, lambda status: status.phase != "opening journals")
            if ended is None:  # The journal is open now, so it misses nothing.
                if wire:
                    floor.start(WIRE, "newsroom.wire", *map(str, wire))
                else:
                    floor.start("Meridian Wire adapter", "floor.meridian")
                    floor.start("Harbor News adapter", "floor.harbor")
                ended = self._wait(floor, _has_begun)
            if ended is None:
                left_s = seconds - (time.monotonic() - begun_s)
                ended = floor.watch(None if wire else max(0.0, left_s))
            if ended is not None and not _is_fine(ended):
                return ended
            request_stop(self.state)
            return floor.wait_for("pipeline", PATIENCE_S)

    def _wait(self, floor: Floor, is_so: Condition) -> RunningProgram | None:
        """Wait until the pipeline's status fits; returns a program that ended before."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            status = read_status(self.state)
            if status is not None and status.phase != "starting" and is_so(status):
                return None
            ended = floor.watch(0)
            if ended is not None and not (ended.name == WIRE and _is_fine(ended)):
                return ended
            time.sleep(0.1)
        return None


def _has_begun(status: Status) -> bool:
    return all(job.batches or job.state == "waiting" for job in status.jobs) and (
        status.phase == "live"
    )


def _is_fine(ended: RunningProgram) -> bool:
    """A wire may end once it has sent everything, and the monitor when somebody quits it."""
    return ended.name in (WIRE, "news monitor") and ended.process.returncode == 0


def _make_room(folder: Path) -> None:
    """Remove the files of an earlier newsroom, and write the plan."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MADE_HERE:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    plan = (files("infobus.demo") / "data" / PLAN).read_text("utf-8")
    (folder / PLAN).write_text(plan, "utf-8")


def run(seconds: float | None, folder: Path, wire: Sequence[Path]) -> int:
    """Run the newsroom and show its results; returns the exit code."""
    newsroom = Newsroom(folder.absolute())
    try:
        ended = newsroom.run(SECONDS if seconds is None else seconds, wire)
    except KeyboardInterrupt:
        print("The newsroom is closed before its time; all of its programs have ended.")
        return 0
    if ended is not None:
        return tell_of(ended, "so the newsroom is closed")
    _show(newsroom, folder)
    return 0


def _show(newsroom: Newsroom, folder: Path) -> None:
    """Show the stories in the repository, and the traffic report."""
    console = Console(highlight=False)
    console.rule("The newsroom is closed. All stories in the repository, whatever their types:")
    with Repository(f"sqlite:///{folder}/news.db") as repository:
        console.print(_stories(repository))
    console.print(f"infobus query Story --db sqlite:///{folder}/news.db", style="bold")
    console.rule("What was on the bus:")
    report = folder / "traffic" / "report.md"
    text = report.read_text("utf-8").partition("## Subjects")[0]
    console.print(Markdown("\n".join(line for line in text.splitlines() if line[:2] != "![")))
    for what, path in {
        "Report": report,
        "Plot": folder / "traffic" / "traffic.png",
        "Pipeline": folder / PLAN,
        "Status": newsroom.state / STATUS,
    }.items():
        console.print(f"{what}: {path}", soft_wrap=True)


def _stories(repository: Repository) -> Table:
    """The newest stories and their properties: a query over the supertype of all of them."""
    found = repository.query(type_of(Story).name, order="-_time")
    counts = Counter(type_of(story).name for story in found)
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    caption = f"{len(found):,} stories: {told}"
    table = Table(box=box.SIMPLE, pad_edge=False, expand=True, caption=caption)
    table.add_column("type", style="magenta", no_wrap=True)
    for title, ratio, style in (("headline", 2, ""), ("keywords", 1, "yellow")):
        table.add_column(title, ratio=ratio, style=style, no_wrap=True, overflow="ellipsis")
    # Stories with keywords first: the last ones of a short run may have none yet.
    found.sort(key=lambda story: not found.properties_of(story))
    for story in found[:SHOWN_COUNT]:
        properties = found.properties_of(story)
        words = properties["keywords"].value if "keywords" in properties else []
        table.add_row(type_of(story).name, Text(story.headline), ", ".join(words))
    return table
