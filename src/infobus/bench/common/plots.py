"""Plots in one style, each written as PNG and SVG.

matplotlib is imported only when something is drawn, so benchmarks run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawing = Callable[[], "Figure | None"]
"""Draws a plot; returns None if there is nothing to draw."""

OURS, LIGHT, THEIRS, GREY = "#0b6e99", "#58b4d1", "#d17b0f", "#9aa5ad"

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


def save(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Draw each plot that has something to show, and write it; returns the files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    if not drawings:
        return []
    from matplotlib import rc_context

    paths = []
    with rc_context(_STYLE):
        for name, draw in drawings.items():
            figure = draw()
            for ending in ("png", "svg") if figure else ():
                paths.append(folder / f"{name}.{ending}")
                metadata = {"Date": None} if ending == "svg" else None
                figure.savefig(paths[-1], dpi=150, metadata=metadata)  # type: ignore[union-attr]
    return paths


def canvas(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panel_row(count: int) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels in a row, all with the same vertical scale."""
    figure = canvas(3.3 * count + 0.6, 3.8)
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def legend_below(figure: Figure, panel: Axes, columns: int) -> None:
    """Put the legend of one panel below the whole figure."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def rounds_figure(
    rows: Sequence[tuple[str, bool, Sequence[float]]], label: str, row_height: float
) -> Figure | None:
    """A bar for each row (its name, whether it is ours, its rounds) with a tick for each round."""
    if not rows:
        return None
    figure = canvas(6.4, row_height * len(rows) + 1.4)
    axes = figure.subplots()
    for place, (_, is_ours, values) in enumerate(reversed(rows)):
        axes.barh(place, median(values), color=OURS if is_ours else GREY)
        axes.plot(values, [place] * len(values), "k|", markersize=7)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in reversed(rows)])
    axes.set_xlabel(label)
    return figure
