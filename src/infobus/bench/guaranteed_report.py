"""What came out of `infobus bench guaranteed`: a table and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich import box
from rich.table import Table

from infobus.bench.guaranteed import ALWAYS, DEFAULT, DISK, Found, Report, ratios
from infobus.bench.guaranteed_loads import LOADS, ONE


def found_table(found: Sequence[Found]) -> Table:
    """One row for each engine and load, the engines of one load together."""
    table = Table(
        title="Guaranteed events kept (medians)",
        caption="/ disk: single syncs; / always, / default: JetStream's sync interval",
        box=box.SIMPLE,
        padding=0,
    )
    table.add_column("events", no_wrap=True)
    table.add_column("engine", no_wrap=True)
    for column in ("per s", "p99 ms", "/ disk", "/ always", "/ default"):
        table.add_column(column, justify="right", no_wrap=True)
    for load in LOADS:
        for one in (one for one in found if one.load == load):
            table.add_row(
                load,
                one.engine,
                f"{one.rate:,.0f}",
                f"{one.p99_s * 1e3:,.1f}",
                _times(found, one, (DISK, ONE)),
                _times(found, one, (ALWAYS, load)),
                _times(found, one, (DEFAULT, load)),
            )
        table.add_section()
    return table


def _times(found: Sequence[Found], one: Found, under: tuple[str, str]) -> str:
    times = ratios(found, (one.engine, one.load), under)
    return f"{median(times):,.2f}" if times and (one.engine, one.load) != under else ""


def write_json(report: Report, folder: Path) -> Path:
    """Everything, single rounds included, in `folder`/guaranteed.json."""
    path = folder / "guaranteed.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path
