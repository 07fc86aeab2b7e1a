"""Subscriptions and events to measure matching with, made from a seed.

Three loads are modelled on what subscribers of market data ask for:

    equal   one of 120 symbols, some wanted far more often than others, and two to four limits;
            one subscription in five also names a side of the market
    range   three to five limits and no equality
    regex   as `equal`, but one subscription in twenty asks for a pattern in a text

`elvin` is Elvin's own load: ten subscriptions, events of five elements, a tenth of them wanted.
`wide` is `equal` with ten times the symbols. It shows what ten times the subscriptions cost if an
event matches as many of them as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from infobus.filters import Filter
from infobus.filters.language.tree import And, Compare, Constant, FunctionCall, Name, Tree

Event = dict[str, Any]

NUMBERS = {"price": 100.0, "volume": 10_000, "bid": 100.0, "ask": 100.0, "change": 10.0, "yield": 1}
"""The attributes and the largest value of each; values are spread evenly from 0 up."""

_SYMBOLS = [f"S{number:03}" for number in range(120)]
_WEIGHTS = [1 / (number + 3) for number in range(120)]
# Each symbol ten times, so that ten times the subscriptions fall on each as before.
_WIDE_SYMBOLS = [f"{symbol}.{number}" for symbol in _SYMBOLS for number in range(10)]
_WIDE_WEIGHTS = [weight for weight in _WEIGHTS for _ in range(10)]
# So many that ten subscriptions want a tenth of all events.
_ELVIN_SYMBOLS = _SYMBOLS[:80]
_SIDES = ["buy", "sell", "short"]
_SYLLABLES = "ba ko ri tel mun sa dor vi lep nar osh que zim fal gor ith jax wen pul cro".split()


class MatchCondition(NamedTuple):
    """A comparison of an attribute with a constant. The operator `regex` searches for a pattern."""

    name: str
    op: str
    value: Any


Subscription = tuple[MatchCondition, ...]


class MatchLoad(NamedTuple):
    """A load: its name, and how to make its subscriptions and events."""

    name: str
    subscription: Callable[[Random], Subscription]
    event: Callable[[Random], Event]

    def subscriptions(self, count: int, seed: int = 1) -> list[Subscription]:
        """Make subscriptions. The same seed gives the same ones."""
        random = Random(f"{self.name} subscriptions {seed}")
        return [self.subscription(random) for _ in range(count)]

    def events(self, count: int, seed: int = 1) -> list[Event]:
        """Make events. The same seed gives the same ones."""
        random = Random(f"{self.name} events {seed}")
        return [self.event(random) for _ in range(count)]


def filter_of(subscription: Subscription) -> Filter:
    """Turn the subscription into a filter of the bus.

    >>> str(filter_of((MatchCondition("symbol", "==", "S001"), MatchCondition("price", ">", 40.5))))
    'symbol == "S001" && price > 40.5'
    """
    trees = tuple(map(_tree, subscription))
    return Filter(trees[0] if len(trees) == 1 else And(trees))


def predicates_of(subscriptions: Sequence[Subscription]) -> list[Callable[[Event], bool]]:
    """Turn subscriptions into compiled lambdas, as fast as Python can be: they check no types.

    >>> [holds] = predicates_of([(MatchCondition("price", ">", 40.5),)])
    >>> holds({"price": 41.0}), holds({})
    (True, False)
    """
    made: list[Callable[[Event], bool]] = []
    for start in range(0, len(subscriptions), 1000):
        bound: dict[str, Any] = {"nan": float("nan")}
        lines = [_source(one, bound) for one in subscriptions[start : start + 1000]]
        made += eval(f"[{', '.join(lines)}]", bound)
    return made


def _tree(condition: MatchCondition) -> Tree:
    name, op, value = condition
    kind = {int: "int32", float: "real64", str: "string"}[type(value)]
    constant, attribute = Constant(value, kind), Name((name,))
    return (
        FunctionCall(op, (attribute, constant))
        if op == "regex"
        else Compare(op, attribute, constant)
    )


def _source(subscription: Subscription, bound: dict[str, Any]) -> str:
    return f"lambda e: {' and '.join(_expression(*one, bound) for one in subscription)}"


def _expression(name: str, op: str, value: Any, bound: dict[str, Any]) -> str:
    if op == "regex":
        search = f"search{len(bound)}"
        bound[search] = re.compile(value).search
        return f"{search}(e.get({name!r}, '')) is not None"
    # A missing number compares as NaN, with which nothing is true.
    return f"e.get({name!r}{', nan' * (op != '==')}) {op} {value!r}"


def _limits(random: Random, count: int) -> Iterator[MatchCondition]:
    """Limits on different attributes; a twentieth to half of all values pass each of them."""
    for name in random.sample(list(NUMBERS), count):
        op = random.choice(["<", ">", "<=", ">="])
        passing = random.uniform(0.05, 0.5)
        top = NUMBERS[name]
        limit = top * (passing if op in ("<", "<=") else 1 - passing)
        yield MatchCondition(name, op, int(limit) if isinstance(top, int) and top > 1 else limit)


def _equal(random: Random) -> Subscription:
    symbol = MatchCondition("symbol", "==", random.choices(_SYMBOLS, _WEIGHTS)[0])
    side = [MatchCondition("side", "==", random.choice(_SIDES))] if random.random() < 0.2 else []
    return (symbol, *side, *_limits(random, random.randint(2, 4)))


def _wide(random: Random) -> Subscription:
    _, *others = _equal(random)
    symbol = random.choices(_WIDE_SYMBOLS, _WIDE_WEIGHTS)[0]
    return (MatchCondition("symbol", "==", symbol), *others)


def _range(random: Random) -> Subscription:
    return tuple(_limits(random, random.randint(3, 5)))


def _regex(random: Random) -> Subscription:
    if random.random() >= 0.05:
        return _equal(random)
    words = (_word(random), _word(random))
    pattern = random.choice(["{}.*{}", r"\b{} {}s?\b", "{}|{}", "^{}.+{}$", "({}|x)+ {}"])
    return (MatchCondition("msg", "regex", pattern.format(*words)), *_limits(random, 1))


def _event(random: Random) -> Event:
    event: Event = {
        "symbol": random.choices(_SYMBOLS, _WEIGHTS)[0],
        "side": random.choice(_SIDES),
    }
    for name, top in NUMBERS.items():
        value = random.uniform(0, top)
        event[name] = int(value) if isinstance(top, int) and top > 1 else value
    if random.random() < 0.2:
        del event[random.choice(list(event))]
    return event


def _wide_event(random: Random) -> Event:
    event = _event(random)
    if "symbol" in event:
        event["symbol"] = random.choices(_WIDE_SYMBOLS, _WIDE_WEIGHTS)[0]
    return event


def _event_with_text(random: Random) -> Event:
    return _event(random) | {"msg": " ".join(_word(random) for _ in range(10))}


def _word(random: Random) -> str:
    return "".join(random.choices(_SYLLABLES, k=3))


def _elvin(random: Random) -> Subscription:
    symbol = MatchCondition("symbol", "==", random.choice(_ELVIN_SYMBOLS))
    return (symbol, MatchCondition("price", ">", random.uniform(0, 30)))


def _elvin_event(random: Random) -> Event:
    return {
        "symbol": random.choice(_ELVIN_SYMBOLS),
        "price": random.uniform(0, 100),
        "volume": random.randint(1, 10_000),
        "side": random.choice(_SIDES),
        "change": random.uniform(-5, 5),
    }


EQUAL = MatchLoad("equal", _equal, _event)
WIDE = MatchLoad("wide", _wide, _wide_event)
RANGE = MatchLoad("range", _range, _event)
REGEX = MatchLoad("regex", _regex, _event_with_text)
ELVIN = MatchLoad("elvin", _elvin, _elvin_event)
