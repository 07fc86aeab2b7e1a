"""What came out of `infobus bench match`: tables, JSON and pictures."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec
from rich.table import Table

from infobus.bench.matching import Found
from infobus.bench.model import Bar


def found_table(found: list[Found]) -> Table:
    """One row for each load and number of subscriptions."""
    table = Table(title="Matching (medians, microseconds per event)")
    table.add_column("load")
    for column in (
        "subscriptions",
        "matches",
        "single",
        "batch",
        "naive",
        "x single",
        "x batch",
        "add",
        "change",
        "worst",
        "B each",
    ):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            one.load,
            f"{one.subscriptions:,}",
            f"{one.matches:,.1f}",
            f"{one.single_us:,.2f}",
            f"{one.batch_us:,.2f}",
            f"{one.naive_us:,.1f}",
            f"{median(one.ratios):,.1f}",
            f"{median(one.batch_ratios):,.1f}",
            f"{one.add_us:,.0f}",
            f"{one.change_us:,.0f}",
            f"{max(one.change_worst_us, one.after_worst_us):,.0f}",
            "-" if one.bytes_each is None else f"{one.bytes_each:,.0f}",
        )
    return table


def write_json(found: list[Found], bars: list[Bar], machine: dict[str, str], folder: Path) -> Path:
    """Everything, single turns included, in `folder`/match.json."""
    plain = msgspec.to_builtins({"machine": machine, "found": found, "bars": bars})
    path = folder / "match.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n")
    return path
