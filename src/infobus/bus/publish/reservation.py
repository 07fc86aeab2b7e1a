"""A steady rate for a publisher: reserved, kept to, and given back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from infobus.bus.clock import Clock
from infobus.errors import UsageError
from infobus.objects import codec
from infobus.protocols.qos.classes import Rate


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

    def publish(self, subject: str, obj: Any, **options: Any) -> None:
        """Publish in turn; see `Bus.publish`.

        Raises:
            UsageError: The reservation was given back.
        """
        size = len(codec.encode(obj)[1]) if self.bytes_per_s is not None else 0
        with self._lock:  # also while waiting: nobody comes before who waits already
            if self._is_closed:
                raise UsageError(f"reservation {self.name!r} was given back; make another one")
            wait_s = self._rate.allow(self._now_s(), 1, size)
            if wait_s > 0:
                self._pause(wait_s)
            self._rate.take(self._now_s(), 1, size)
        self._publish(subject, obj, **options)

    def close(self) -> None:
        """Give the rate back. Idempotent."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            self._release(self.name)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.events_per_s} events/s"
        return f"<Reservation {self.name!r}: {state}>"
