"""What any one peer may send to this node; only a peer that sends more is confirmed late.

On a secured bus it is what any one principal may send, by however many nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from infobus.protocols.qos.classes import Limits, Rate

_CLIENTS_COUNT_MAX = 10_000
_NUDGES = 8  # signs that a peer's events are taken, in the time that it waits for one


class Budget(Struct, frozen=True):
    """What all nodes of one owner together may send."""

    owner: str
    events_per_s: float | None
    bytes_per_s: float | None


class Clients:
    """The peers' use of their limits. Everything here is called under the runtime's lock.

    A peer above its rate is not confirmed until it is within it again. Its window closes
    meanwhile, and so its publishers wait: in the long run it sends no more than it may, in bursts
    of at most its window (`Limits.queue_count_max`).
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._is_limited = not (limits.events_per_s is None and limits.bytes_per_s is None)
        self.has_limits = self._is_limited
        self._budget_of: Callable[[str, Limits], Budget] = _own_budget
        self._rates: dict[str, Rate] = {}  # by peer; those of one budget share one
        self._of_budgets: dict[Budget, Rate] = {}
        self._nudged_s = 0.0

    def use_budgets(self, budget_of: Callable[[str, Limits], Budget], has_rates: bool) -> None:
        """From now on `budget_of` says what a peer may send; `has_rates` if it limits anyone."""
        self._budget_of = budget_of
        self.has_limits = self._is_limited or has_rates
        self._rates = {peer: self._rate_of(peer) for peer in self._rates}

    def note(self, peer: str, count: int, size: int, now_s: float) -> None:
        """So much has come from a peer."""
        rate = self._rates.get(peer)
        if rate is None:
            if len(self._rates) >= _CLIENTS_COUNT_MAX:
                del self._rates[next(iter(self._rates))]  # their names come from outside
            rate = self._rates[peer] = self._rate_of(peer)
        rate.take(now_s, count, size)

    def _rate_of(self, peer: str) -> Rate:
        budget = self._budget_of(peer, self._limits)
        rate = self._of_budgets.get(budget)
        if rate is None:
            if len(self._of_budgets) >= _CLIENTS_COUNT_MAX:
                del self._of_budgets[next(iter(self._of_budgets))]
            rate = Rate(budget.events_per_s, budget.bytes_per_s)
            self._of_budgets[budget] = rate
        return rate

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


def _own_budget(peer: str, limits: Limits) -> Budget:
    return Budget(peer, limits.events_per_s, limits.bytes_per_s)
