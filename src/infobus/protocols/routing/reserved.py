"""What is reserved on the link to one neighbour, and what waits by that.

Each source has a token bucket of the rate that it has reserved, and a queue as long as its buffer.
What has its turn goes ahead of all that is not reserved; what finds no room in the buffer goes with
that. So a reservation is kept, and no more than it.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from msgspec import Struct

from infobus.protocols.qos.classes import Rate

RESERVABLE_PART = 0.75
"""Of the rate of a link, so much can be reserved: the rest is for what is not."""

_ROUNDING = 1e-9
_T = TypeVar("_T")


class LinkClaim(Struct, frozen=True):
    """What a reservation asks of each link: bytes a second, and how many may come at once."""

    bytes_per_s: float
    buffer_bytes: float


class Refusal(Struct, frozen=True):
    """Why a reservation is not kept: which hop refuses it, and what that could keep."""

    hop: str
    """The name of the router."""
    toward: str
    """The neighbour at the other end of its link; empty if it is no link that lacks room."""
    bytes_per_s: float = 0.0
    buffer_bytes: float = 0.0
    why: str = ""


Holding = tuple[int, int, str]
"""Its source, its number there, and the neighbour that asked for it."""


class _Flow(Generic[_T]):
    """What a source has reserved on a link, and what of it waits."""

    def __init__(self, claim: LinkClaim) -> None:
        self.claim = claim
        self.rate = _rate_of(claim)
        self.queue: deque[tuple[_T, int]] = deque()
        self.waiting = 0


class ReservedLink(Generic[_T]):
    """The reservations of one link, and what waits by them."""

    def __init__(self) -> None:
        self.held: dict[Holding, LinkClaim] = {}
        self._flows: dict[int, _Flow[_T]] = {}

    def __len__(self) -> int:
        return sum(len(flow.queue) for flow in self._flows.values())

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        return sum(flow.waiting for flow in self._flows.values())

    def free(self, holding: Holding, bytes_per_s: float | None, buffer_bytes: int) -> LinkClaim:
        """What can be kept for it on a link that carries so much (None: without limit).

        One that comes from another neighbour than before is the same one, and takes no more room.
        """
        limit = float("inf") if bytes_per_s is None else bytes_per_s * RESERVABLE_PART
        others = self._each(but=holding[:2])
        return LinkClaim(
            max(0.0, limit - sum(one.bytes_per_s for one in others)),
            max(0.0, buffer_bytes - sum(one.buffer_bytes for one in others)),
        )

    def keep(self, holding: Holding, claim: LinkClaim) -> None:
        """Keep so much, whatever was kept for it before."""
        if self.held.get(holding) != claim:
            self.held[holding] = claim
            self._look(holding[0])

    def release(self, holding: Holding) -> None:
        """Keep nothing for it any more."""
        if self.held.pop(holding, None) is not None:
            self._look(holding[0])

    def has_room(self, source: int, size: int) -> bool:
        """Whether a parcel of a source finds room in the buffer that it has reserved."""
        flow = self._flows.get(source)
        if flow is None or flow.claim.bytes_per_s <= 0:
            return False
        return not flow.queue or flow.waiting + size <= flow.claim.buffer_bytes

    def offer(self, source: int, parcel: _T, size: int) -> bool:
        """Let a parcel wait for its turn, if it finds room."""
        if not self.has_room(source, size):
            return False
        flow = self._flows[source]
        flow.queue.append((parcel, size))
        flow.waiting += size
        return True

    def take(self, now_s: float) -> _T | None:
        """Take the next one whose turn it is; None if there is none."""
        for source, flow in self._flows.items():
            if flow.queue and flow.rate.allow(now_s, 1, flow.queue[0][1]) == 0:
                parcel, size = flow.queue.popleft()
                flow.waiting -= size
                flow.rate.take(now_s, 1, size)
                del self._flows[source]  # the others come first, next time
                self._flows[source] = flow
                self._tidy(source)
                return parcel
        return None

    def take_all(self) -> list[_T]:
        """Take all that wait."""
        found = [parcel for flow in self._flows.values() for parcel, _ in flow.queue]
        for source, flow in list(self._flows.items()):
            flow.queue.clear()
            flow.waiting = 0
            self._tidy(source)
        return found

    def of_sources(self) -> dict[int, LinkClaim]:
        """What is kept in all for each source."""
        found: dict[int, LinkClaim] = {}
        for (source, _), claim in self._largest().items():
            before = found.get(source, LinkClaim(0.0, 0.0))
            found[source] = LinkClaim(
                before.bytes_per_s + claim.bytes_per_s, before.buffer_bytes + claim.buffer_bytes
            )
        return found

    def _largest(self) -> dict[tuple[int, int], LinkClaim]:
        found: dict[tuple[int, int], LinkClaim] = {}
        for (source, number, _), claim in self.held.items():
            before = found.get((source, number), LinkClaim(0.0, 0.0))
            found[source, number] = LinkClaim(
                max(before.bytes_per_s, claim.bytes_per_s),
                max(before.buffer_bytes, claim.buffer_bytes),
            )
        return found

    def _each(self, but: tuple[int, int]) -> list[LinkClaim]:
        return [claim for key, claim in self._largest().items() if key != but]

    def _look(self, source: int) -> None:
        claim, flow = self.of_sources().get(source), self._flows.get(source)
        if flow is None and claim is not None:
            self._flows[source] = _Flow(claim)
        elif flow is not None and claim is not None:
            before, flow.claim, flow.rate = flow.rate, claim, _rate_of(claim)
            flow.rate.spend_as(before)
        elif flow is not None:  # what waits still leaves, at the rate of before
            flow.claim = LinkClaim(0.0, 0.0)
            self._tidy(source)

    def _tidy(self, source: int) -> None:
        """Forget a flow of which nothing is reserved, and nothing waits."""
        flow = self._flows[source]
        if not flow.queue and flow.claim.bytes_per_s <= 0:
            del self._flows[source]


def _rate_of(claim: LinkClaim) -> Rate:
    burst_s = max(claim.buffer_bytes, 1.0) / claim.bytes_per_s
    return Rate(bytes_per_s=claim.bytes_per_s, burst_s=burst_s)


def fits(claim: LinkClaim, free: LinkClaim) -> bool:
    """Whether a claim can be kept where so much is free.

    >>> free = LinkClaim(10.0, 1.0)
    >>> fits(LinkClaim(10.0, 1.0), free), fits(LinkClaim(10.0, 2.0), free)
    (True, False)
    """
    return claim.bytes_per_s <= free.bytes_per_s * (
        1 + _ROUNDING
    ) and claim.buffer_bytes <= free.buffer_bytes * (1 + _ROUNDING)
