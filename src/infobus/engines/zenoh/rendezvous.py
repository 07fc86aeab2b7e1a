"""A folder with one file per live node, by which nodes of one user on one host find each other.

A file is named after its node's session and holds the node's endpoint. The node holds a lock on it,
and the system drops the lock when the process ends, however it ends. So a file that can be locked
belongs to a dead node, and is removed. The folder only makes meeting quick and certain; nodes that
cannot use it (another user, a read-only disk) are found by port and multicast.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GATE = "gate"


class Rendezvous:
    """The folder of one bus, as seen by one node. Nothing in here raises `OSError`."""

    def __init__(self, bus: str) -> None:
        self._folder = _folder(bus)
        self._file: int | None = None
        self._path: Path | None = None

    @contextmanager
    def gate(self, patience_s: float) -> Iterator[None]:
        """Let the nodes of this bus open one after the other.

        So each node sees all earlier ones ready, and none half open. A node that stays in the gate
        for longer than `patience_s` (a frozen process) is bypassed.
        """
        gate: int | None = None
        try:
            gate = self._open(_GATE)
            deadline_s = time.monotonic() + patience_s
            while not _lock(gate) and time.monotonic() < deadline_s:
                time.sleep(0.002)
        except OSError:
            pass
        try:
            yield
        finally:
            if gate is not None:
                os.close(gate)

    def neighbours(self) -> dict[str, str]:
        """Return the session id and endpoint of every other live node; forget the dead."""
        found: dict[str, str] = {}
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return found
        for name in names:
            if name != _GATE and (self._path is None or name != self._path.name):
                endpoint = self._endpoint_of(name)
                if endpoint:
                    found[name] = endpoint
        return found

    def enter(self, zid: str, endpoint: str) -> None:
        """Show this node to nodes that open after it."""
        try:
            self._file = self._open(zid)
            self._path = self._folder / zid
            _lock(self._file)
            os.write(self._file, endpoint.encode())
        except OSError:
            self.leave()

    def leave(self) -> None:
        """Remove this node's file. Idempotent."""
        if self._path is not None:
            _remove(self._path)
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: close the parent's file without removing it."""
        if self._file is not None:
            os.close(self._file)
        self._file = self._path = None

    def _open(self, name: str) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # In a shared temporary folder a stranger may have created it first.
        if self._folder.parent.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder.parent} belongs to another user")
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def _endpoint_of(self, name: str) -> str | None:
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if _lock(file):
                _remove(path)
                return None
            return os.read(file, 4096).decode("utf-8", "replace")
        finally:
            os.close(file)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _folder(bus: str) -> Path:
    uid = os.getuid()
    runtime = Path(f"/run/user/{uid}")
    parent = runtime if os.access(runtime, os.W_OK) else Path(tempfile.gettempdir())
    try:
        # Containers may share a folder but not a loopback interface.
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    name = hashlib.sha256(f"{network} {bus}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return parent / f"infobus-{uid}" / name
