"""`infobus bench qos`: how long emergencies take beside a flood.

Every round starts its own processes. It measures first on a calm bus, then with the flood. In
between it measures on a calm bus while the cores are as busy as the flood makes them. What that
costs is the machine's doing, and no bus could help it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.plots import OURS, canvas, legend_below
from infobus.bench.common.processes import WorkerProcess, company_of
from infobus.bench.common.rounds import OnStep, percentile
from infobus.bench.common.tables import table_of
from infobus.bench.qos.workers import PAUSE_S, FloodLoad, Times, consume, spin, supply

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPINNING_COUNT = 2
"""A flood keeps two processes busy: its supplier, and a consumer that is quick."""

LOADS = [
    FloodLoad(together=together, slow=slow) for slow in (False, True) for together in (False, True)
]

SETTLE_S = 1.0  # until queues and windows are as full as they get
_PATIENCE_S = 5.0  # for the last emergencies

TIMES_MAX = 3.0
ENOUGH_S = 0.020
"""Under flood, the p99 may be so many times the calm p99, or so long, whichever is more."""

TimesOf = Callable[["FloodTimes"], list[float]]

COLUMNS: dict[str, TimesOf] = {
    "calm": lambda one: one.calm_s,
    "busy cores": lambda one: one.busy_s,
    "flood": lambda one: one.flood_s,
    "regular": lambda one: one.regular_s,
}

_LINES = (
    ("calm", "emergency, calm bus", "#8fbf9f", "-"),
    ("busy cores", "emergency, calm bus, busy cores", "#8d6aa8", ":"),
    ("flood", "emergency, under the flood", "#b3261e", "-"),
    ("regular", "regular, the flood itself", OURS, "--"),
)


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure each load in one short round, or in five longer ones."""
    rounds, seconds = (1, 2.0) if quick else (5, 5.0)
    found: list[FloodTimes] = []
    for load in LOADS * rounds:
        on_step(load.name, len(found), rounds * len(LOADS))
        found.append(measure(load, seconds=seconds))
    return Findings(
        name="qos",
        tables=[table(found)],
        values={"found": found},
        bars=bars_of(found),
        drawings={"qos-latency": lambda: latency_figure(found)},
    )


class FloodTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one round; times are in seconds."""

    load: FloodLoad
    calm_s: list[float]
    busy_s: list[float]
    """With busy cores and a calm bus; empty if the flood does not keep the cores busy."""
    flood_s: list[float]
    regular_s: list[float]
    """A sample of the flood's own times."""
    regular_per_s: float
    missing: int
    """Emergencies that did not arrive."""


def measure(load: FloodLoad, *, seconds: float) -> FloodTimes:
    """Measure one load: so many seconds without the flood, and as many with it."""
    spinning = 0 if load.slow else SPINNING_COUNT
    roles = [consume, *[supply] * (1 if load.together else 2), *[spin] * spinning]
    with company_of(roles, load, f"bench-{uuid.uuid4().hex}") as company:
        for worker in company:
            worker.answer()
        consumer, caller = company[:2]
        flooder = company[1 if load.together else 2]
        spinners = company[len(company) - spinning :]
        _call(caller, consumer, 20 * PAUSE_S)  # warms up
        calm, missing = _call(caller, consumer, seconds)
        for spinner in spinners:
            spinner.ask("spin")
        busy = _call(caller, consumer, seconds)[0].emergency_s if spinners else []
        for spinner in spinners:
            spinner.ask("rest")
        flooder.ask("flood")
        time.sleep(SETTLE_S)
        consumer.ask("times")
        flood, more_missing = _call(caller, consumer, seconds)
    return FloodTimes(
        load=load,
        calm_s=calm.emergency_s,
        busy_s=busy,
        flood_s=flood.emergency_s,
        regular_s=flood.regular_s,
        regular_per_s=flood.regular_count / seconds,
        missing=missing + more_missing,
    )


def _call(caller: WorkerProcess, consumer: WorkerProcess, seconds: float) -> tuple[Times, int]:
    """Have emergencies published; returns what the consumer saw, and how many it missed."""
    sent: int = caller.ask("emergencies", seconds)
    times: Times = consumer.ask("times")
    deadline_s = time.monotonic() + _PATIENCE_S
    while len(times.emergency_s) < sent and time.monotonic() < deadline_s:
        time.sleep(0.01)
        times.emergency_s += consumer.ask("times").emergency_s
    return times, sent - len(times.emergency_s)


def bars_of(found: Sequence[FloodTimes]) -> list[Bar]:
    """For each load, the median of the rounds' p99 under flood; and that no emergency is lost."""
    bars = []
    for load, rounds in _by_load(found).items():
        calm_s, flood_s = _each(rounds, "calm", 0.99), _each(rounds, "flood", 0.99)
        limit_s = max(TIMES_MAX * median(calm_s), ENOUGH_S) if calm_s else ENOUGH_S
        bars.append(
            Bar.over_rounds(
                f"flood p99, {load.name}",
                [time_s * 1e3 for time_s in flood_s],
                round(limit_s * 1e3, 1),
                at_least=False,
                unit="ms",
            )
        )
    missing = sum(one.missing for one in found)
    what = "emergencies that did not arrive"
    return [*bars, Bar(what=what, measured=missing, bar=0, at_least=False, unit="events")]


def _by_load(found: Sequence[FloodTimes]) -> dict[FloodLoad, list[FloodTimes]]:
    """The rounds of each load, in the order in which loads first appear."""
    rounds: dict[FloodLoad, list[FloodTimes]] = {}
    for one in found:
        rounds.setdefault(one.load, []).append(one)
    return rounds


def _each(rounds: Sequence[FloodTimes], column: str, share: float) -> list[float]:
    """This percentile in each round that has any times."""
    times = COLUMNS[column]
    return [percentile(times(one), share) for one in rounds if times(one)]


def table(found: Sequence[FloodTimes]) -> Table:
    """One row for each load: emergencies in three conditions, and the flood's own events."""

    def row(load: FloodLoad, rounds: Sequence[FloodTimes]) -> list[str]:
        calm_s, flood_s = _each(rounds, "calm", 0.99), _each(rounds, "flood", 0.99)
        return [
            load.name,
            *(_both(rounds, column) for column in COLUMNS),
            f"{median(flood_s) / median(calm_s):.1f}" if calm_s and flood_s else "-",
            f"{median(one.regular_per_s for one in rounds):,.0f}",
        ]

    return table_of(
        "From publish to handler, p50 / p99 in ms (medians of the rounds)",
        ["load"],
        [*COLUMNS, "x calm", "events/s"],
        [row(load, rounds) for load, rounds in _by_load(found).items()],
        caption="calm, busy cores, flood: emergencies; regular: the flood itself; x calm: of p99",
    )


def _both(rounds: Sequence[FloodTimes], column: str) -> str:
    if not (p50s_s := _each(rounds, column, 0.5)):
        return "-"
    return f"{_ms(median(p50s_s))} / {_ms(median(_each(rounds, column, 0.99)))}"


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:,.1f}" if time_s < 0.1 else f"{time_s * 1e3:,.0f}"


def latency_figure(found: Sequence[FloodTimes]) -> Figure | None:
    """For each load, the share of events that had arrived after so many milliseconds."""
    loads = _by_load(found)
    if not loads:
        return None
    rows = (len(loads) + 1) // 2
    figure = canvas(8, 3 * rows + 0.6)
    panels = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
    for axes, (load, rounds) in zip(panels.flat, loads.items(), strict=False):
        for column, label, colour, dashes in _LINES:
            times_ms = sorted(time_s * 1e3 for one in rounds for time_s in COLUMNS[column](one))
            shares = [100 * (at + 1) / len(times_ms) for at in range(len(times_ms))]
            axes.plot(times_ms, shares, dashes, color=colour, label=label)
        axes.axhline(99, color="#bbbbbb", linewidth=0.8)
        axes.set_title(load.name)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    for axes in panels[-1]:
        axes.set_xlabel("milliseconds from publish to handler")
    for axes in panels[:, 0]:
        axes.set_ylabel("% of the events")
    legend_below(figure, panels[0, 0], 2)
    return figure
