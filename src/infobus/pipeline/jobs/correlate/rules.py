"""Rules of correlation: which events together mean something, and the memory they need.

One `Memory` belongs to one rule and one key. It receives hits (events that a step of the rule
wants) in the order of their times, and the time up to which events are complete; it returns its
findings. It remembers nothing that is older than the rule's `within_s`. There is no clock here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, Literal

from msgspec import Struct, field

from infobus.errors import UsageError
from infobus.filters import compile, overlaps
from infobus.filters.language.tree import FunctionCall, nodes
from infobus.filters.language.values import read
from infobus.pipeline.jobs.subscription import TrialSubscription

STEPS_COUNT_MAX = 32


class Hit(Struct, array_like=True, frozen=True):
    """An event that steps of a rule want."""

    time_us: int
    offset: int
    steps: tuple[int, ...]
    id: str
    value: float | None = None


class Finding(Struct, frozen=True):
    """A finding of a rule: events from `first_us` to `last_us` that mean something together."""

    first_us: int
    last_us: int
    count: int
    value: float | None = None
    ids: tuple[str, ...] = ()
    is_complete: bool = True
    """False for a window that was not over when the events ended."""


class Window(Struct, array_like=True):
    """The state of a window that is not over yet."""

    start_us: int
    first_us: int
    last_us: int
    count: int = 0
    total: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf


class Memory(Struct, array_like=True):
    """The memory of a rule for the events of one key.

    Attributes:
        hits: By step, in a form that depends on the kind of rule.
        window: The window that is not over, if the rule has windows.
    """

    hits: list[list[Hit]] = field(default_factory=list)
    window: Window | None = None

    @property
    def is_empty(self) -> bool:
        return self.window is None and not any(self.hits)


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The attributes of all rules.

    Attributes:
        name: The rule's name.
        within_s: The time within which all of it happens.
        key: Only events with the same key belong together: text with attributes in braces, such
            as `{symbol}` or `{order.id}/{_sender}`. The rule ignores events that lack one.
    """

    name: str
    within_s: float
    key: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.within_s) and self.within_s > 0):
            raise UsageError(f"rule {self.name}: within_s={self.within_s} must be above 0")
        if not self.name:
            raise UsageError("a rule has an empty name")
        Template(self.key)
        if not 1 <= len(self.wanted()) <= STEPS_COUNT_MAX:
            count = len(self.wanted())
            raise UsageError(f"rule {self.name}: 1 to {STEPS_COUNT_MAX} steps, not {count}")

    def wanted(self) -> list[TrialSubscription]:
        """Return the events that the rule is about, one subscription for each step."""
        raise NotImplementedError

    def take(self, memory: Memory, hit: Hit) -> list[Finding]:
        """Process the next event, in the order of time; return what it completes."""
        raise NotImplementedError

    def pass_time(self, memory: Memory, until_us: int) -> list[Finding]:
        """Process that all events up to this time have been seen: end windows, and forget."""
        _forget(memory, until_us + 1 - self.within_us)  # the next event comes later than that
        return []

    def rest(self, memory: Memory) -> list[Finding]:
        """Return what is known of windows that are not over, at the end of history."""
        return []

    def next_us(self, memory: Memory) -> int | None:
        """Return when `pass_time` must be called again; None if nothing is remembered."""
        if not any(memory.hits):
            return None
        return min(some[0].time_us for some in memory.hits if some) + self.within_us

    @property
    def within_us(self) -> int:
        return round(self.within_s * 1e6)


class Sequence(Rule, frozen=True, kw_only=True, tag="sequence"):
    """One event for each step, one after the other."""

    steps: list[TrialSubscription]

    def wanted(self) -> list[TrialSubscription]:
        return self.steps

    def take(self, memory: Memory, hit: Hit) -> list[Finding]:
        # chains[i] holds events for the first i+1 steps. Of several chains, the one that
        # began last has the most time left, so no other is needed.
        chains = memory.hits = memory.hits or [[] for _ in self.steps]
        for step in sorted(hit.steps, reverse=True):  # so that no event serves for two steps
            before = chains[step - 1] if step else []
            if not step or before:
                chains[step] = [*before, hit]
        if not chains[-1]:
            return []
        whole = chains[-1]
        memory.hits = []
        return [_found(whole)]


class Conjunction(Rule, frozen=True, kw_only=True, tag="conjunction"):
    """One event for each step, in any order."""

    steps: list[TrialSubscription]

    def wanted(self) -> list[TrialSubscription]:
        return self.steps

    def take(self, memory: Memory, hit: Hit) -> list[Finding]:
        latest = memory.hits = memory.hits or [[] for _ in self.steps]
        for step in hit.steps:
            latest[step] = [hit]
        if not all(latest):
            return []
        memory.hits = []
        whole = {one.id: one for [one] in latest}.values()
        return [_found(sorted(whole, key=_order))]


class Repetition(Rule, frozen=True, kw_only=True, tag="repetition"):
    """A number of events of one kind."""

    step: TrialSubscription
    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 1:
            raise UsageError(f"rule {self.name}: count={self.count} must be at least 1")

    def wanted(self) -> list[TrialSubscription]:
        return [self.step]

    def take(self, memory: Memory, hit: Hit) -> list[Finding]:
        memory.hits = memory.hits or [[]]
        memory.hits[0].append(hit)
        if len(memory.hits[0]) < self.count:
            return []
        whole = memory.hits[0]
        memory.hits = []
        return [_found(whole)]

    def pass_time(self, memory: Memory, until_us: int) -> list[Finding]:
        since_us = until_us + 1 - self.within_us
        memory.hits = [[one for one in some if one.time_us >= since_us] for some in memory.hits]
        return []


class Absence(Rule, frozen=True, kw_only=True, tag="absence"):
    """An event, and no event of another kind within the time after it."""

    after: TrialSubscription
    missing: TrialSubscription

    def wanted(self) -> list[TrialSubscription]:
        return [self.after, self.missing]

    def take(self, memory: Memory, hit: Hit) -> list[Finding]:
        if 1 in hit.steps:
            memory.hits = []
        if 0 in hit.steps:
            memory.hits = memory.hits or [[]]
            memory.hits[0].append(hit)
        return []

    def pass_time(self, memory: Memory, until_us: int) -> list[Finding]:
        if not memory.hits:
            return []
        waiting = memory.hits[0]
        over = [one for one in waiting if one.time_us + self.within_us <= until_us]
        memory.hits = [waiting[len(over) :]] if len(over) < len(waiting) else []
        return [
            Finding(one.time_us, one.time_us + self.within_us, 1, one.value, (one.id,))
            for one in over
        ]

    def next_us(self, memory: Memory) -> int | None:
        return memory.hits[0][0].time_us + self.within_us if memory.hits else None


Function = Literal["count", "sum", "mean", "min", "max"]


class Aggregate(Rule, frozen=True, kw_only=True, tag="aggregate"):
    """A number computed from all events of one kind in a time window; windows do not overlap.

    Attributes:
        step: The events.
        function: How the number is computed.
        of: The attribute it is computed from; `count` needs none.
        having: A filter on `value` and `count`; other findings are not reported.
    """

    step: TrialSubscription
    function: Function
    of: str | None = None
    having: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.having is not None:
            self._check_having(self.having)
        if self.of is None and self.function != "count":
            raise UsageError(f"rule {self.name}: {self.function} of what? Set `of`")

    def _check_having(self, having: str) -> None:
        """Refuse a filter that is true of no finding: the rule would be silent for ever."""
        where = compile(having)
        if other := sorted(where.attributes - {"value", "count"}):
            raise UsageError(
                f"rule {self.name}: having is about `value` and `count`, not {', '.join(other)}"
            )
        calls = (node for node in nodes(where.tree) if isinstance(node, FunctionCall))
        asks_for_nan = any(call.function == "nan" for call in calls)
        numbers = ("value >= 1",) if self.function == "count" else ("value <= 0", "value > 0")
        possible = (compile(f"count >= 1 && {one}") for one in numbers)
        if not asks_for_nan and not any(overlaps(where, one) for one in possible):
            raise UsageError(
                f"rule {self.name}: having={having!r} is never true; `count` is at least 1, and "
                "`value` is a number"
            )

    def wanted(self) -> list[TrialSubscription]:
        return [self.step]

    def take(self, memory: Memory, hit: Hit) -> list[Finding]:
        if hit.value is None and self.function != "count":
            return []
        if memory.window is None:
            start_us = hit.time_us - hit.time_us % self.within_us
            memory.window = Window(start_us, hit.time_us, hit.time_us)
        window, value = memory.window, hit.value or 0.0
        window.last_us = hit.time_us
        window.count += 1
        window.total += value
        window.least, window.greatest = min(window.least, value), max(window.greatest, value)
        return []

    def pass_time(self, memory: Memory, until_us: int) -> list[Finding]:
        window = memory.window
        if window is None or window.start_us + self.within_us > until_us + 1:
            return []
        return self._end(memory, is_complete=True)

    def rest(self, memory: Memory) -> list[Finding]:
        return self._end(memory, is_complete=False)

    def _end(self, memory: Memory, *, is_complete: bool) -> list[Finding]:
        window = memory.window
        if window is None:
            return []
        memory.window = None
        value = {
            "count": float(window.count),
            "sum": window.total,
            "mean": window.total / window.count,
            "min": window.least,
            "max": window.greatest,
        }[self.function]
        if self.having is not None:
            told = {"value": value, "count": window.count}
            if not compile(self.having).matches(told):
                return []
        end_us = window.start_us + self.within_us
        return [Finding(window.start_us, end_us, window.count, value, is_complete=is_complete)]

    def next_us(self, memory: Memory) -> int | None:
        return None if memory.window is None else memory.window.start_us + self.within_us - 1


AnyRule = Sequence | Conjunction | Repetition | Absence | Aggregate


def follow(rule: Rule, memory: Memory, hits: list[Hit], until_us: int) -> list[Finding]:
    """Process events in the order of their times, and then the time itself.

    >>> twice = Repetition(name="twice", within_s=1, step=TrialSubscription(), count=2)
    >>> hits = [Hit(0, 0, (0,), "a"), Hit(500_000, 1, (0,), "b"), Hit(800_000, 2, (0,), "c")]
    >>> [one.ids for one in follow(twice, Memory(), hits, 900_000)]
    [('a', 'b')]
    """
    found: list[Finding] = []
    for hit in sorted(hits, key=_order):
        found += rule.pass_time(memory, hit.time_us - 1)
        found += rule.take(memory, hit)
    return found + rule.pass_time(memory, until_us)


def _order(hit: Hit) -> tuple[int, int]:
    return hit.time_us, hit.offset


def _found(hits: Any) -> Finding:
    chain = list(hits)
    ids = tuple(one.id for one in chain)
    return Finding(chain[0].time_us, chain[-1].time_us, len(chain), None, ids)


def _forget(memory: Memory, since_us: int) -> None:
    """Drop everything that began before this time."""
    kept = [some if some and some[0].time_us >= since_us else [] for some in memory.hits]
    memory.hits = kept if any(kept) else []


class Template:
    """Text with names of attributes in braces.

    >>> Template("{order.id}/{_sender}").filled({"order": {"id": 7}, "_sender": "x"})
    '7/x'
    >>> Template("{order.id}").filled({"order": 7}) is None
    True

    Raises:
        UsageError: The braces are not in order, or there is more in them than a name.
    """

    def __init__(self, text: str) -> None:
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise UsageError(f"{text!r}: {error}; attributes stand in braces") from error
        self._parts: list[tuple[str, tuple[str, ...] | None]] = []
        for literal, name, spec, conversion in parts:
            if name is not None and (spec or conversion or not re.fullmatch(r"\w+(\.\w+)*", name)):
                raise UsageError(f"{text!r}: in braces stands the name of an attribute, no more")
            self._parts.append((literal, None if name is None else tuple(name.split("."))))

    @property
    def names(self) -> set[str]:
        """Return the attributes, without the names inside them."""
        return {path[0] for _, path in self._parts if path is not None}

    def filled(
        self, attributes: Mapping[str, Any], spell: Callable[[Any], str] = str
    ) -> str | None:
        """Return the text with the values of these attributes; None if one is missing."""
        text = ""
        for literal, path in self._parts:
            text += literal
            if path is not None:
                if (value := read(attributes, path)) is None:
                    return None
                text += spell(value)
        return text
