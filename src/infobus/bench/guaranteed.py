"""How fast guaranteed events are kept, against what the disk allows, and beside JetStream.

All loads take short turns, over and over, so that a disk that is slow for a while is slow for all
of them; in another order each time, because a turn leaves the disk with work to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from infobus.bench.guaranteed_loads import (
    BATCHES,
    ONE,
    TASKS,
    THREADS,
    TakeTurn,
    Turn,
    bus_loads,
    disk_loads,
    ledger_loads,
    sqlite_loads,
)
from infobus.bench.model import NATS, Bar
from infobus.bench.peers import missing
from infobus.bench.statistics import percentile
from infobus.errors import EngineError

DISK = "disk"
SQLITE = "SQLite alone"
LEDGER = "ledger"
BUS = "infobus"
ALWAYS = "JetStream always"
DEFAULT = "JetStream default"

OnTurn = Callable[[int, int], object]
"""Told how many turns are done, and how many there are."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one load."""

    engine: str
    load: str
    rates: list[float]
    """Events kept per second, in each round."""
    p99_s: float
    """The longest wait but for the slowest hundredth, for an event or a batch."""

    @property
    def rate(self) -> float:
        """The median of all rounds."""
        return median(self.rates)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one call of `infobus bench guaranteed` found out."""

    machine: dict[str, str]
    found: list[Found]
    bars: list[Bar]
    left_out: dict[str, str]
    """What was not measured, and why."""


def measure(
    folder: Path, *, rounds: int, turn_s: float, on_turn: OnTurn = lambda done, all: None
) -> tuple[list[Found], dict[str, str]]:
    """Measure on the disk of `folder`, which is left with what was written.

    Also returns what was left out, and why.
    """
    turns: dict[tuple[str, str], list[Turn]] = {}
    left_out: dict[str, str] = {}
    with ExitStack() as opened:
        loads: dict[tuple[str, str], TakeTurn] = {}
        for engine, open_loads in _engines(left_out):
            place = folder / str(len(loads))
            place.mkdir(parents=True)
            try:
                offered = opened.enter_context(open_loads(place))
            except EngineError as error:
                left_out[engine] = str(error)
            else:
                loads |= {(engine, name): take_turn for name, take_turn in offered.items()}
        chance = Random(1)
        order = [key for _ in range(rounds) for key in chance.sample([*loads], len(loads))]
        turns = {key: [] for key in loads}
        for done, key in enumerate(order):
            on_turn(done, len(order))
            turns[key].append(loads[key](turn_s))
    return [_found(*key, taken) for key, taken in turns.items()], left_out


OpenLoads = Callable[[Path], AbstractContextManager[dict[str, TakeTurn]]]


def _engines(left_out: dict[str, str]) -> Iterator[tuple[str, OpenLoads]]:
    yield DISK, disk_loads
    yield SQLITE, sqlite_loads
    yield LEDGER, ledger_loads
    yield BUS, bus_loads
    if reason := missing(NATS):
        left_out["JetStream"] = reason
        return
    from infobus.bench.guaranteed_jetstream import jetstream_loads

    yield ALWAYS, lambda folder: jetstream_loads(folder, "always")
    yield DEFAULT, lambda folder: jetstream_loads(folder, "2m")


def _found(engine: str, load: str, turns: Sequence[Turn]) -> Found:
    waits_s = [wait_s for turn in turns for wait_s in turn.waits_s]
    rates = [turn.event_count / turn.seconds for turn in turns]
    return Found(engine=engine, load=load, rates=rates, p99_s=percentile(waits_s, 0.99))


def ratios(found: Sequence[Found], over: tuple[str, str], under: tuple[str, str]) -> list[float]:
    """How many times `under`'s rate `over` reached, in each round; nothing if one is not there."""
    rates = {(one.engine, one.load): one.rates for one in found}
    if over not in rates or under not in rates:
        return []
    return [a / b for a, b in zip(rates[over], rates[under], strict=True)]


def judge(found: Sequence[Found]) -> list[Bar]:
    """The bars: each rate of the bus against single syncs of the disk in the same round."""
    bars = []
    for load, bar in ((ONE, 0.7), (THREADS, 5.0), (TASKS, 5.0), (BATCHES, 20.0)):
        times = ratios(found, (BUS, load), (DISK, ONE))
        bars.append(
            Bar(
                what=f"{load} / disk",
                measured=median(times) if times else None,
                bar=bar,
                spread=(min(times), max(times)) if times else None,
            )
        )
    return bars
