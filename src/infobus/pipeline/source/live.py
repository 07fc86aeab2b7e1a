"""Finds or starts the journal process behind a live query.

A Spark worker is a fork, and a bus must not be used across forks. So a process of its own, `infobus
journal`, listens to the bus. It ends when the query that started it ends: its standard input is a
pipe that this process holds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from infobus.errors import StoreError, UsageError
from infobus.pipeline.recorder import PATTERNS
from infobus.pipeline.source.options import SourceOptions, arguments
from infobus.stores.journal.manifest import NAME
from infobus.stores.private import make_private_folder, private_opener
from infobus.stores.sqlite.locks import FileLock
from infobus.subjects import covers

_PATIENCE_S = 60.0

_started: dict[Path, subprocess.Popen[bytes]] = {}


def is_written(folder: Path) -> bool:
    """Return whether some process writes to the journal in `folder` now."""
    if not folder.is_dir():
        return False
    with FileLock(folder / ".lock") as lock:
        return not lock.acquire()


def ensure(options: SourceOptions) -> None:
    """Return when a process writes the events of the subject into the journal.

    Raises:
        UsageError: A process writes there, but not these subjects.
        StoreError: It could not be started.
    """
    folder = options.journal
    mine = _started.get(folder)
    if mine is not None and mine.poll() is None:
        return
    subject = options.subject or ">"
    if is_written(folder):
        _check(folder, subject)
        return
    make_private_folder(folder)
    (folder / PATTERNS).unlink(missing_ok=True)
    with open(folder / "journal.log", "ab", opener=private_opener) as log:
        command = [sys.executable, "-m", "infobus.cli", "journal", "record", subject]
        command += ["--to", str(folder), "--until-eof", *map(str, arguments(options))]
        for name, amount in (("--keep-days", options.keep_days), ("--keep-mb", options.keep_mb)):
            command += [] if amount is None else [name, str(amount)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    _started[folder] = process
    deadline_s = time.monotonic() + _PATIENCE_S
    while not ((folder / NAME).exists() and (folder / PATTERNS).exists()):
        if process.poll() is not None:
            if is_written(folder):  # another process was quicker
                _check(folder, subject)
                return
            raise StoreError(
                f"the journal process for {subject!r} ended at once; see {folder / 'journal.log'}",
                path=str(folder),
            )
        if time.monotonic() > deadline_s:
            raise StoreError(
                f"the journal process for {subject!r} is not ready after {_PATIENCE_S:.0f} s; "
                f"see {folder / 'journal.log'}",
                path=str(folder),
            )
        time.sleep(0.05)


def release(options: SourceOptions) -> None:
    """Let the process that was started here end, after it has written its events."""
    process = _started.pop(options.journal, None)
    if process is not None and process.stdin is not None:
        process.stdin.close()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()


def _check(folder: Path, subject: str) -> None:
    try:
        patterns = (folder / PATTERNS).read_text("utf-8").splitlines()
    except OSError:
        return  # it has just begun, or it belongs to another program
    if not any(covers(pattern, subject) for pattern in patterns):
        raise UsageError(
            f"the process that writes to the journal in {folder} listens to "
            f"{', '.join(patterns)}, which does not cover {subject}: name another folder by the "
            "option journal"
        )
