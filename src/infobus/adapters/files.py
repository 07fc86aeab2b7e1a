"""The file monitor: publish changes to the files that somebody subscribed to.

You cannot watch every file there is, and you need not: quench says which files are wanted. The
monitor watches nothing until somebody subscribes. A subscription to one file makes it watch that
one file, and it stops when the subscriber leaves.

A report of the operating system is only a hint where to look. The monitor compares what is on
disk with what was there before, and publishes the difference. So it misses nothing when the
watched paths change, and reports nothing twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from watchfiles import Change
from watchfiles._rust_notify import RustNotify  # documented for callers that need more control

from infobus import Bus, BusClosed, DataObject, DeliveryError, UsageError
from infobus.adapters.file_targets import (
    OPERATORS,
    Signature,
    Targets,
    look,
    signature_of,
    targets,
)

log = logging.getLogger("infobus")

SUBJECT = "files.changed"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

GATHER_MS = 200  # at most; ends after one step in which nothing happened
STEP_MS = 20
LOOK_AGAIN_S = 5.0
"""How often to check that a watched path still leads to the same file."""


class FileChanged(DataObject, name="files.FileChanged"):
    """A file was created, modified or deleted."""

    path: str
    directory: str
    filename: str
    change: str
    """`created`, `modified` or `deleted`."""
    size: int | None = None
    """In bytes; None if the file is gone."""
    mtime: datetime | None = None
    """When it was modified; None if the file is gone."""


class FileMonitor:
    """Publishes a `FileChanged` when a wanted file below `directory` changes.

    It works in its own threads until you close it; use it as a context manager. It watches a file
    from shortly after the subscription reaches this node, and does not report earlier changes.
    Paths are absolute. It does not follow symbolic links below `directory`.

    Args:
        bus: Where to publish, and whose subscriptions count.
        directory: Nothing outside this directory is ever watched.
        subject: The subject to publish under.
        on_watching: Called with the watched paths whenever they change.
        look_again_s: How often to check that a watched path still leads to the same file.

    Raises:
        UsageError: There is no such directory.
    """

    def __init__(
        self,
        bus: Bus,
        directory: str | Path,
        *,
        subject: str = SUBJECT,
        on_watching: Callable[[frozenset[str]], object] | None = None,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self._look_again_s = look_again_s
        self.directory = os.path.abspath(directory)
        if not os.path.isdir(self.directory):
            raise UsageError(f"there is no directory {self.directory!r}")
        self.subject = subject
        self._bus = bus
        self._on_watching = on_watching
        self._watching: frozenset[str] = frozenset()
        self._wanted = Targets()
        self._seen: dict[str, Signature] = {}
        self._seen_for = Targets()  # the targets for which `_seen` was looked up
        self._is_stale = threading.Event()  # other files are wanted, or it is closed
        self._is_closed = False
        self._quench = bus.quench(subject)
        self._threads = [
            threading.Thread(target=run, name=f"infobus files {run.__name__}", daemon=True)
            for run in (self._follow, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def watching(self) -> frozenset[str]:
        """The files and directories that are watched now.

        A directory is watched if all its files are wanted, or one that does not exist yet.
        """
        return self._watching

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._is_closed = True
        self._quench.close()
        self._is_stale.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> FileMonitor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _follow(self) -> None:
        """Learn which files are wanted, until the bus is closed."""
        with contextlib.suppress(BusClosed):
            self._ask()
            for _ in self._quench.changes():
                self._ask()
        self._is_closed = True
        self._is_stale.set()

    def _ask(self) -> None:
        asked = self._quench.values("directory", "filename", "path", operators=OPERATORS)
        self._wanted = targets(asked, self.directory)
        self._is_stale.set()

    def _watch(self) -> None:
        while True:
            self._is_stale.clear()
            if self._is_closed:  # checked after clearing, so that no call to stop is lost
                break
            wanted = self._wanted
            planned = look(wanted, self.directory).watched
            try:
                watcher = _watcher(planned)
            except FileNotFoundError:  # gone since we looked
                continue
            with watcher or contextlib.nullcontext():
                # The watcher reports whatever happens after this look.
                view = look(wanted, self.directory)
                self._compare(wanted, view.files)
                self._say(planned if watcher else frozenset())
                if watcher and view.watched == planned:
                    self._take_hints(watcher, planned)
                elif not watcher:
                    # If nothing can be watched, look from time to time.
                    self._is_stale.wait(None if wanted == Targets() else self._look_again_s)
        self._say(frozenset())

    def _take_hints(self, watcher: RustNotify, watched: frozenset[str]) -> None:
        """Look where the watcher says, until different paths must be watched."""
        pause_s = self._look_again_s
        inodes, look_again_s = _inodes(watched), time.monotonic() + pause_s
        while not self._is_stale.is_set():
            hints = watcher.watch(GATHER_MS, STEP_MS, int(1000 * pause_s), self._is_stale)
            if not isinstance(hints, str):
                for path in sorted({path for _, path in hints}):
                    if self._seen_for.have(path):
                        self._tell(path, signature_of(path, self.directory))
                if any(self._is_upheaval(change, path, watched) for change, path in hints):
                    return
            # A renamed parent takes the watched path with it, and the watcher does not say so.
            if time.monotonic() >= look_again_s:
                if _inodes(watched) != inodes:
                    return
                look_again_s = time.monotonic() + pause_s

    def _is_upheaval(self, change: int, path: str, watched: frozenset[str]) -> bool:
        """Whether different paths may have to be watched after this."""
        if change == Change.deleted:
            return path in watched
        return change == Change.added and (path in self._seen_for.files or os.path.isdir(path))

    def _compare(self, wanted: Targets, files: dict[str, Signature]) -> None:
        """Publish what has changed since the last look, for files wanted both then and now."""
        before, self._seen_for = self._seen_for, wanted
        for path in sorted(self._seen.keys() | files.keys()):
            now = files.get(path)
            if now != self._seen.get(path) and before.have(path) and wanted.have(path):
                self._tell(path, now)
        self._seen = files

    def _tell(self, path: str, now: Signature | None) -> None:
        before = self._seen.pop(path, None)
        if now is not None:
            self._seen[path] = now
        if now == before:
            return
        change = "deleted" if now is None else "created" if before is None else "modified"
        try:
            self._bus.publish(self.subject, _changed(path, change, now))
        except BusClosed:
            self._is_closed = True
        except DeliveryError as error:
            log.warning("%s of %s was not told: %s", change, path, error)

    def _say(self, watching: frozenset[str]) -> None:
        if watching != self._watching:
            self._watching = watching
            if self._on_watching is not None:
                self._on_watching(watching)


def _watcher(paths: frozenset[str]) -> RustNotify | None:
    """A watcher for the paths; None if there are no paths, or too many."""
    if not paths:
        return None
    try:
        return RustNotify(sorted(paths), False, False, 0, False, True)
    except FileNotFoundError:
        raise
    except OSError as error:
        log.warning("%d paths cannot be watched: %s", len(paths), error)
        return None


def _inodes(paths: Iterable[str]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for path in paths:
        try:
            found[path] = os.lstat(path).st_ino
        except OSError:
            found[path] = None
    return found


def _changed(path: str, change: str, now: Signature | None) -> FileChanged:
    directory, filename = os.path.split(path)
    size = mtime = None
    if now is not None:
        modified_ns, size, _ = now
        with contextlib.suppress(OverflowError):  # file systems hold later times than Python can
            mtime = _EPOCH + timedelta(microseconds=modified_ns // 1000)
    return FileChanged(
        path=path, directory=directory, filename=filename, change=change, size=size, mtime=mtime
    )
