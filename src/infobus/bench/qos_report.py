"""What came out of `infobus bench qos`: a table and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich import box
from rich.table import Table

from infobus.bench.qos import Found, Report, p99_s, rounds_of
from infobus.bench.statistics import percentile

Times = Callable[[Found], list[float]]

COLUMNS: dict[str, Times] = {
    "calm": lambda one: one.calm_s,
    "busy cores": lambda one: one.busy_s,
    "flood": lambda one: one.flood_s,
    "regular": lambda one: one.regular_s,
}


def found_table(found: Sequence[Found]) -> Table:
    """One row for each load: emergencies in three conditions, and the flood's own events."""
    table = Table(
        title="From publish to handler, p50 / p99 in ms (medians of the rounds)",
        caption="calm, busy cores, flood: emergencies; regular: the flood itself; x calm: of p99",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("load")
    for column in (*COLUMNS, "x calm", "events/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for load in dict.fromkeys(one.load for one in found):
        rounds = rounds_of(found, load)
        calm_s, flood_s = p99_s(rounds, COLUMNS["calm"]), p99_s(rounds, COLUMNS["flood"])
        table.add_row(
            load.name,
            *(_both(rounds, times) for times in COLUMNS.values()),
            f"{median(flood_s) / median(calm_s):.1f}" if calm_s and flood_s else "-",
            f"{median(one.regular_per_s for one in rounds):,.0f}",
        )
    return table


def _both(rounds: Sequence[Found], times: Times) -> str:
    p50_s = [percentile(times(one), 0.5) for one in rounds if times(one)]
    if not p50_s:
        return "-"
    return f"{_ms(median(p50_s))} / {_ms(median(p99_s(rounds, times)))}"


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:,.1f}" if time_s < 0.1 else f"{time_s * 1e3:,.0f}"


def write_json(report: Report, folder: Path) -> Path:
    """Everything, single times included, in `folder`/qos.json."""
    path = folder / "qos.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path
