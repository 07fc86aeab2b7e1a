"""`infobus query`: ask the repository for objects."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infobus import UsageError
from infobus.cli.capture import DEFAULT_DB, Db
from infobus.cli.rendering import printable, short, to_json

_CELL_LENGTH_MAX = 60


def command(
    type_name: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="A type; its subtypes are found, too. Or [b]dict[/b]."),
    ],
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="EXPR",
            help="Only what this is true of, such as '\"oil\" in topics && size(body) > 100'.",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="NAMES", help="Such as place,-date ([b]-[/b]: downwards)."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most so many.")] = None,
    db: Db = DEFAULT_DB,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="For spreadsheets.")] = False,
) -> None:
    """Show the stored objects of a type and of its subtypes.

    \b
    infobus query Story --where '"oil" in topics' --order=-published --limit 10
    infobus query DataObject --json

    The table shows the attributes of TYPE; --json and --csv also those of subtypes.
    """
    from infobus.objects import find_type
    from infobus.repository import Repository

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one of them")
    _check_exists(db)
    with Repository(db) as repository:
        rows = repository.query(type_name, where, order, limit, rows=True)
    if as_json:
        for row in rows:
            print(to_json(row))
        return
    known = find_type(type_name)
    names = list(known.attributes.names) if known is not None else []
    if as_csv:
        _write_csv(rows, names)
    else:
        _print_table(rows, names)


def _check_exists(db: str) -> None:
    """A question must not make an empty database."""
    kind, _, path = db.partition(":///")
    if kind.startswith("sqlite") and path and not Path(path.partition("?")[0]).exists():
        raise UsageError(f"there is no database {path}: `infobus capture` makes one, or give --db")


def _write_csv(rows: Sequence[dict[str, Any]], names: list[str]) -> None:
    found = dict.fromkeys(["_id", "_type", "_subject", "_time", *names])
    for row in rows:
        found |= dict.fromkeys(row)
    out = csv.writer(sys.stdout)
    out.writerow(found)
    for row in rows:
        out.writerow([_plain(row.get(name)) for name in found])


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if isinstance(value, datetime) else to_json(value)


def _print_table(rows: Sequence[dict[str, Any]], names: list[str]) -> None:
    if not names:
        names = [name for name in dict.fromkeys(n for row in rows for n in row) if name[0] != "_"]
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("type", style="magenta", no_wrap=True)
    for name in names:
        table.add_column(printable(name), no_wrap=True, overflow="ellipsis")
    has_properties = any(row["_properties"] for row in rows)
    if has_properties:
        table.add_column("properties", style="yellow", no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = [Text(printable(row["_type"])), *(_cell(row.get(name)) for name in names)]
        if has_properties:
            cells.append(_cell(row["_properties"] or None))
        table.add_row(*cells)
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(f"{len(rows):,} objects", "dim"))


def _cell(value: Any) -> Text:
    if value is None:
        return Text("-", "dim")
    if isinstance(value, datetime):
        return Text(f"{value:%Y-%m-%d %H:%M:%S}")
    text = printable(value.replace("\n", " ")) if isinstance(value, str) else short(value)
    return Text(text[:_CELL_LENGTH_MAX])
