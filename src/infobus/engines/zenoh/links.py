"""Watches the links of a session, and takes a link that carries nothing down at once.

Two things go wrong in Zenoh when a process freezes while others send to it, on a busy machine in
one run of ten or more. (1) A link that was given up because its receiver took nothing lingers for
10 s: its node still counts as alive. So we tell the system to give up a connection sooner than
Zenoh does, which looks like the death of the node and is noticed in milliseconds. (2) A node that
resumed and connected again counts as connected, yet neither its tokens nor our frames pass, for
ever. We shut such a link; Zenoh connects once more, and then the link works.

A third goes wrong where two nodes call each other, as daemons do, so that they share two links. If
one of them has given the other up and calls again before the other has noticed, its new link joins
the old ones there. Each key has a number that holds as long as the links do; so from then on the
two mean different keys by one number: frames vanish, or come into another node's inbox. So when one
of several links with a node is lost, we shut the others, and all of them begin anew.

The library has no calls for these, so all act on its sockets. So does a fourth: who finds others
by multicast calls for a lost node every second, and not only every 8 s as the library does.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from infobus.engines.zenoh.endpoints import UNIX, address_of, protocol_of
from infobus.engines.zenoh.library import in_daemon_thread
from infobus.engines.zenoh.rendezvous import Rendezvous

_CALL_S = 60.0
"""How long to call for a node that was lost, at every look."""
_SCOUT = bytes([0x01, 0x09, 0b011])
"""Zenoh's call for peers and routers: its kind, the version of the protocol, who is to answer."""
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class LinkKeeper:
    """Watches over the links of one session until it is stopped.

    Args:
        greeters: Returns the ids of the nodes whose declarations have reached this one.
        rendezvous: Knows the processes of the nodes that are linked by Unix sockets.
        stall_ms_max: A connection that takes nothing for so long is given up.
        period_s: How often to look for nodes that are connected but no longer greet.
        on_change: Called whenever a link comes or goes.
        gone: What the library calls the end of a link.
        scouts_at: The group and port at which the session calls for others, if it does.
    """

    def __init__(
        self,
        session: Any,
        greeters: Callable[[], set[str]],
        rendezvous: Rendezvous,
        *,
        stall_ms_max: int,
        period_s: float,
        on_change: Callable[[], None],
        gone: Any,
        scouts_at: tuple[str, int] | None,
    ) -> None:
        self._session = session
        self._gone = gone
        self._greeters = greeters
        self._rendezvous = rendezvous
        self._stall_ms_max = stall_ms_max
        self._period_s = period_s
        self._on_change = on_change
        self._scouts_at = scouts_at
        self._lost_at_s = -math.inf
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
        self._on_change()
        if event.kind == self._gone:
            self._lost_at_s = time.monotonic()
            with contextlib.suppress(Exception):  # the session is being closed
                self._shut({str(event.link.zid)})
        # This is also called for links that are gone; those have no socket any more.
        if protocol_of(str(event.link.src)) == UNIX:
            return
        with contextlib.suppress(OSError):
            for connection in _connections(event.link):
                connection.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._stall_ms_max
                )

    def _run(self) -> None:
        looks: dict[str, int] = {}  # How often in a row a node was connected but silent.
        while not self._stopped.wait(self._period_s):
            self._rendezvous.stay()
            self._call_again()
            # The session may be closed meanwhile: then the next wait ends the loop.
            with contextlib.suppress(Exception):
                info = self._session.info
                connected = {str(zid) for zid in (*info.peers_zid(), *info.routers_zid())}
                silent = connected - self._greeters()
                looks = {zid: looks.get(zid, 0) + 1 for zid in silent}
                # Not at the first look: a node that has just arrived may still be
                # greeting. And not for ever: it may be a stranger, a Zenoh program
                # that knows no greeting.
                self._shut({zid for zid, count in looks.items() if count in (2, 4, 8)})

    def _call_again(self) -> None:
        """Call for a node that was lost: Zenoh itself does every 8 s."""
        is_lost = time.monotonic() - self._lost_at_s < _CALL_S
        if self._scouts_at is not None and is_lost:
            for one in scouting_sockets(self._scouts_at[1]):
                with contextlib.suppress(OSError):  # as long as the network is cut
                    one.sendto(_SCOUT, self._scouts_at)

    def _shut(self, zids: set[str]) -> None:
        """Take down all links with these nodes."""
        for link in self._session.info.links() if zids else ():
            zid = str(link.zid)
            if zid in zids:
                neighbour = self._rendezvous.neighbours().get(zid)
                for connection in _connections(link, neighbour.pid if neighbour else 0):
                    connection.shutdown(socket.SHUT_RDWR)


def _connections(link: Any, pid: int = 0) -> Iterator[socket.socket]:
    """Yield the sockets of this process that make up `link`.

    Of the two ends of a Unix socket only the one that listens has a name. Which of those that we
    accepted is meant, is known by the process at the other end: `pid`.
    """
    is_unix = protocol_of(str(link.src)) == UNIX
    own, other = address_of(link.src), address_of(link.dst)
    ends = {own, other}
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), _socket(int(number)) as candidate:
            if is_unix and candidate.family == socket.AF_UNIX:
                here, there = candidate.getsockname(), candidate.getpeername()
                # Not every socket that leads to `own`: another node of this process may have
                # called there, and its link is not this one.
                if there == other or (here == own and pid == _peer_pid(candidate)):
                    yield candidate
            elif not is_unix and candidate.family in (socket.AF_INET, socket.AF_INET6):
                here, there = candidate.getsockname(), candidate.getpeername()
                if {_joined(*here[:2]), _joined(*there[:2])} == ends:
                    yield candidate


def scouting_sockets(port: int) -> Iterator[socket.socket]:
    """Yield the sockets by which Zenoh itself calls, so that the answers go to it."""
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError), _socket(int(number)) as candidate:
            if candidate.family == socket.AF_INET and candidate.type == socket.SOCK_DGRAM:
                interface = candidate.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, 4)
                # At `port` it only listens; who sets no interface is not Zenoh.
                if candidate.getsockname()[1] != port and interface != bytes(4):
                    yield candidate


def _peer_pid(connection: socket.socket) -> int | None:
    if not hasattr(socket, "SO_PEERCRED"):  # Linux alone has it
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])


@contextlib.contextmanager
def _socket(number: int) -> Iterator[socket.socket]:
    # Copy nothing else: closing the copy of a file releases every lock that this process has on
    # it, and databases rely on theirs.
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        raise OSError(f"{number} is no socket")
    with socket.socket(fileno=os.dup(number)) as found:
        yield found


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
