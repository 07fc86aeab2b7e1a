"""`infobus query`: find stored objects in a repository."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from infobus import UsageError
from infobus.cli.lines import short, to_json
from infobus.cli.options import DEFAULT_DB, AsJson, Database, Where, WhichBus, grouped
from infobus.cli.terminal import console, write_json
from infobus.cli.types import type_on_bus
from infobus.printable import printable, printable_cell

if TYPE_CHECKING:
    from infobus.repository import Repository

_CELL_LENGTH_MAX = 60
_WHOLE_LENGTH_MAX, _SHARE_MIN = 24, 12
_STYLES = {"_type": "magenta", "_properties": "yellow"}


@dataclass(frozen=True)
class Question:
    """Which stored objects to find, and in which order."""

    where: Where = None
    order: Annotated[
        str | None,
        typer.Option(
            "--order", metavar="NAMES", help="Such as place,-date; [b]-[/b] means descending."
        ),
    ] = None
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most this many.")] = None


@grouped
def command(
    which: WhichBus,
    question: Question,
    type_name: Annotated[
        str, typer.Argument(metavar="TYPE", help="A type, with its subtypes; or [b]dict[/b].")
    ],
    db: Database = DEFAULT_DB,
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote",
            metavar="SUBJECT",
            help="Ask a query server on the bus instead of a database.",
        ),
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
) -> None:
    """Show the stored objects of a type and of its subtypes.

    \b
    infobus query Story --where '"oil" in topics' --order=-published --limit 10
    infobus query DataObject --json

    The table shows the attributes of TYPE. --json and --csv also show those of its subtypes.
    """
    from infobus.objects import find_type

    if as_json and as_csv:
        raise UsageError("--json and --csv: choose one of them")
    if remote is not None:
        found = _ask_server(which, remote, type_name, question)
    else:
        found = _ask_database(db, type_name, question)
    if as_json:
        for row in found:
            write_json(row)
        return
    rows = list(found)
    known = find_type(type_name)
    names = list(known.attributes.names) if known is not None else []
    if as_csv:
        _write_csv(rows, names)
    else:
        _print_table(rows, names)


def _ask_server(
    which: WhichBus, remote: str, type_name: str, asked: Question
) -> Iterator[dict[str, Any]]:
    with which.join() as node:
        names = [name.strip() for name in asked.order.split(",")] if asked.order else []
        ask = node.service(remote)["rows"]
        yield from ask(type_name, asked.where or "", names, asked.limit)
        with contextlib.suppress(UsageError):  # learn its columns, if anyone knows the type
            type_on_bus(node, type_name)


def _ask_database(db: str, type_name: str, asked: Question) -> Iterator[dict[str, Any]]:
    with open_repository(db) as repository:
        yield from repository.stream(type_name, asked.where, asked.order, asked.limit, rows=True)


def open_repository(db: str) -> Repository:
    """Open a database that is there: looking at one must not create it."""
    from infobus.repository import Repository

    kind, _, path = db.partition(":///")
    if kind.startswith("sqlite") and path and not Path(path.partition("?")[0]).exists():
        raise UsageError(f"there is no database {path}: `infobus capture` makes one, or give --db")
    return Repository(db)


def _write_csv(rows: Sequence[dict[str, Any]], names: list[str]) -> None:
    found = dict.fromkeys(["_id", "_type", "_subject", "_time", *names])
    for row in rows:
        found |= dict.fromkeys(row)
    out = csv.writer(sys.stdout)
    out.writerow(map(printable_cell, found))
    for row in rows:
        out.writerow([_plain(row.get(name)) for name in found])


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    return printable_cell(value if isinstance(value, str) else to_json(value))


def _print_table(rows: Sequence[dict[str, Any]], names: list[str]) -> None:
    if not names:
        names = [name for name in dict.fromkeys(n for row in rows for n in row) if name[0] != "_"]
    columns = {name: [_cell(row.get(name)) for row in rows] for name in ("_type", *names)}
    if any(row["_properties"] for row in rows):
        columns["_properties"] = [_cell(row["_properties"] or None) for row in rows]
    out = console()
    widths = _widths({name: _width(name, cells) for name, cells in columns.items()}, out.width)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name, width in widths.items():
        title, style = printable(name.removeprefix("_")), _STYLES.get(name, "")
        table.add_column(title, style=style, width=width, no_wrap=True, overflow="ellipsis")
    for cells in zip(*(columns[name] for name in widths), strict=True):
        table.add_row(*cells)
    out.print(table)
    told = f"{len(rows):,} {'object' if len(rows) == 1 else 'objects'}"
    if left_out := len(columns) - len(widths):
        told += f"; {left_out} more columns with --json or --csv"
    out.print(Text(told, "dim"))


def _width(name: str, cells: Sequence[Text]) -> int:
    return max(len(name), *(len(cell) for cell in cells)) if cells else len(name)


def _widths(wanted: dict[str, int], room: int) -> dict[str, int]:
    """The widths of the columns: short ones keep theirs, and the others share the rest.

    If there is no room for all, the last columns are left out.

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
