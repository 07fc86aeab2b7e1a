"""A row of the matcher, and the event that it is tried on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from infobus.filters.language.compiler import Predicate, predicate
from infobus.filters.language.literals import Literal, needs, tree_of_literal
from infobus.filters.language.partial import UNKNOWN, look, residual
from infobus.filters.language.values import INT64_MAX, attributes_of, family
from infobus.filters.matching.interval import Key, Parts, key_of, value_at

if TYPE_CHECKING:
    from infobus.filters.matching.cluster import RowHome

_OWNERS_IN_TUPLE = 16


class Check:
    """A condition that must be evaluated; all rows that have it share it."""

    __slots__ = ("_holds", "literal", "users")

    def __init__(self, literal: Literal) -> None:
        self.literal = literal
        self.users = 0
        self._holds: Predicate | None = None

    def holds(self, attributes: Mapping[str, Any], x: object) -> bool:
        """Return whether the condition is true of an event; compile it on first use."""
        if self._holds is None:
            self._holds = predicate(tree_of_literal(self.literal))
        return self._holds(attributes, x)


class EventView:
    """An event while rows are tried on it; evaluates each check at most once."""

    __slots__ = ("_known", "attributes", "get", "x")

    def __init__(self, attributes: Mapping[str, Any], x: object, has_deep: bool) -> None:
        self.attributes = attributes
        self.x = x
        self.get: Callable[[Any], Any] = attributes.get
        """Returns the value of an attribute, None if it is missing."""
        if has_deep:
            self.get = partial(value_at, attributes)
        self._known: dict[Check, bool] = {}

    def holds(self, check: Check) -> bool:
        """Return whether a condition is true of the event."""
        found = self._known.get(check)
        if found is None:
            found = self._known[check] = check.holds(self.attributes, self.x)
        return found


class PartialView(EventView):
    """An event of which only a part is known; a condition holds if it may become true."""

    __slots__ = ("_closed",)

    def __init__(self, known: object, closed: bool) -> None:
        super().__init__(attributes_of(known), known, has_deep=False)
        self._closed = closed
        self.get = self._value

    def _value(self, key: Key) -> Any:
        return look(self.x, (key,) if isinstance(key, str) else key, self._closed)

    def holds(self, check: Check) -> bool:
        return residual(tree_of_literal(check.literal), self.x, self._closed) is not False


class MatcherRow:
    """A row of the matcher, and the ids of the subscriptions that have it."""

    __slots__ = ("checks", "homes", "left", "owners", "parts", "repeats", "spans")

    def __init__(self, parts: Parts, checks: tuple[Check, ...]) -> None:
        self.parts = parts
        self.checks = checks
        self.spans = parts.spans
        self.left = checks
        """`spans` and `left` are the conditions that a lookup in the index does not settle."""
        self.repeats = False
        """Whether an event may find the row in several clusters."""
        self.homes: tuple[RowHome, ...] = ()
        self.owners: Collection[Hashable] = ()
        """A dict if they are many, so that adding one does not copy the others."""

    @property
    def keys(self) -> set[Key]:
        """The attributes that must exist, or must not exist, for the row to hold."""
        keys = {limit[0] for limit in self.parts.limits}
        keys.update([span.key for span in self.parts.spans])
        for check in self.checks:
            keys.update(map(key_of, needs(check.literal)))
        return keys

    def add_owner(self, id: Hashable) -> None:
        """Add a subscription."""
        if isinstance(self.owners, dict):
            self.owners[id] = None
        elif len(self.owners) < _OWNERS_IN_TUPLE:
            self.owners = (*self.owners, id)
        else:
            self.owners = dict.fromkeys((*self.owners, id))
        for home in self.homes:
            home.tell_owners()

    def remove_owner(self, id: Hashable) -> None:
        """Remove a subscription."""
        if isinstance(self.owners, dict):
            del self.owners[id]
        else:
            self.owners = tuple(owner for owner in self.owners if owner != id)
        for home in self.homes:
            home.tell_owners()

    def fits(self, event: EventView) -> bool:
        """Return whether the row holds for an event that found it in the index."""
        get = event.get
        for key, low, high in self.parts.limits:
            value = get(key)
            if value.__class__ is not float:
                if value is UNKNOWN:
                    continue
                if value.__class__ is not int and family(value) != "number":
                    return False
                if not -INT64_MAX - 1 <= value <= INT64_MAX and not isinstance(value, float):
                    return False
            if not low <= value <= high:
                return False
        for span in self.spans:
            if not span.fits(get(span.key)):
                return False
        return all(map(event.holds, self.left)) if self.left else True
