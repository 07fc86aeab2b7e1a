"""What any one peer may send to this node: whoever sends more is confirmed late, nobody else."""

from __future__ import annotations

from infobus.protocols.qos.classes import Limits, Rate

_CLIENTS_COUNT_MAX = 10_000


class Clients:
    """The peers' use of their limits. Everything here is called under the hub's lock.

    A peer above its rate is not confirmed until it is within it again. Its window closes
    meanwhile, and so its publishers wait: in the long run it sends no more than it may, in bursts
    of at most its window (`Limits.queue_count_max`).
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.has_limits = not (limits.events_per_s is None and limits.bytes_per_s is None)
        self._rates: dict[str, Rate] = {}

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
