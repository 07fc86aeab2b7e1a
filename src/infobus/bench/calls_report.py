"""What came out of `infobus bench call`: a table, JSON, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich import box
from rich.table import Table

from infobus.bench.calls import Found, Report


def found_table(found: Sequence[Found]) -> Table:
    """One row for each engine, first one call at a time, then many."""
    table = Table(title="Calls (medians of all rounds)", box=box.SIMPLE, padding=0)
    table.add_column("at a time", justify="right")
    table.add_column("engine", no_wrap=True)
    for column in ("p50 us", "p99 us", "calls per s"):
        table.add_column(column, justify="right", no_wrap=True)
    for at_a_time in sorted({one.at_a_time for one in found}):
        for one in (one for one in found if one.at_a_time == at_a_time):
            table.add_row(
                f"{at_a_time} ",
                one.engine,
                f"{median(one.p50s_s) * 1e6:,.0f}",
                f"{median(one.p99s_s) * 1e6:,.0f}",
                f"{median(one.rates):,.0f}",
            )
        table.add_section()
    return table


def write_json(report: Report, folder: Path) -> Path:
    """Everything, single rounds included, in `folder`/calls.json."""
    path = folder / "calls.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path


def write_plots(found: Sequence[Found], folder: Path) -> list[Path]:
    """Draw the round trips of one call at a time; returns the files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    from infobus.bench.plots import save

    def figure() -> Figure | None:
        single = [one for one in found if one.at_a_time == 1]
        drawn = Figure(figsize=(6.4, 0.5 * len(single) + 1.4), layout="constrained")
        axes = drawn.subplots()
        for place, one in enumerate(reversed(single)):
            p50s_us = [value * 1e6 for value in one.p50s_s]
            colour = "#0b6e99" if one.engine == "infobus" else "#9aa5ad"
            axes.barh(place, median(p50s_us), color=colour)
            axes.plot(p50s_us, [place] * len(p50s_us), "k|", markersize=7)
        axes.set_yticks(range(len(single)), [one.engine for one in reversed(single)])
        axes.set_xlabel("Round trip of one call at a time, p50 of each round (microseconds)")
        return drawn if single else None

    return save({"calls": figure}, folder)
