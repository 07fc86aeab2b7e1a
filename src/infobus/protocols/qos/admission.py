"""Decides who may reserve how much of the capacity of a node, or of a group of nodes.

`Admission` is the local QoS manager of paper 002 (section 6): it refuses requests that would exceed
the node's share. `Shares` is the arithmetic of the distributed one, which does the same for the sum
over a group of nodes that come and go. A grant is never withdrawn, even if the bound is narrowed
later; `excess` then says by how much the bound is exceeded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from infobus.errors import QosRefused, UsageError

#: Sums of fractions may miss the bound by so much, relatively.
_ROUNDING = 1e-9


class Load(Struct, frozen=True):
    """A steady rate of events and bytes.

    Raises:
        UsageError: A number is negative or not finite.
    """

    events_per_s: float = 0.0
    bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise UsageError(f"{name}={value}: expected a number that is not negative")


class Admission:
    """Reservations by name, whose sum stays within the capacity; None is without limit.

    >>> admission = Admission(events_per_s=100)
    >>> admission.reserve("prices", 80)
    >>> admission.reserve("news", 30)
    Traceback (most recent call last):
    infobus.errors.QosRefused: 'news' asks for 30 events/s, but only 20 of 100 are free: ask for \
less, release another reservation, or have more given
    """

    def __init__(self, events_per_s: float | None, bytes_per_s: float | None = None) -> None:
        self._given = _limits(events_per_s, bytes_per_s)
        self._bound = _limits(None, None)
        self._held: dict[str, Load] = {}

    @property
    def held(self) -> Mapping[str, Load]:
        """The reservations, by name."""
        return self._held

    def reserve(self, name: str, events_per_s: float, bytes_per_s: float = 0.0) -> None:
        """Reserve a steady rate, replacing an earlier reservation of this name.

        Raises:
            QosRefused: It does not fit; the earlier reservation stays.
            UsageError: A rate is negative or not finite.
        """
        load = Load(events_per_s, bytes_per_s)
        others = (other for key, other in self._held.items() if key != name)
        _check_fits(name, load, others, self._limits())
        self._held[name] = load

    def release(self, name: str) -> None:
        """Give a reservation back, if there is one."""
        self._held.pop(name, None)

    def bound(self, events_per_s: float | None, bytes_per_s: float | None = None) -> None:
        """Stay within this bound as well, as a group's policy asks; None lifts it."""
        self._bound = _limits(events_per_s, bytes_per_s)

    def excess(self) -> Load:
        """Return by how much the reservations exceed a bound that was narrowed later."""
        return _excess(self._held.values(), self._limits())

    def _limits(self) -> tuple[float, float]:
        (events, bytes_), (events_bound, bytes_bound) = self._given, self._bound
        return min(events, events_bound), min(bytes_, bytes_bound)


class Shares:
    """The reservations of a group's nodes, within the group's bound; None is without limit.

    First come, first served. Every change may be reported more than once.
    """

    def __init__(self, events_per_s: float | None, bytes_per_s: float | None = None) -> None:
        self._limits = _limits(events_per_s, bytes_per_s)
        self._nodes: dict[str, dict[str, Load]] = {}

    @property
    def nodes(self) -> Mapping[str, Mapping[str, Load]]:
        """The reservations of each node, by name."""
        return self._nodes

    def bound(self, events_per_s: float | None, bytes_per_s: float | None = None) -> None:
        """Set another bound; grants stay."""
        self._limits = _limits(events_per_s, bytes_per_s)

    def reserve(self, node: str, name: str, load: Load) -> None:
        """Reserve for `node`, replacing its earlier reservation of this name.

        Raises:
            QosRefused: The group's bound would be exceeded; the earlier reservation stays.
        """
        others = (
            held
            for other, by_name in self._nodes.items()
            for key, held in by_name.items()
            if (other, key) != (node, name)
        )
        _check_fits(name, load, others, self._limits)
        self._nodes.setdefault(node, {})[name] = load

    def told(self, node: str, held: Mapping[str, Load]) -> None:
        """Accept a node's report of all its reservations, whoever granted them."""
        self._nodes[node] = dict(held)

    def lost(self, node: str) -> None:
        """Forget a node that is gone; its share is free."""
        self._nodes.pop(node, None)

    def excess(self) -> Load:
        """Return by how much the group exceeds its bound, because nodes reported more."""
        loads = (load for by_name in self._nodes.values() for load in by_name.values())
        return _excess(loads, self._limits)


def _check_fits(name: str, load: Load, others: Iterable[Load], limits: tuple[float, float]) -> None:
    asks = (load.events_per_s, load.bytes_per_s)
    for asked, used, limit, unit in zip(
        asks, _sums(others), limits, ("events/s", "bytes/s"), strict=True
    ):
        if asked and used + asked > limit * (1 + _ROUNDING):
            free = max(0.0, limit - used)
            raise QosRefused(
                f"{name!r} asks for {asked:g} {unit}, but only {free:g} of {limit:g} are free: "
                "ask for less, release another reservation, or have more given",
                asked=asked,
                free=free,
            )


def _excess(loads: Iterable[Load], limits: tuple[float, float]) -> Load:
    return Load(*(max(0.0, used - limit) for used, limit in zip(_sums(loads), limits, strict=True)))


def _limits(events_per_s: float | None, bytes_per_s: float | None) -> tuple[float, float]:
    for name, value in (("events_per_s", events_per_s), ("bytes_per_s", bytes_per_s)):
        if value is not None and not value >= 0:
            raise UsageError(f"{name}={value}: expected a number that is not negative, or None")
    return (
        math.inf if events_per_s is None else events_per_s,
        math.inf if bytes_per_s is None else bytes_per_s,
    )


def _sums(loads: Iterable[Load]) -> tuple[float, float]:
    loads = list(loads)
    return (
        math.fsum(load.events_per_s for load in loads),
        math.fsum(load.bytes_per_s for load in loads),
    )
