"""Mends links to nodes that Zenoh has connected to again but carries nothing to.

When a link was given up because its receiver took nothing (a frozen process), Zenoh sometimes
takes the old link down only when the new one is up, and loses what the new one declared: the node
counts as connected, yet neither its tokens nor our frames pass, for ever (some runs in a
hundred on a busy machine, after a frozen process went on). Closing such a link makes Zenoh
connect once more, and then it is whole. The library has no call for that, so the socket is shut.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any


class LinkMender:
    """Looks now and then for nodes that are connected and have greeted, but greet no more."""

    def __init__(self, session: Any, greeters: Callable[[], set[str]], period_s: float) -> None:
        self._session = session
        self._greeters = greeters
        self._period_s = period_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="infobus-links", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking. Idempotent."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._period_s)

    def _run(self) -> None:
        known: set[str] = set()
        suspects: set[str] = set()
        while not self._stopped.wait(self._period_s):
            # The session may be closed meanwhile: then the next wait ends the loop.
            with contextlib.suppress(Exception):
                greeters = self._greeters()
                known |= greeters
                connected = {str(zid) for zid in self._session.info.peers_zid()}
                silent = (connected & known) - greeters
                # Twice in a row: one that has just come is not done greeting yet.
                for zid in silent & suspects:
                    self._shut(zid)
                suspects = silent - suspects
                known &= connected | greeters

    def _shut(self, zid: str) -> None:
        for link in self._session.info.links():
            if str(link.zid) == zid:
                shut_connection(_address(link.src), _address(link.dst))


def shut_connection(one_end: str, other_end: str) -> None:
    """Shut the sockets of this process that connect the two addresses."""
    for number in os.listdir("/dev/fd"):
        with (
            contextlib.suppress(OSError, TypeError),  # No socket, or one without addresses.
            socket.socket(fileno=os.dup(int(number))) as candidate,
        ):
            here, there = candidate.getsockname(), candidate.getpeername()
            if {_joined(*here[:2]), _joined(*there[:2])} == {one_end, other_end}:
                candidate.shutdown(socket.SHUT_RDWR)


def _address(locator: str) -> str:
    return str(locator).partition("/")[2].partition("?")[0].partition("#")[0]


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
