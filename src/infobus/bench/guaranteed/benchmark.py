"""`infobus bench guaranteed`: how fast guaranteed events are kept.

All engines take turns on the same disk. They are judged against what that disk allows: one small
write after the other, each of them synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.table import Table

from infobus.bench.common.bar import Bar
from infobus.bench.common.engines import NATS, missing
from infobus.bench.common.findings import Findings
from infobus.bench.common.rounds import (
    Key,
    OnStep,
    Rounds,
    ignore_step,
    percentile,
    ratios,
    take_shuffled_turns,
)
from infobus.bench.common.tables import table_of
from infobus.bench.guaranteed.loads import (
    BATCHES,
    LOADS,
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
from infobus.errors import EngineError

DISK = "disk"
SQLITE = "SQLite alone"
LEDGER = "ledger"
BUS = "infobus"
ALWAYS = "JetStream always"
DEFAULT = "JetStream default"

OpenLoads = Callable[[Path], AbstractContextManager[dict[str, TakeTurn]]]

BARS = {ONE: 0.7, THREADS: 5.0, TASKS: 5.0, BATCHES: 20.0}
"""The bus keeps at least this many times as many events as the disk does single syncs."""


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure on the disk of `out`."""
    rounds, turn_s = (6, 0.1) if quick else (24, 0.2)
    with TemporaryDirectory(dir=out.absolute()) as folder:
        found, left_out = measure(Path(folder), rounds=rounds, turn_s=turn_s, on_step=on_step)
    return Findings(
        name="guaranteed",
        tables=[table(found)],
        values={"found": found},
        bars=bars_of(found),
        left_out=left_out,
    )


def measure(
    folder: Path, *, rounds: int, turn_s: float, on_step: OnStep = ignore_step
) -> tuple[list[Rounds], dict[str, str]]:
    """Measure on the disk of `folder`. What was written stays there.

    Returns the rounds, and the engines that were left out with the reason.
    """
    left_out: dict[str, str] = {}
    with ExitStack() as opened:
        turns: dict[Key, Callable[[], Turn]] = {}
        for engine, open_loads in engines(left_out):
            place = folder / str(len(turns))
            place.mkdir(parents=True)
            try:
                offered = opened.enter_context(open_loads(place))
            except EngineError as error:
                left_out[engine] = str(error)
            else:
                for load, take_turn in offered.items():
                    turns[load, engine] = partial(take_turn, turn_s)
        taken = take_shuffled_turns(turns, rounds=rounds, on_step=on_step)
    return [_rounds(key, taken[key]) for key in taken], left_out


def engines(left_out: dict[str, str]) -> Iterator[tuple[str, OpenLoads]]:
    """Yield the engines that can run here, and put the others into `left_out`."""
    yield DISK, disk_loads
    yield SQLITE, sqlite_loads
    yield LEDGER, ledger_loads
    yield BUS, bus_loads
    if reason := missing(NATS):
        left_out["JetStream"] = reason
        return
    from infobus.bench.guaranteed.jetstream import jetstream_loads

    yield ALWAYS, lambda folder: jetstream_loads(folder, "always")
    yield DEFAULT, lambda folder: jetstream_loads(folder, "2m")


def _rounds(key: Key, turns: list[Turn]) -> Rounds:
    """The rate of each round, and one p99 of all waits, because a single turn has too few."""
    waits_s = [wait_s for turn in turns for wait_s in turn.waits_s]
    rates = [turn.event_count / turn.seconds for turn in turns]
    load, engine = key
    values = {"rate": rates, "p99_s": [percentile(waits_s, 0.99)]}
    return Rounds(load=load, engine=engine, values=values)


def bars_of(found: Sequence[Rounds]) -> list[Bar]:
    """Each rate of the bus against single syncs of the disk in the same round."""
    return [
        Bar.over_rounds(f"{load} / disk", ratios(found, (load, BUS), (ONE, DISK), "rate"), bar)
        for load, bar in BARS.items()
    ]


def table(found: Sequence[Rounds]) -> Table:
    """One row for each engine and load, the engines of one load together."""

    def times(one: Rounds, under: Key) -> str:
        over = (one.load, one.engine)
        rates = ratios(found, over, under, "rate")
        return f"{median(rates):,.2f}" if rates and over != under else ""

    rows = [
        (
            one.load,
            one.engine,
            f"{one.median('rate'):,.0f}",
            f"{one.median('p99_s') * 1e3:,.1f}",
            times(one, (ONE, DISK)),
            times(one, (one.load, ALWAYS)),
            times(one, (one.load, DEFAULT)),
        )
        for one in sorted(found, key=lambda one: LOADS.index(one.load))
    ]
    return table_of(
        "Guaranteed events kept (medians)",
        ["events", "engine"],
        ["per s", "p99 ms", "/ disk", "/ always", "/ default"],
        rows,
        caption="/ disk: single syncs; / always, / default: JetStream's sync interval",
        grouped=True,
    )
