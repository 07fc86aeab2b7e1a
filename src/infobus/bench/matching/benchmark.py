"""`infobus bench match`: how fast events find their subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.table import Table

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.plots import LIGHT, OURS, THEIRS, legend_below, panel_row
from infobus.bench.common.rounds import OnStep
from infobus.bench.common.tables import number, table_of
from infobus.bench.matching import measure
from infobus.bench.matching.measure import MatchTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TARGETS = {
    # How many times as fast as the lambdas: one event at a time, and by batches.
    ("elvin", 10): (1.5, None),
    ("equal", 10_000): (60.0, 60.0),
    ("equal", 100_000): (240.0, 300.0),
    ("range", 10_000): (30.0, 75.0),
    ("range", 100_000): (100.0, 100.0),
    ("regex", 10_000): (40.0, 40.0),
    ("regex", 100_000): (100.0, 100.0),
}

_LINES: tuple[tuple[str, str, Callable[[MatchTimes], float]], ...] = (
    ("one event at a time", OURS, lambda one: 1e6 / one.single_us),
    ("by batches", LIGHT, lambda one: 1e6 / one.batch_us),
    ("a compiled lambda for each subscription", THEIRS, lambda one: 1e6 / one.naive_us),
)


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure each load at each number of subscriptions."""
    work = measure.plan(quick)
    turns, seconds = (3, 0.15) if quick else (5, 0.5)
    found: list[MatchTimes] = []
    for load, count in work:
        on_step(f"{load.name}, {count:,} subscriptions", len(found), len(work))
        found.append(measure.measure_apart(load, count, turns=turns, seconds=seconds))
    return Findings(
        name="match",
        tables=[table(found)],
        values={"found": found},
        bars=bars_of(found),
        drawings={"match-rates": lambda: rates_figure(found)},
    )


def bars_of(found: Sequence[MatchTimes]) -> list[Bar]:
    """Ratios to the lambdas; and what is promised about large numbers and changes."""
    by_work = {(one.load, one.subscriptions): one for one in found}
    bars = []
    for (load, count), (single, batch) in _TARGETS.items():
        one = by_work.get((load, count))
        what = f"{load}, {count:,} subscriptions"
        bars.append(Bar.over_rounds(f"{what}, to naive", one.ratios if one else [], single))
        if batch is not None:
            ratios = one.batch_ratios if one else []
            bars.append(Bar.over_rounds(f"{what}, by batch, to naive", ratios, batch))
    elvin, small, wide = map(by_work.get, (("elvin", 10), ("equal", 10_000), ("wide", 100_000)))
    changes_us = [one.change_us for one in found if one.subscriptions == 100_000]
    return [
        *bars,
        Bar(
            what="elvin, 10 subscriptions: millions of events in a second",
            measured=1 / elvin.single_us if elvin else None,
            bar=1.0,
            unit="M/s",
        ),
        Bar(
            what="10x the subscriptions, as many matches: the time per event",
            measured=wide.single_us / small.single_us if small and wide else None,
            bar=2.0,
            at_least=False,
        ),
        Bar(
            what="one change of 100,000",
            measured=max(changes_us, default=None),
            bar=200.0,
            at_least=False,
            unit="us",
        ),
    ]


def table(found: Sequence[MatchTimes]) -> Table:
    """One row for each load and number of subscriptions."""
    columns = "subscriptions,matches,single,batch,naive,x single,x batch,add,change,worst,B each"
    rows = [
        (
            one.load,
            f"{one.subscriptions:,}",
            f"{one.matches:,.1f}",
            f"{one.single_us:,.2f}",
            f"{one.batch_us:,.2f}",
            _short(one.naive_us),
            _short(median(one.ratios)),
            _short(median(one.batch_ratios)),
            f"{one.add_us:,.0f}",
            f"{one.change_us:,.0f}",
            f"{max(one.change_worst_us, one.after_worst_us):,.0f}",
            number(one.bytes_each, ",.0f"),
        )
        for one in found
    ]
    title = "Matching (medians, microseconds per event)"
    return table_of(title, ["load"], columns.split(","), rows)


def _short(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def rates_figure(found: Sequence[MatchTimes]) -> Figure | None:
    """Events per second, a panel for each load that was measured at two sizes or more."""
    loads = [
        [one for one in found if one.load == load] for load in dict.fromkeys(o.load for o in found)
    ]
    drawn = [points for points in loads if len(points) > 1]
    if not drawn:
        return None
    figure, row = panel_row(len(drawn))
    for axes, points in zip(row, drawn, strict=True):
        for label, colour, value in _LINES:
            counts = [one.subscriptions for one in points]
            axes.plot(counts, list(map(value, points)), marker=".", color=colour, label=label)
        axes.set_title(points[0].load)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("subscriptions")
    row[0].set_ylabel("Events per second")
    legend_below(figure, row[0], 3)
    return figure
