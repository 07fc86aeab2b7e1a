"""`infobus query`: ask the repository for objects."""

from __future__ import annotations

import contextlib
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
from infobus.cli.lines import printable, short, to_json
from infobus.cli.options import BusName, Home, join, type_on_bus

_CELL_LENGTH_MAX = 60
_WHOLE_LENGTH_MAX, _SHARE_MIN = 24, 12
_STYLES = {"_type": "magenta", "_properties": "yellow"}


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
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote", metavar="SUBJECT", help="Ask a query server on the bus, not a database."
        ),
    ] = None,
    bus: BusName = None,
    home: Home = None,
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
    rows: Sequence[dict[str, Any]]
    if remote is not None:
        with join(bus, home, None, None) as node:
            names = [name.strip() for name in order.split(",")] if order else []
            rows = list(node.service(remote)["rows"](type_name, where or "", names, limit))
            with contextlib.suppress(UsageError):  # for the columns, if anyone knows the type
                type_on_bus(node, type_name)
    else:
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
    columns = {name: [_cell(row.get(name)) for row in rows] for name in ("_type", *names)}
    if any(row["_properties"] for row in rows):
        columns["_properties"] = [_cell(row["_properties"] or None) for row in rows]
    console = Console(highlight=False)
    widths = _widths({name: _width(name, cells) for name, cells in columns.items()}, console.width)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name, width in widths.items():
        title, style = printable(name.removeprefix("_")), _STYLES.get(name, "")
        table.add_column(title, style=style, width=width, no_wrap=True, overflow="ellipsis")
    for cells in zip(*(columns[name] for name in widths), strict=True):
        table.add_row(*cells)
    console.print(table)
    told = f"{len(rows):,} {'object' if len(rows) == 1 else 'objects'}"
    if left_out := len(columns) - len(widths):
        told += f"; {left_out} more columns with --json or --csv"
    console.print(Text(told, "dim"))


def _width(name: str, cells: Sequence[Text]) -> int:
    return max(len(name), *(len(cell) for cell in cells)) if cells else len(name)


def _widths(wanted: dict[str, int], room: int) -> dict[str, int]:
    """How wide columns are: short ones as they are, the others share the rest.

    From the end, those are left out for which there is no room.

    >>> _widths({"id": 4, "date": 19, "body": 500, "title": 80}, 80)
    {'id': 4, 'date': 19, 'body': 22, 'title': 22}
    """
    widths = dict(wanted)
    while widths:
        long = [name for name, width in widths.items() if width > _WHOLE_LENGTH_MAX]
        left = room - 1 - sum(3 + widths[name] for name in widths if name not in long)
        share = left // len(long) - 3 if long else 0
        if left >= 0 and (not long or share >= _SHARE_MIN):
            return widths | {name: min(share, widths[name]) for name in long}
        widths.popitem()
    return widths


def _cell(value: Any) -> Text:
    if value is None:
        return Text("-", "dim")
    if isinstance(value, datetime):
        return Text(f"{value:%Y-%m-%d %H:%M:%S}")
    text = printable(value.replace("\n", " ")) if isinstance(value, str) else short(value)
    return Text(text[:_CELL_LENGTH_MAX])
