"""Watches the links of a session, and takes a link that carries nothing down at once.

Two things go wrong in Zenoh when a process freezes while others send to it, on a busy machine in
one run of ten or more. (1) A link that was given up because its receiver took nothing lingers for
10 s: its node still counts as alive. So we tell the system to give up a connection sooner than
Zenoh does, which looks like the death of the node and is noticed in milliseconds. (2) A node that
resumed and connected again counts as connected, yet neither its tokens nor our frames pass, for
ever. We shut such a link; Zenoh connects once more, and then the link works.

The library has no calls for either, so both act on its sockets.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any

from infobus.engines.zenoh.library import in_daemon_thread


class LinkKeeper:
    """Watches over the links of one session until it is stopped.

    Args:
        greeters: Returns the ids of the nodes whose declarations have reached this one.
        stall_ms_max: A connection that takes nothing for so long is given up.
        period_s: How often to look for nodes that are connected but no longer greet.
    """

    def __init__(
        self,
        session: Any,
        greeters: Callable[[], set[str]],
        *,
        stall_ms_max: int,
        period_s: float,
    ) -> None:
        self._session = session
        self._greeters = greeters
        self._stall_ms_max = stall_ms_max
        self._period_s = period_s
        self._stopped = threading.Event()
        self._listener = in_daemon_thread(
            lambda: session.info.declare_link_events_listener(self._link_changed, history=True)
        )
        self._thread = threading.Thread(target=self._run, name="infobus-links", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching the links. Idempotent."""
        self._stopped.set()
        self._thread.join(self._period_s)

    def _link_changed(self, event: Any) -> None:
        # This is also called for links that are gone; those have no socket any more.
        with contextlib.suppress(OSError):
            for connection in _connections(event.link):
                connection.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._stall_ms_max
                )

    def _run(self) -> None:
        looks: dict[str, int] = {}  # How often in a row a node was connected but silent.
        while not self._stopped.wait(self._period_s):
            # The session may be closed meanwhile: then the next wait ends the loop.
            with contextlib.suppress(Exception):
                connected = {str(zid) for zid in self._session.info.peers_zid()}
                silent = connected - self._greeters()
                looks = {zid: looks.get(zid, 0) + 1 for zid in silent}
                # Not at the first look: a node that has just arrived may still be
                # greeting. And not for ever: it may be a stranger, a Zenoh program
                # that knows no greeting.
                self._shut({zid for zid, count in looks.items() if count in (2, 4, 8)})

    def _shut(self, zids: set[str]) -> None:
        for link in self._session.info.links() if zids else ():
            if str(link.zid) in zids:
                for connection in _connections(link):
                    connection.shutdown(socket.SHUT_RDWR)


def _connections(link: Any) -> Iterator[socket.socket]:
    """Yield the sockets of this process that make up `link`."""
    ends = {_address(link.src), _address(link.dst)}
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), _socket(int(number)) as candidate:
            if candidate.family in (socket.AF_INET, socket.AF_INET6):
                here, there = candidate.getsockname(), candidate.getpeername()
                if {_joined(*here[:2]), _joined(*there[:2])} == ends:
                    yield candidate


@contextlib.contextmanager
def _socket(number: int) -> Iterator[socket.socket]:
    # Copy nothing else: closing the copy of a file releases every lock that this process has on
    # it, and databases rely on theirs.
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        raise OSError(f"{number} is no socket")
    with socket.socket(fileno=os.dup(number)) as found:
        yield found


def _address(locator: object) -> str:
    return str(locator).partition("/")[2].partition("?")[0].partition("#")[0]


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
