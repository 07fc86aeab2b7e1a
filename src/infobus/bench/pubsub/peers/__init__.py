"""One adapter per engine. All have the same small interface, so one harness measures them all.

A process imports only the adapter that it needs, so a consumer of one engine never loads another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol, cast

from infobus.bench.common.engines import INFOBUS, INFOBUS_BATCHED, NATS, ZENOH, ZMQ

PublishAll = Callable[[Sequence[Any]], None]
"""Encodes and sends each object, on each subject in turn; returns when all are handed over."""

Note = Callable[[int], None]
"""Called with the number of each received object, after it was decoded."""

RoundTrip = Callable[[Any, float], int | None]
"""Sends an object, waits so many seconds for an answer, and returns its number or None."""


class PubSubPeer(Protocol):
    """The interface that the harness needs from an engine.

    Each context manager is entered in its own process.
    """

    quote: Callable[..., Any]
    """The class of the objects that are published."""

    def server(self) -> AbstractContextManager[str]:
        """Starts whatever must run beside the programs; yields the address that they get."""

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
        """Decodes what arrives on `bench.ping`, encodes it again, and sends it on `bench.pong`."""


_ADAPTERS = {
    INFOBUS: ("infobus_bus", "InfobusPeer"),
    INFOBUS_BATCHED: ("infobus_bus", "BatchedInfobusPeer"),
    ZENOH: ("zenoh_raw", "ZenohPeer"),
    NATS: ("nats_core", "NatsPeer"),
    ZMQ: ("zmq_pubsub", "ZmqPeer"),
}


def load(engine: str) -> PubSubPeer:
    """The adapter of this engine, its libraries imported."""
    module, name = _ADAPTERS[engine]
    return cast(PubSubPeer, getattr(import_module(f"{__name__}.{module}"), name)())
