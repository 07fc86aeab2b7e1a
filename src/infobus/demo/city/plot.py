"""A plot of one run of the city: when each event arrived, and how long it took."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from infobus.bench.common.plots import save
from infobus.demo.city.model import City
from infobus.demo.city.screen import COLOURS


def write_plot(city: City, folder: Path) -> list[Path]:
    """Draw the latency of each class over time; returns the files."""
    return save({"city-latency": lambda: latency_figure(city)}, folder)


def latency_figure(city: City) -> Figure | None:
    """One point per arrival, and a line per limit."""
    if not city.arrivals:
        return None
    began_s = min(arrival.at - arrival.took for arrival in city.arrivals)
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, colour in COLOURS.items():
        points = [one for one in city.arrivals if one.name == name]
        axes.plot(
            [one.at - began_s for one in points],
            [max(1e-4, one.took) for one in points],
            ".",
            markersize=3,
            color=colour,
            label=name,
            rasterized=True,
        )
    limits = city.limits
    # Each label goes where no points are drawn.
    for name, limit_s, side in (
        ("emergency", limits.emergency_s, "right"),
        ("business", limits.business_s, "left"),
    ):
        axes.axhline(limit_s, color=COLOURS[name], linewidth=1, linestyle="--")
        axes.text(
            0.01 if side == "left" else 0.99,
            limit_s,
            f"{name}: at most {limit_s:.3g} s",
            transform=axes.get_yaxis_transform(),
            ha=side,
            va="bottom",
            color=COLOURS[name],
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("seconds since the start")
    axes.set_ylabel("seconds from publish to handler")
    figure.legend(loc="outside lower center", ncols=3, markerscale=4)
    return figure
