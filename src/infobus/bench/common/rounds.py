"""Rounds: every engine takes a short turn at every load, over and over.

The machine is never equally fast for long. If all loads take turns, a slow moment slows all of
them, and a ratio taken within one round cancels it out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import TypeVar

import msgspec

OnStep = Callable[[str, int, int | None], object]
"""Called with what is measured now, how many steps are done, and their total (None: unknown)."""

Key = tuple[str, str]
"""A load, and the engine that carries it."""

Value = TypeVar("Value")
Name = TypeVar("Name", bound=Hashable)


def ignore_step(what: str, done: int, total: int | None) -> None:
    """The `OnStep` of a caller who does not need progress."""


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """The values that one engine reached with one load, round by round."""

    load: str
    engine: str
    values: dict[str, list[float]]
    """Each measured value by name: one number per round, or a single one for all rounds."""

    def median(self, value: str) -> float:
        """The median of all rounds."""
        return statistics.median(self.values[value])


def rounds_of(taken: Mapping[Key, Sequence[Mapping[str, float]]]) -> list[Rounds]:
    """Collect the values of all turns into one `Rounds` per load and engine.

    >>> rounds_of({("echo", "nats"): [{"rate": 5.0}, {"rate": 7.0}]})[0].values
    {'rate': [5.0, 7.0]}
    """
    return [
        Rounds(
            load=load,
            engine=engine,
            values={name: [turn[name] for turn in turns] for name in (turns[0] if turns else ())},
        )
        for (load, engine), turns in taken.items()
    ]


def ratios(found: Sequence[Rounds], over: Key, under: Key, value: str) -> list[float]:
    """The value of `over` divided by that of `under`, in each round; empty if one is missing."""
    by_key = {(one.load, one.engine): one.values[value] for one in found if value in one.values}
    if over not in by_key or under not in by_key:
        return []
    return [a / b for a, b in zip(by_key[over], by_key[under], strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value with at least `share` of all values at or below it.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile([1.0, 2.0, 3.0], 0.99)
    (2.0, 3.0)
    """
    ordered = sorted(values)
    # Rounded, because 0.07 * 100 is a little more than 7 in binary.
    below = -int(-round(share * len(ordered), 9) // 1)
    return ordered[max(0, below - 1)]


def take_shuffled_turns(
    turns: Mapping[Name, Callable[[], Value]], *, rounds: int, on_step: OnStep
) -> dict[Name, list[Value]]:
    """Take all turns in each round, in a new order each time: a turn may slow the next one."""
    chance = Random(1)
    order = [name for _ in range(rounds) for name in chance.sample([*turns], len(turns))]
    return _taken(turns, order, on_step)


def take_warm_turns(
    turns: Mapping[Name, Callable[[], Value]], *, rounds: int, on_step: OnStep
) -> dict[Name, list[Value]]:
    """Take all turns in each round, always in this order, after a round that only warms up."""
    taken = _taken(turns, [*turns] * (rounds + 1), on_step)
    return {name: values[1:] for name, values in taken.items()}


def _taken(
    turns: Mapping[Name, Callable[[], Value]], order: Sequence[Name], on_step: OnStep
) -> dict[Name, list[Value]]:
    taken: dict[Name, list[Value]] = {name: [] for name in turns}
    for done, name in enumerate(order):
        on_step(", ".join(name) if isinstance(name, tuple) else str(name), done, len(order))
        taken[name].append(turns[name]())
    return taken
