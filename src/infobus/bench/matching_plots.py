"""Pictures of matching: events per second and memory against the number of subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from infobus.bench.matching import Found
from infobus.bench.plots import save

_LINES: tuple[tuple[str, str, Callable[[Found], float]], ...] = (
    ("one event at a time", "#0b6e99", lambda one: 1e6 / one.single_us),
    ("by batches", "#58b4d1", lambda one: 1e6 / one.batch_us),
    ("a compiled lambda for each subscription", "#d17b0f", lambda one: 1e6 / one.naive_us),
)


def write_plots(found: Sequence[Found], folder: Path) -> list[Path]:
    """Draw what there is to draw; returns the files."""
    return save({"match-rates": lambda: rates_figure(found)}, folder)


def rates_figure(found: Sequence[Found]) -> Figure | None:
    """Events per second, a panel for each load that was measured at two sizes or more."""
    loads = [
        [one for one in found if one.load == load] for load in dict.fromkeys(o.load for o in found)
    ]
    drawn = [points for points in loads if len(points) > 1]
    if not drawn:
        return None
    figure = Figure(figsize=(3.3 * len(drawn) + 0.6, 3.8), layout="constrained")
    row = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    for axes, points in zip(row, drawn, strict=True):
        for label, colour, value in _LINES:
            counts = [one.subscriptions for one in points]
            axes.plot(counts, list(map(value, points)), marker=".", color=colour, label=label)
        axes.set_title(points[0].load)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("subscriptions")
    row[0].set_ylabel("Events per second")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
