"""The paper's figures 5 to 8 in our form, and the bars as one picture; each as PNG and SVG.

A figure is drawn only if its scenarios were measured at two sizes or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from infobus.bench.model import (
    INFOBUS,
    INFOBUS_BATCHED,
    MANY,
    NATS,
    ZENOH,
    ZMQ,
    Bar,
    Report,
    Run,
    Scenario,
)
from infobus.bench.statistics import middle

_COLOURS = {
    INFOBUS: "#0b6e99",
    INFOBUS_BATCHED: "#58b4d1",
    ZENOH: "#d17b0f",
    NATS: "#4f8a3c",
    ZMQ: "#8d6aa8",
}
_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    # The same numbers give the same file, so that a repository sees no change where none is.
    "svg.hashsalt": "infobus",
}

Value = Callable[[Run], float]


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Draw what there is to draw; returns the files."""
    runs = report.runs
    events, megabytes = "Events per second", "Megabytes per second"
    return save(
        {
            "figure5-latency": lambda: latency_figure(runs),
            "figure6-events": lambda: _fan_out_figure(
                runs, f"{events} to each consumer", lambda run: run.events_per_s
            ),
            "figure7-bytes": lambda: _fan_out_figure(
                runs, f"{megabytes} to each consumer", lambda run: run.bytes_per_s / 1e6
            ),
            "figure8-subjects": lambda: subjects_figure(runs),
            "bars": lambda: bars_figure(report.bars),
        },
        folder,
    )


def save(drawings: Mapping[str, Callable[[], Figure | None]], folder: Path) -> list[Path]:
    """Draw each picture that can be drawn, and write it as PNG and SVG; returns the files."""
    paths = []
    with rc_context(_STYLE):
        for name, draw in drawings.items():
            figure = draw()
            for ending in ("png", "svg") if figure else ():
                paths.append(folder / f"{name}.{ending}")
                metadata = {"Date": None} if ending == "svg" else None
                figure.savefig(paths[-1], dpi=150, metadata=metadata)  # type: ignore[union-attr]
    return paths


def latency_figure(runs: Sequence[Run]) -> Figure | None:
    """Figure 5: round trip against size, p50 drawn through and p99 dashed."""
    return _panels(
        runs,
        [Scenario(engine="", kind="round trip", consumers=count) for count in (1, 14)],
        "Round trip in milliseconds (p99 dashed)",
        [(lambda run: run.p50_s * 1e3, "-"), (lambda run: run.p99_s * 1e3, "--")],
    )


def _fan_out_figure(runs: Sequence[Run], title: str, value: Value) -> Figure | None:
    """Figures 6 and 7: throughput against size, one panel for each number of consumers."""
    panels = [Scenario(engine="", consumers=count) for count in (1, 4, 14)]
    return _panels(runs, panels, title, [(value, "-")])


def subjects_figure(runs: Sequence[Run]) -> Figure | None:
    """Figure 8: the effect of the number of subjects, fourteen consumers."""
    panels = [Scenario(engine="", consumers=14, subjects=count) for count in (1, MANY)]
    return _panels(
        runs,
        panels,
        "Megabytes per second to each consumer",
        [(lambda run: run.bytes_per_s / 1e6, "-")],
    )


def bars_figure(bars: Sequence[Bar]) -> Figure | None:
    """Each ratio beside its bar: a rule from 1, a dot at what was measured, a tick at the bar."""
    ratios = [bar for bar in bars if bar.unit == "x" and bar.measured is not None]
    if not ratios:
        return None
    figure = Figure(figsize=(7, 0.45 * len(ratios) + 1), layout="constrained")
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
    runs: Sequence[Run], panels: Sequence[Scenario], title: str, values: list[tuple[Value, str]]
) -> Figure | None:
    """One panel for each scenario, a line for each engine, the same scale in all of them."""
    drawn = [panel for panel in panels if len(_sizes(runs, panel)) > 1]
    if not drawn:
        return None
    figure = Figure(figsize=(3.3 * len(drawn) + 0.6, 3.8), layout="constrained")
    row = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    for axes, panel in zip(row, drawn, strict=True):
        for value, dashes in values:
            _lines(axes, runs, panel, value, dashes)
        axes.set_title(_panel_title(panel))
        axes.set_xlabel("bytes of the object")
    row[0].set_ylabel(title)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _lines(axes: Axes, runs: Sequence[Run], panel: Scenario, value: Value, dashes: str) -> None:
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


def _sizes(runs: Sequence[Run], panel: Scenario) -> list[int]:
    """The sizes at which this panel's work was measured by anyone."""
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
