"""A steady rate for a publisher: reserved, kept to, and given back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infobus.bus.clock import Clock
from infobus.errors import UsageError
from infobus.objects import codec
from infobus.protocols.qos.classes import Rate

if TYPE_CHECKING:
    from infobus.bus.publish.paths import PathReservation


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
