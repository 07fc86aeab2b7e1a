"""A steady rate for a publisher: reserved, kept to, and given back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from infobus.bus.clock import Clock
from infobus.errors import UsageError
from infobus.objects import codec
from infobus.protocols.qos.classes import Rate

if TYPE_CHECKING:
    from infobus.bus.lifetime import Lifetime
    from infobus.bus.publish.node_policy import NodePolicy
    from infobus.bus.publish.paths import PathReservation
    from infobus.bus.publish.publisher import Publisher
    from infobus.bus.runtime.runtime import Runtime
    from infobus.bus.services import Services


class ReservedWay(TypedDict, total=False):
    """What `Bus.reserve` can be told of the way to other sites."""

    subject: str
    """A pattern. Every link to the sites that want it keeps the rate, or none does.

    It needs `bytes_per_s`. What is published by the reservation must fit it.
    """
    buffer_bytes: float | None
    """What may come at once; else a quarter of a second's bytes, at least 4 KiB."""
    priority: str | None
    """The class of events for which `publish` names none."""
    on_change: Callable[[str], object] | None
    """Called, on a thread of its own, with why it is not kept any more; empty: it is again."""


class Reservation:
    """A rate that one publisher has reserved. Made by `Bus.reserve`; close it to give it back.

    What is published through it leaves at a steady pace: `publish` waits for its turn. Threads
    that share it take turns.
    """

    def __init__(
        self,
        name: str,
        rate: Rate,
        *,
        publish: Callable[..., None],
        release: Callable[[str], None],
        clock: Clock,
        pause: Callable[[float], object],
        paths: PathReservation | None = None,
    ) -> None:
        self.name = name
        self.events_per_s = rate.events_per_s
        self.bytes_per_s = rate.bytes_per_s
        self._publish = publish
        self._rate = rate
        self._release = release
        self._now_s = clock.now_s
        self._pause = pause
        self._lock = threading.Lock()
        self._is_closed = False
        self._paths = paths

    @property
    def lost(self) -> str:
        """Why it is not kept on the way to other sites now; empty while it is.

        What is published goes on nevertheless, in its class. The bus tries to get it back.
        """
        return "" if self._paths is None else self._paths.lost

    def publish(self, subject: str, obj: Any, **options: Any) -> None:
        """Publish in turn; see `Bus.publish`.

        Raises:
            UsageError: The reservation was given back, or is for other subjects.
        """
        if self._paths is not None:
            self._paths.check(subject)
        size = len(codec.encode(obj)[1]) if self.bytes_per_s is not None else 0
        with self._lock:  # also while waiting: nobody comes before who waits already
            if self._is_closed:
                raise UsageError(f"reservation {self.name!r} was given back; make another one")
            wait_s = self._rate.allow(self._now_s(), 1, size)
            if wait_s > 0:
                self._pause(wait_s)
            self._rate.take(self._now_s(), 1, size)
        if self._paths is not None and not self._paths.lost:
            options["priority"] = options.get("priority") or self._paths.priority
            self._paths.publish(self._paths.number, subject, obj, **options)
        else:
            self._publish(subject, obj, **options)

    def close(self) -> None:
        """Give the rate back. Idempotent."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            if self._paths is not None:
                self._paths.close()
            self._release(self.name)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.events_per_s} events/s"
        return f"<Reservation {self.name!r}: {state}>"


def reserve(
    rate: Rate,
    name: str,
    way: ReservedWay,
    policy: NodePolicy,
    services: Services,
    publisher: Publisher,
    lifetime: Lifetime,
    runtime: Runtime,
    *,
    clock: Clock,
) -> Reservation:
    """See `Bus.reserve`."""
    events_per_s = rate.events_per_s or 0.0
    number, name, release = policy.reserve(events_per_s, rate.bytes_per_s, name)
    paths = None
    try:
        if way.get("subject"):
            from infobus.bus.publish.paths import PathReservation

            paths = PathReservation(
                services,
                publisher,
                number,
                name,
                pattern=way["subject"],
                rate=rate,
                buffer_bytes=way.get("buffer_bytes"),
                priority=way.get("priority"),
                on_change=way.get("on_change"),
                is_closed=lambda: lifetime.over is not None,
            )
        elif way:
            raise UsageError(f"reserve: {', '.join(sorted(way))} is for the way of a subject")
    except BaseException:
        release(name)
        raise
    return Reservation(
        name,
        rate,
        publish=publisher.one,
        release=release,
        clock=clock,
        pause=partial(runtime.wait_until, lambda: lifetime.over is not None),
        paths=paths,
    )
