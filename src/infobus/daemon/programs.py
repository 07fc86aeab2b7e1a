"""The programs of this host, and which of them have died.

A token that disappears can mean a death, a cut or a freeze; other nodes can only wait and see. The
daemon of the host knows: it holds a handle of each process, and the system tells it when the
process has ended. So it never guesses.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

PROGRAMS_COUNT_MAX = 512  # each takes a file descriptor
DEATH_S = 3.0  # later nobody waits for it


class LocalPrograms:
    """The nodes of this host and user whose tokens are seen; `me` is the daemon's own.

    `on_death` is called, from any thread, with each whose token has gone and whose process has
    ended. It may have left with a word before that. A process may end up to `death_s` after the
    token has gone: the system takes down sockets first.
    """

    def __init__(
        self,
        me: str,
        on_death: Callable[[str], None],
        count_max: int = PROGRAMS_COUNT_MAX,
        death_s: float = DEATH_S,
    ) -> None:
        self._count_max = count_max
        self._death_s = death_s
        self._me = me
        self._on_death = on_death
        self._handles: dict[str, int] = {}
        self._lock = threading.Lock()

    def names(self) -> tuple[str, ...]:
        """Those that are there."""
        with self._lock:
            return tuple(sorted(self._handles))

    def came(self, node: str) -> None:
        """A node's token was seen."""
        handle = _handle(node, self._me)
        if handle is None:
            return
        with self._lock:
            if node not in self._handles and len(self._handles) < self._count_max:
                self._handles[node] = handle
                return
        os.close(handle)

    def went(self, node: str) -> None:
        """A node's token has gone; if its process has ended, or does so at once, it has died."""
        with self._lock:
            handle = self._handles.pop(node, None)
        if handle is None:
            return
        if not _has_ended(handle, 0.0):
            # Not here: this is the engine's thread. A process that only moved goes on.
            threading.Thread(
                target=self._wait, args=(node, handle), name="infobus-death", daemon=True
            ).start()
            return
        os.close(handle)
        self._on_death(node)

    def close(self) -> None:
        """Look at nobody any more."""
        with self._lock:
            while self._handles:
                os.close(self._handles.popitem()[1])

    def _wait(self, node: str, handle: int) -> None:
        has_ended = _has_ended(handle, self._death_s)
        os.close(handle)
        if has_ended:
            self._on_death(node)


def _has_ended(handle: int, timeout_s: float) -> bool:
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return bool(waiting.poll(1000 * timeout_s))


def _handle(node: str, me: str) -> int | None:
    """A handle of a node's process, if that is one of this host, network and user."""
    place, pid, _ = node.rsplit("-", 2) if node.count("-") >= 2 else ("", "", "")
    if place != me.rsplit("-", 2)[0] or not pid.isdecimal() or not hasattr(os, "pidfd_open"):
        return None
    try:
        handle = os.pidfd_open(int(pid))
    except (OSError, OverflowError):  # it has ended, or there are too many open files
        return None
    try:
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return handle
    except OSError:  # another user's
        pass
    os.close(handle)
    return None
