"""Where programs of a site reserve ways to other sites: `Bus.reserve(..., subject=...)` asks here.

A reservation is a stream that its program reads: it says again and again how it stands. When the
stream ends, because the program closes it or dies, what was reserved is given back.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from infobus.engines.routed.engine import RoutedEngine
from infobus.errors import BusClosed, QosRefused
from infobus.protocols.qos.classes import Rate
from infobus.protocols.routing.reserved import LinkClaim, Refusal
from infobus.services import Service, current_call
from infobus.subjects import matches

_EVENT_BYTES = 300
"""What an event takes on a link beside its object."""

_SAY_S = 1.0  # how it stands is said so often, though nothing has changed
_ANSWER_S = 5.0  # for the hops to answer at first
_LATE_S = 0.5  # an event that comes sooner than reserved waits so long; it goes unreserved if later

Reserve = Callable[[str, float, float], None]
"""Reserves a rate under a name, by the policy of the routers; `QosRefused` if it does not fit."""


class _Booking(Struct):
    """One reservation of one program."""

    name: str
    sender: str
    pattern: str
    number: int
    claim: LinkClaim
    rate: Rate
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event
    is_told: bool = False
    refusal: Refusal | None = None
    to: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether all hops keep it."""
        return self.is_told and self.refusal is None

    def state(self) -> dict[str, Any]:
        """How it stands, for its program."""
        if not self.is_told:
            return {"hop": "", "why": "the hops do not answer", "share": 0.0}
        if self.refusal is None:
            return {"routers": len(self.to)}
        told, asked = self.refusal, self.claim
        share = min(told.bytes_per_s / asked.bytes_per_s, told.buffer_bytes / asked.buffer_bytes)
        return {"hop": told.hop, "toward": told.toward, "why": told.why, "share": share}


class ReservationDesk(Service):
    """Serves the reservations of one router.

    Args:
        router: Its name.
        engine: That of its backbone.
        wanting: The nodes of the backbone that want anything of a pattern.
        carries: Whether this router carries for its site.
    """

    def __init__(
        self,
        router: str,
        engine: RoutedEngine,
        wanting: Callable[[str], Iterable[str]],
        carries: Callable[[], bool],
    ) -> None:
        self._router, self._engine = router, engine
        self._wanting, self._carries = wanting, carries
        self._bookings: dict[tuple[str, int], _Booking] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._is_closed = False
        self.keep: Reserve = lambda name, events_per_s, bytes_per_s: None
        self.give_back: Callable[[str], None] = lambda name: None

    async def reserve(
        self,
        pattern: str,
        number: int,
        name: str,
        events_per_s: float,
        bytes_per_s: float,
        buffer_bytes: float,
    ) -> AsyncIterator[dict[str, Any]]:
        """Reserve along all paths to where a pattern is wanted, for as long as this is read."""
        sender = current_call().caller
        wire = 1.0 + events_per_s * _EVENT_BYTES / bytes_per_s
        booking = _Booking(
            *(f"{sender} {name}", sender, pattern, next(self._numbers)),
            LinkClaim(bytes_per_s * wire, buffer_bytes * wire),
            Rate(events_per_s, bytes_per_s, burst_s=max(0.1, buffer_bytes / bytes_per_s)),
            *(asyncio.get_running_loop(), asyncio.Event()),
        )
        try:
            await asyncio.to_thread(self.keep, booking.name, events_per_s, bytes_per_s)
        except QosRefused as error:
            free, asked = error.free or 0.0, error.asked or 0.0
            share = free / asked if asked else 0.0
            yield {"hop": self._router, "toward": "", "why": str(error), "share": share}
            return
        self._bookings[sender, number] = booking
        try:
            self._ask(booking)
            await _wait(booking.changed, _ANSWER_S)
            while not self._is_closed:
                booking.changed.clear()
                yield booking.state()
                await _wait(booking.changed, _SAY_S)
        finally:
            del self._bookings[sender, number]
            self.give_back(booking.name)
            self._engine.give_back(booking.number)

    def close(self) -> None:
        """Keep nothing any more: the programs are told."""
        self._is_closed = True
        for booking in list(self._bookings.values()):
            with suppress(RuntimeError):
                booking.loop.call_soon_threadsafe(booking.changed.set)

    def update(self) -> None:
        """Interest, agreements, or who carries may have changed."""
        for booking in list(self._bookings.values()):
            self._ask(booking)

    def is_reserved(self, sender: str, number: int, subject: str, size: int) -> bool:
        """Whether an event of a program goes by its reservation; it waits here for its turn."""
        booking = self._bookings.get((sender, number))
        if booking is None or not booking.is_kept or not matches(booking.pattern, subject):
            return False
        with self._lock:
            now_s = time.monotonic()
            wait_s = booking.rate.allow(now_s, 1, size)
            if wait_s > _LATE_S:
                return False
            booking.rate.take(now_s + wait_s, 1, size)
        if wait_s > 0:
            time.sleep(wait_s)
        return True

    def _ask(self, booking: _Booking) -> None:
        booking.to = tuple(sorted(self._wanting(booking.pattern))) if self._carries() else ()

        def told(refusal: Refusal | None) -> None:
            booking.is_told, booking.refusal = True, refusal
            with suppress(RuntimeError):  # the node is closed, and its loop
                booking.loop.call_soon_threadsafe(booking.changed.set)

        with suppress(BusClosed):
            self._engine.reserve(booking.number, booking.claim, booking.to, told)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)
