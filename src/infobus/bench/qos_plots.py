"""The latency of each class as a picture: what share of the events was there within which time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from infobus.bench.plots import save
from infobus.bench.qos import Found, rounds_of
from infobus.bench.qos_report import COLUMNS

_LINES = (
    ("calm", "emergency, calm bus", "#8fbf9f", "-"),
    ("busy cores", "emergency, calm bus, busy cores", "#8d6aa8", ":"),
    ("flood", "emergency, under the flood", "#b3261e", "-"),
    ("regular", "regular, the flood itself", "#0b6e99", "--"),
)


def write_plots(found: Sequence[Found], folder: Path) -> list[Path]:
    """Draw what there is to draw; returns the files."""
    return save({"qos-latency": lambda: latency_figure(found)}, folder)


def latency_figure(found: Sequence[Found]) -> Figure | None:
    """For each load, the share of events that had arrived after so many milliseconds."""
    loads = list(dict.fromkeys(one.load for one in found))
    if not loads:
        return None
    rows = (len(loads) + 1) // 2
    figure = Figure(figsize=(8, 3 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
    for axes, load in zip(panels.flat, loads, strict=False):
        for column, label, colour, dashes in _LINES:
            rounds = rounds_of(found, load)
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
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
