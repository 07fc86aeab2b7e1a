"""The times and sizes of a router, as one value."""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Marks, Upgrade

_MIB = 1024 * 1024
_BEATS_OF_LEASE = 4
_KEPT_ROUNDS = 3.5


class RoutingTerms(Struct, frozen=True, kw_only=True):
    """What a router does how soon, and how much of what it holds."""

    classes: Classes = DEFAULT_CLASSES
    lease_s: float = 1.0  # a neighbour that is silent for so long is not there
    beat_s_max: float = 0.25  # between words to a neighbour; never more than a quarter of the lease
    gather_s: float = 0.005  # own changes of a table that come within it leave together
    forget_s: float = 30.0  # a router that cannot be reached is forgotten
    window_bytes: int = _MIB  # to one neighbour, under way
    marks: Marks = Marks(high=8 * _MIB, low=4 * _MIB)
    upgrade: Upgrade | None = Upgrade()
    stall_s: float = 5.0  # a crowded class of which nothing leaves for so long lets its oldest go
    control_count_max: int = 10_000  # control frames that wait for one link

    @property
    def beat_s(self) -> float:
        """The pause between words to a neighbour.

        >>> RoutingTerms().beat_s, RoutingTerms(lease_s=0.4).beat_s
        (0.25, 0.1)
        """
        return min(self.beat_s_max, self.lease_s / _BEATS_OF_LEASE)

    @property
    def renew_s(self) -> float:
        """The pause before a reservation is asked for again; so long, answers are waited for."""
        return max(1.0, self.lease_s)

    @property
    def keep_s(self) -> float:
        """When a hop that hears nothing more of a reservation lets it go."""
        return _KEPT_ROUNDS * self.renew_s
