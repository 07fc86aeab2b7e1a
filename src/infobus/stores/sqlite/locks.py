"""One owner at a time: a lock on a file, which the system releases when its holder dies.

The file itself stays. If it were removed, two processes could hold a lock on two files of one name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from weakref import WeakSet

from infobus.errors import StoreError
from infobus.stores.private import private_opener


class FileLock:
    """A lock that is held by at most one `FileLock` among all processes of this host."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, patience_s: float = 0.0) -> bool:
        """Return whether the lock is held now.

        `patience_s` outlasts a process that only inspects, which holds the lock for a moment.

        Raises:
            StoreError: The file cannot be created or opened.
        """
        assert self._descriptor is None, f"{self.path} is held already"
        try:
            descriptor = private_opener(os.fspath(self.path), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            advice = "; raise its limit (ulimit -n)" if error.errno == errno.EMFILE else ""
            raise StoreError(
                f"cannot open the lock {self.path}: {error.strerror}{advice}", path=str(self.path)
            ) from error
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    os.close(descriptor)
                    return False
                time.sleep(0.01)
            else:
                break
        self._descriptor = descriptor
        _held.add(self)
        return True

    def is_intact(self) -> bool:
        """Return whether the lock is held, and its file is still the one with that name."""
        return self._descriptor is not None and identity(self.path) == _which(
            os.fstat(self._descriptor)
        )

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            _held.discard(self)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def identity(path: Path) -> tuple[int, int] | None:
    """Return which file has that name; None if there is none."""
    try:
        return _which(path.stat())
    except FileNotFoundError:
        return None


def _which(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


_held: WeakSet[FileLock] = WeakSet()


def _let_go_in_child() -> None:
    # A fork shares the lock: a child that outlives its parent would hold it for ever.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
