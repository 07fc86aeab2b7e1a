"""A private folder with one file per live node, by which nodes of one user on one host meet.

A file is named after its node's session and tells where the node listens. The node holds a lock on
it, and the system drops the lock when the process ends, however it ends. So a file that can be
locked belongs to a dead node, and is removed, with its socket.

The daemon of the host has a file of the same kind, named `daemon`; see `DaemonFile`.

The sockets are in the same folder. Only its owner may enter it, which keeps the other users of the
host out: the bus itself asks nobody who they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER_VARIABLE = "INFOBUS_SOCKETS"
"""The environment variable that names another folder in which to meet."""

_GATE = "gate"
_DAEMON = "daemon"
CLAIM_S = 1.0  # outlasts those who only look whether the file is locked
_ENDING = b"ending"  # in the place of what a daemon shows of itself
_SOCKET, _SOCKET_LOCK = ".s", ".s.lock"  # the second is Zenoh's
_PATH_BYTES_MAX = 100  # of a socket: 108 on Linux, 104 elsewhere, with a zero at the end


class Neighbour(Struct, frozen=True):
    """Another node of this user on this host."""

    endpoint: str
    pid: int = 0
    listen: tuple[str, ...] = ()
    """The endpoints that it was told to listen at."""


class ShownDaemon(Struct, frozen=True, kw_only=True):
    """The daemon of this host and bus, as it shows itself to programs of its user."""

    node: str
    pid: int
    bus: str
    version: str
    """Of infobus."""
    wire: tuple[int, int]
    since: float
    """Wall clock of its start."""
    attach: tuple[str, ...]
    """The endpoints at which programs of this host reach it, the best first."""
    endpoints: tuple[str, ...] = ()
    """Those at which it listens for other hosts."""
    is_program: bool = False
    """Whether it is the process's only task, so that ending the daemon may end the process."""


class Rendezvous:
    """The folder of one bus, as seen by one node. Only `prepare` and `enter` raise."""

    def __init__(self, bus: str) -> None:
        self._bus = bus
        self._folder = _folder(bus)
        self._file: int | None = None
        self._zid = ""
        self._told = b""

    def prepare(self) -> None:
        """Make the folder, or make sure that it is private.

        Raises:
            OSError: It cannot be made, it is somebody else's, or its path is too long for a socket.
        """
        for folder in (self._folder.parent, self._folder):
            _make_private(folder)
        path = os.fsencode(self.socket("0" * 32))
        if len(path) > _PATH_BYTES_MAX:
            raise OSError(f"{self._folder} is too long for sockets: set {FOLDER_VARIABLE}")

    def socket(self, zid: str) -> Path:
        """The socket at which the node with this session is reached."""
        return self._folder / f"{zid[:12]}{_SOCKET}"

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
            while not (is_alone := _lock(gate)) and time.monotonic() < deadline_s:
                time.sleep(0.002)
            if is_alone:
                self._remove_dead_sockets()
        except OSError:
            pass
        try:
            yield
        finally:
            if gate is not None:
                os.close(gate)

    def neighbours(self) -> dict[str, Neighbour]:
        """Return every other live node by the id of its session; forget the dead."""
        found: dict[str, Neighbour] = {}
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return found
        for name in names:
            if name not in (_GATE, _DAEMON, self._zid) and "." not in name:
                neighbour = self._neighbour(name)
                if neighbour is not None:
                    found[name] = neighbour
        return found

    def enter(self, zid: str, endpoint: str, listen: tuple[str, ...] = (), node: str = "") -> None:
        """Show this node to nodes that open after it.

        Raises:
            OSError: The folder cannot be used.
        """
        self._told = msgspec.json.encode(Neighbour(endpoint, os.getpid(), listen))
        self._zid = zid
        self._write()
        with suppress(FileNotFoundError):  # a node that listens elsewhere has none
            self.socket(zid).chmod(0o600)

    def stay(self) -> None:
        """Show this node again, should its file be gone: systems clear old temporary files."""
        file = self._file
        if file is None:
            return
        with suppress(OSError):  # nothing can be written: who is linked stays linked
            os.utime(file)
            if not (self._folder / self._zid).exists():
                self._write()
                os.close(file)

    def leave(self) -> None:
        """Remove this node's file and socket. Idempotent."""
        if self._zid:
            self._remove(self._zid)
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: close the parent's file without removing it."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._zid = None, ""

    def _write(self) -> None:
        self._file = self._open(self._zid)
        _lock(self._file)
        os.write(self._file, self._told)

    def _open(self, name: str) -> int:
        self.prepare()
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def _neighbour(self, zid: str) -> Neighbour | None:
        try:
            file = os.open(self._folder / zid, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            if _lock(file):
                self._remove(zid)
                return None
            return msgspec.json.decode(os.read(file, 65536), type=Neighbour)
        except (OSError, msgspec.DecodeError):  # it has not written yet
            return None
        finally:
            os.close(file)

    def _remove(self, zid: str) -> None:
        socket = self.socket(zid)
        for path in (self._folder / zid, socket, socket.with_suffix(_SOCKET_LOCK)):
            with suppress(OSError):
                path.unlink()

    def _remove_dead_sockets(self) -> None:
        """Remove sockets whose nodes died before they entered. Only for who is alone in the gate:
        between making its lock and taking it, a socket would look dead.
        """
        for held in self._folder.glob(f"*{_SOCKET_LOCK}"):
            with suppress(OSError):
                file = os.open(held, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    if _lock(file):
                        held.with_suffix("").unlink(missing_ok=True)
                        held.unlink()
                finally:
                    os.close(file)


class DaemonFile:
    """The place of the one daemon that a host has for a bus, held by a lock until it ends."""

    def __init__(self, bus: str) -> None:
        self._path = _folder(bus) / _DAEMON
        self._file: int | None = None
        self._told = b""

    def claim(self, patience_s: float = CLAIM_S) -> bool:
        """Become the daemon; False if somebody else is, and remains so for `patience_s`.

        Raises:
            OSError: The folder cannot be used.
        """
        for folder in (self._path.parent.parent, self._path.parent):
            _make_private(folder)
        deadline_s = time.monotonic() + patience_s
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        while not _lock(file):
            if time.monotonic() >= deadline_s:
                os.close(file)
                return False
            time.sleep(0.01)
        self._file = file
        self._tell(b"")
        return True

    def show(self, daemon: ShownDaemon) -> None:
        """Tell programs of this host where the daemon is."""
        self._tell(msgspec.json.encode(daemon))

    def hide(self) -> None:
        """Be found no longer, and keep the place: the daemon is about to end."""
        self._tell(_ENDING)

    def stay(self) -> None:
        """Show the daemon again, should its file be gone: systems clear old temporary files."""
        file, told = self._file, self._told
        if file is None:
            return
        with suppress(OSError):
            os.utime(file)
            if not self._path.exists():
                self.leave()
                if self.claim():
                    self._tell(told)

    def leave(self) -> None:
        """Give the place up. Idempotent."""
        # The file stays: if it were removed, two could hold locks on two files of that name.
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: close the parent's file; the place stays the parent's."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _tell(self, told: bytes) -> None:
        self._told = told
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, told, 0)


def find_daemon(bus: str, patience_s: float = 0.0) -> ShownDaemon | None:
    """Return the live daemon of this host and bus, if one has shown itself completely.

    One that is about to begin is waited for, for as long as `patience_s`.
    """
    deadline_s = time.monotonic() + patience_s
    while (told := _told_by_daemon(bus)) == b"" and time.monotonic() < deadline_s:
        time.sleep(0.01)
    try:
        return msgspec.json.decode(told or b"", type=ShownDaemon)
    except msgspec.DecodeError:  # there is none, or it is about to begin, or to end
        return None


def _told_by_daemon(bus: str) -> bytes | None:
    """What a live daemon shows of itself; None if there is no daemon."""
    try:
        file = os.open(_folder(bus) / _DAEMON, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _lock(file) else os.pread(file, 65536, 0)
    except OSError:
        return None
    finally:
        os.close(file)


def private_folder() -> Path:
    """Return the folder that holds those of all buses: only this user may enter it.

    Raises:
        OSError: It cannot be made, or it is somebody else's.
    """
    _make_private(_parent())
    return _parent()


def _make_private(folder: Path) -> None:
    """Make `folder`, or make sure that it is there, for its owner alone, whatever the umask."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # a link could lead into somebody else's folder
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is not a folder")
    if found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _folder(bus: str) -> Path:
    try:
        # Programs in different networks are on different hosts, also when they share a disk.
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    name = hashlib.sha256(f"{network} {bus}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return _parent() / name


def _parent() -> Path:
    """A short path that is the same in each process of a user, and there until the system ends.

    So it does not follow `TMPDIR`, which differs between a shell and a service. `/run/user` ends
    with the user's last session; it is for hosts on which somebody else has taken our name.
    """
    uid = os.getuid()
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named) / f"infobus-{uid}"
    usual = Path(os.sep, "tmp", f"infobus-{uid}")
    other = Path(f"/run/user/{uid}") / f"infobus-{uid}"
    try:
        is_ours = usual.lstat().st_uid == uid
    except FileNotFoundError:
        is_ours = os.access(usual.parent, os.W_OK)
    except OSError:
        is_ours = False
    return other if not is_ours and os.access(other.parent, os.W_OK) else usual
