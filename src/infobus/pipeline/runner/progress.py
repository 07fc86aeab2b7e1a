"""The status of a pipeline: how it is written to a file, read, and drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from rich import box
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from infobus.stores.sqlite.locks import FileLock

STATUS = "status.json"
STOP = "stop"
"""A file in the state folder that asks the pipeline to end."""
LOCK = ".lock"

State = Literal["waiting", "running", "done", "stopped", "failed"]
_BAR_WIDTH = 14
_STYLES: dict[str, str] = {"running": "green", "failed": "bold red", "done": "cyan"}


class JobProgress(Struct, kw_only=True):
    """The progress of one use of a job."""

    name: str
    state: State = "waiting"
    batches: int = 0
    events: int = 0
    """What it has read since the pipeline began."""
    events_per_s: float = 0.0
    """In the last batch that had any."""
    batch_s: float = 0.0
    """How long that batch took."""
    offset: int = 0
    """Everything before it has been read, now or by an earlier run."""
    end: int = 0
    """The offset that the next event in the journal will get."""
    behind_s: float = 0.0
    """How old the oldest event is that was not read yet, at most."""
    restarts: int = 0
    problem: str = ""


class Status(Struct, kw_only=True):
    """The status of a pipeline; times are seconds since 1970."""

    name: str
    master: str
    pid: int
    began_at: float
    at: float
    phase: str
    jobs: list[JobProgress]


def write_status(folder: Path, status: Status) -> None:
    """Replace the status file, as a whole."""
    path = folder / f"{STATUS}.new"
    path.write_bytes(msgspec.json.encode(status))
    os.replace(path, folder / STATUS)


def read_status(folder: Path) -> Status | None:
    """Return the last status; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((folder / STATUS).read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError):
        return None


def is_running(folder: Path) -> bool:
    """Return whether a process runs the pipeline now."""
    if not folder.is_dir():
        return False
    with FileLock(folder / LOCK) as lock:
        return not lock.acquire()


def draw(status: Status) -> Group:
    """Draw the status for people: a line for each job, with a bar for its place in the journal."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("job", "state"):
        table.add_column(title, no_wrap=True)
    table.add_column("read", width=_BAR_WIDTH)
    for title in ("behind", "events", "events/s", "batch s"):
        table.add_column(title, justify="right", no_wrap=True)
    for job in status.jobs:
        table.add_row(
            Text(job.name),
            Text(job.state, _STYLES.get(job.state, "dim")),
            ProgressBar(
                total=max(job.end, 1), completed=min(job.offset, job.end), width=_BAR_WIDTH
            ),
            _behind(job),
            f"{job.events:,}",
            f"{job.events_per_s:,.0f}",
            f"{job.batch_s:.1f}",
        )
    took_s = status.at - status.began_at
    lines = [Text(f"{status.name} on {status.master}, {took_s:.0f} s: {status.phase}", "bold")]
    problems = [Text(f"{job.name}: {job.problem}", "red") for job in status.jobs if job.problem]
    return Group(*lines, table, *problems)


def _behind(job: JobProgress) -> str:
    events = max(job.end - job.offset, 0)
    return f"{events:,} ({job.behind_s:.0f} s)" if events and job.behind_s else f"{events:,}"


def summary(status: Status) -> str:
    """Return the status in one line.

    >>> job = JobProgress(name="keywords", state="running", events=41, offset=41, end=43)
    >>> summary(Status(name="n", master="m", pid=1, began_at=0, at=0, phase="live", jobs=[job]))
    'live; keywords: 41 events, 2 behind'
    >>> job.state, job.problem = "failed", "StoreFull: no room"
    >>> summary(Status(name="n", master="m", pid=1, began_at=0, at=0, phase="live", jobs=[job]))
    'live; keywords: failed (StoreFull: no room)'
    """
    parts = [status.phase]
    for job in status.jobs:
        if job.state == "waiting":
            continue
        is_failed = job.state == "failed"
        how_far = f"{job.events:,} events, {job.end - job.offset:,} behind"
        why = f" ({job.problem})" if job.problem else ""
        parts.append(f"{job.name}: {'failed' if is_failed else how_far}{why}")
    return "; ".join(parts)
