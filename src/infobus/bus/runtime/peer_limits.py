"""What any one peer may send to this node; only a peer that sends more is confirmed late."""

from __future__ import annotations

from infobus.protocols.qos.classes import Limits, Rate

_CLIENTS_COUNT_MAX = 10_000
_NUDGES = 8  # signs that a peer's events are taken, in the time that it waits for one


class Clients:
    """The peers' use of their limits. Everything here is called under the runtime's lock.

    A peer above its rate is not confirmed until it is within it again. Its window closes
    meanwhile, and so its publishers wait: in the long run it sends no more than it may, in bursts
    of at most its window (`Limits.queue_count_max`).
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.has_limits = not (limits.events_per_s is None and limits.bytes_per_s is None)
        self._rates: dict[str, Rate] = {}
        self._nudged_s = 0.0

    def note(self, peer: str, count: int, size: int, now_s: float) -> None:
        """So much has come from a peer."""
        rate = self._rates.get(peer)
        if rate is None:
            if len(self._rates) >= _CLIENTS_COUNT_MAX:
                del self._rates[next(iter(self._rates))]  # their names come from outside
            limits = self._limits
            rate = self._rates[peer] = Rate(limits.events_per_s, limits.bytes_per_s)
        rate.take(now_s, count, size)

    def is_throttled(self, peer: str, now_s: float) -> bool:
        """Whether a peer has sent more than it may."""
        rate = self._rates.get(peer)
        return rate is not None and rate.allow(now_s, 0, 0) > 0

    def must_nudge(self, hold_s: float, now_s: float) -> list[str]:
        """Peers above their rate that are to be shown now that this node is not stuck."""
        if now_s - self._nudged_s < hold_s / _NUDGES:
            return []
        self._nudged_s = now_s
        return [peer for peer in self._rates if self.is_throttled(peer, now_s)]
