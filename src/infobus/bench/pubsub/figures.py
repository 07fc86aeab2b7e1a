"""The paper's figures 5 to 8 in our form, and the bars as one plot.

A figure is drawn only if its scenarios were measured at two sizes or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infobus.bench.common.bar import Bar
from infobus.bench.common.engines import INFOBUS, INFOBUS_BATCHED, NATS, ZENOH, ZMQ
from infobus.bench.common.plots import LIGHT, OURS, THEIRS, Drawing, canvas, legend_below, panel_row
from infobus.bench.pubsub.scenario import MANY, BenchRun, RunValue, Scenario, middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    INFOBUS: OURS,
    INFOBUS_BATCHED: LIGHT,
    ZENOH: THEIRS,
    NATS: "#4f8a3c",
    ZMQ: "#8d6aa8",
}


def drawings_of(runs: Sequence[BenchRun], bars: Sequence[Bar]) -> dict[str, Drawing]:
    """The paper's figures and the bars, by file name."""
    events, megabytes = "Events per second", "Megabytes per second"
    return {
        "figure5-latency": lambda: latency_figure(runs),
        "figure6-events": lambda: _fan_out_figure(
            runs, f"{events} to each consumer", lambda run: run.events_per_s
        ),
        "figure7-bytes": lambda: _fan_out_figure(
            runs, f"{megabytes} to each consumer", lambda run: run.bytes_per_s / 1e6
        ),
        "figure8-subjects": lambda: subjects_figure(runs),
        "bars": lambda: bars_figure(bars),
    }


def latency_figure(runs: Sequence[BenchRun]) -> Figure | None:
    """Figure 5: round trip against size, p50 as a line and p99 dashed."""
    return _panels(
        runs,
        [Scenario(engine="", kind="round trip", consumers=count) for count in (1, 14)],
        "Round trip in milliseconds (p99 dashed)",
        [(lambda run: run.p50_s * 1e3, "-"), (lambda run: run.p99_s * 1e3, "--")],
    )


def _fan_out_figure(runs: Sequence[BenchRun], title: str, value: RunValue) -> Figure | None:
    """Figures 6 and 7: throughput against size, one panel for each number of consumers."""
    panels = [Scenario(engine="", consumers=count) for count in (1, 4, 14)]
    return _panels(runs, panels, title, [(value, "-")])


def subjects_figure(runs: Sequence[BenchRun]) -> Figure | None:
    """Figure 8: the effect of the number of subjects, fourteen consumers."""
    panels = [Scenario(engine="", consumers=14, subjects=count) for count in (1, MANY)]
    return _panels(
        runs,
        panels,
        "Megabytes per second to each consumer",
        [(lambda run: run.bytes_per_s / 1e6, "-")],
    )


def bars_figure(bars: Sequence[Bar]) -> Figure | None:
    """Each ratio and its bar: a dot at the measured value, a tick at the bar, a line between."""
    ratios = [bar for bar in bars if bar.unit == "x" and bar.measured is not None]
    if not ratios:
        return None
    figure = canvas(7, 0.45 * len(ratios) + 1)
    axes = figure.subplots()
    for row, bar in enumerate(reversed(ratios)):
        assert bar.measured is not None
        colour = "#2c7a3f" if bar.ok else "#b3261e"
        axes.plot([bar.bar, bar.measured], [row, row], color=colour, linewidth=2)
        axes.plot(bar.bar, row, marker="|", markersize=14, color="#444444")
        axes.plot(bar.measured, row, marker="o", color=colour)
    axes.set_yticks(
        range(len(ratios)),
        [
            f"{bar.what} ({'at least' if bar.at_least else 'at most'} {bar.bar:g})"
            for bar in reversed(ratios)
        ],
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("ratio measured (dot) and bar (tick)")
    return figure


def _panels(
    runs: Sequence[BenchRun],
    panels: Sequence[Scenario],
    title: str,
    values: list[tuple[RunValue, str]],
) -> Figure | None:
    """One panel for each scenario, a line for each engine, the same scale in all of them."""
    drawn = [panel for panel in panels if len(_sizes(runs, panel)) > 1]
    if not drawn:
        return None
    figure, row = panel_row(len(drawn))
    for axes, panel in zip(row, drawn, strict=True):
        for value, dashes in values:
            _lines(axes, runs, panel, value, dashes)
        axes.set_title(_panel_title(panel))
        axes.set_xlabel("bytes of the object")
    row[0].set_ylabel(title)
    legend_below(figure, row[0], 5)
    return figure


def _lines(
    axes: Axes, runs: Sequence[BenchRun], panel: Scenario, value: RunValue, dashes: str
) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for engine, colour in _COLOURS.items():
        points = []
        for size in _sizes(runs, panel):
            scenario = _of(panel, engine, size)
            across = middle(runs, scenario, lambda run: run.payload_bytes)
            up = middle(runs, scenario, value)
            if across and up:
                points.append((across, up))
        if points:
            label = engine if dashes == "-" else None
            axes.plot(*zip(*points, strict=True), dashes, marker=".", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(_size_label)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.9g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _size_label(size: float, position: float) -> str:
    return f"{size:g}" if size < 1024 else f"{size / 1024:g} Ki"


def _sizes(runs: Sequence[BenchRun], panel: Scenario) -> list[int]:
    """The sizes at which any engine did this panel's work."""
    found = {
        run.scenario.size
        for run in runs
        if run.scenario == _of(panel, run.scenario.engine, run.scenario.size)
    }
    return sorted(found)


def _of(panel: Scenario, engine: str, size: int) -> Scenario:
    return Scenario(
        engine=engine,
        kind=panel.kind,
        size=size,
        consumers=panel.consumers,
        subjects=panel.subjects,
    )


def _panel_title(panel: Scenario) -> str:
    plural = "" if panel.consumers == 1 else "s"
    title = f"{panel.consumers} consumer{plural}"
    return title if panel.subjects == 1 else f"{title}, {panel.subjects:,} subjects"
