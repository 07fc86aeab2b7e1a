"""Infobus as you would use it: the public API, and objects of a declared type."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import cycle
from typing import Any
from uuid import uuid4

import infobus
from infobus.bench.pubsub.peers import Note, PublishAll, RoundTrip


class BusQuote(infobus.DataObject):
    """The peers' five attributes, as a type of the bus."""

    symbol: str
    venue: str
    bid: int
    size: int
    price: float


class InfobusPeer:
    """Nodes of one bus, found by its name; there is no server. One event goes out at a time."""

    quote = BusQuote
    batch: infobus.Batch | None = None

    @contextmanager
    def server(self) -> Iterator[str]:
        """Nothing to start; yields the name of a bus that nobody else is on."""
        yield f"bench-{uuid4().hex}"

    @contextmanager
    def publisher(self, address: str, subjects: Sequence[str]) -> Iterator[PublishAll]:
        """Plain `publish`, with the default reliability."""
        with infobus.connect(bus=address, batch=self.batch) as bus:

            def publish_all(quotes: Sequence[Any]) -> None:
                publish, count = bus.publish, len(subjects)
                for index, quote in enumerate(quotes):
                    publish(subjects[index % count], quote)

            yield publish_all

    @contextmanager
    def consumer(self, address: str, subjects: Sequence[str] | None, note: Note) -> Iterator[None]:
        """One subscription object, read by a thread as a program would."""
        with infobus.connect(bus=address, batch=self.batch) as bus:
            events = bus.subscribe("bench.>") if subjects is None else bus.subscribe_many(subjects)
            with _reading(events, partial(_note_all, note)):
                yield

    @contextmanager
    def pinger(self, address: str) -> Iterator[RoundTrip]:
        """Pongs are read from the subscription on the caller's thread."""
        with infobus.connect(bus=address, batch=self.batch) as bus:
            answers = bus.subscribe("bench.pong")

            def round_trip(quote: Any, timeout_s: float) -> int | None:
                bus.publish("bench.ping", quote)
                try:
                    return int(answers.receive(timeout_s).data.bid)
                except TimeoutError:
                    return None

            yield round_trip

    @contextmanager
    def ponger(self, address: str) -> Iterator[None]:
        """Answers from the thread that reads the subscription."""
        with infobus.connect(bus=address, batch=self.batch) as bus:
            pings = bus.subscribe("bench.ping")
            with _reading(pings, partial(_answer_all, bus)):
                yield


class BatchedInfobusPeer(InfobusPeer):
    """The same with the paper's batch parameter on, and events handed over many at a time."""

    batch = infobus.Batch(bytes=131_072, ms=2.0)

    @contextmanager
    def publisher(self, address: str, subjects: Sequence[str]) -> Iterator[PublishAll]:
        """`publish_many`."""
        with infobus.connect(bus=address, batch=self.batch) as bus:
            yield lambda quotes: bus.publish_many(zip(cycle(subjects), quotes, strict=False))


def _note_all(note: Note, events: infobus.Subscription) -> None:
    for event in events:
        note(event.data.bid)


def _answer_all(bus: infobus.Bus, pings: infobus.Subscription) -> None:
    for ping in pings:
        bus.publish("bench.pong", ping.data)


@contextmanager
def _reading(
    events: infobus.Subscription, read: Callable[[infobus.Subscription], None]
) -> Iterator[None]:
    """Read a subscription on a thread of its own, until it is closed."""

    def loop() -> None:
        while not events.is_closed:
            # A loss is raised once, then delivery goes on; the harness sees what is missing.
            with suppress(infobus.LossError):
                read(events)

    thread = threading.Thread(target=loop, name="bench-infobus")
    thread.start()
    try:
        yield
    finally:
        events.close()
        thread.join()
