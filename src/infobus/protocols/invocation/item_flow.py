"""Streams of results: items in order, never more under way than the caller has room for."""

from __future__ import annotations

from collections import deque

HELD_COUNT_MAX = 1024


class Inflow:
    """The caller's end of a stream: passes items on in order, each once."""

    __slots__ = ("_held", "_window", "received", "upto")

    def __init__(self, window: int) -> None:
        self.received = 0  # items that have arrived in order
        self.upto = window  # items that may be sent
        self._window = window
        self._held: dict[int, bytes] = {}  # items that arrived too early

    def add(self, first: int, bodies: list[bytes]) -> list[bytes]:
        """Accept items `first`, `first + 1`, ...; return those whose turn it is.

        >>> inflow = Inflow(4)
        >>> inflow.add(2, [b"b"]), inflow.add(1, [b"a", b"b"]), inflow.add(2, [b"b"])
        ([], [b'a', b'b'], [])
        """
        for number, body in enumerate(bodies, first):
            if self.received < number <= self.upto:
                self._held[number] = body
        ready = []
        while self.received + 1 in self._held:
            self.received += 1
            ready.append(self._held.pop(self.received))
        return ready

    def taken(self, count: int) -> int | None:
        """The application has taken `count` items in all; return the limit if it has changed."""
        upto = count + self._window
        if upto - self.upto < self._window // 2:
            return None
        self.upto = upto
        return upto

    def ends(self, count: int) -> bool:
        """Return whether all items of a stream of `count` have arrived."""
        return self.received >= count


class Outflow:
    """The server's end of a stream: stores items until the caller has them."""

    __slots__ = ("_kept", "produced", "received", "sent", "upto")

    def __init__(self, upto: int) -> None:
        self.produced = 0
        self.sent = 0
        self.received = 0
        self.upto = upto
        self._kept: deque[bytes] = deque()  # items `received + 1` to `produced`

    def add(self, body: bytes) -> None:
        """Add one more item."""
        self._kept.append(body)
        self.produced += 1

    def has_room(self) -> bool:
        """Return whether the caller has room for one more item."""
        return self.produced < self.upto

    def credit(self, received: int, upto: int, *, again: bool) -> None:
        """The caller has advanced, or lacks items that were sent to it."""
        received = min(received, self.produced)
        while self.received < received:
            self._kept.popleft()
            self.received += 1
        self.upto = max(self.upto, min(upto, received + HELD_COUNT_MAX))
        if again:
            self.sent = self.received

    def unsent(self) -> tuple[int, list[bytes]]:
        """Return what to send now: the number of the first item, and the items."""
        first = max(self.sent, self.received) + 1
        bodies = list(self._kept)[first - self.received - 1 :]
        self.sent = self.produced
        return first, bodies
