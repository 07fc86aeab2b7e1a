"""The news monitor on screen: a list of headlines, and one object in full."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rich import box
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from infobus import type_of
from infobus.demo.floor.board import Board, BoardEntry, text_of

WIDE = 132  # from this width, list and story are side by side
KEYS = " up/down select · f follow the news · q end"


class ViewColumn(NamedTuple):
    """One column of a view: a title, a named attribute, and how to show it."""

    title: str
    attribute: str
    layout: str = "{}"
    width: int | None = None


HEADLINES = (ViewColumn("time", "published", "{:%H:%M}", 5), ViewColumn("headline", "headline"))


def draw(board: Board, width: int, height: int) -> Layout:
    """The whole screen."""
    is_wide = width >= WIDE
    rows = height - 4
    # A sample story fits into 14 rows; on a lower screen, the list gives way.
    list_rows = rows if is_wide else max(4, rows * 2 // 5, rows - 14)
    middle = Layout(name="middle")
    parts = (
        Layout(_headlines(board, list_rows - 3), size=None if is_wide else list_rows, ratio=3),
        Layout(_story(board.entries.get(board.selected or "")), ratio=2),
    )
    (middle.split_row if is_wide else middle.split_column)(*parts)
    screen = Layout()
    screen.split_column(Layout(_caption(board), size=3), middle, Layout(_foot(board), size=1))
    return screen


def _foot(board: Board) -> Text:
    text = Text(KEYS, "dim", no_wrap=True, overflow="ellipsis")
    return text.append(f" · pipeline {board.pipeline}", "cyan") if board.pipeline else text


def _caption(board: Board) -> Panel:
    status = (
        f"{board.programs_count} programs on the bus · {len(board.entries)} stories of "
        f"{len(board.types_seen)} types · {board.property_count} properties"
    )
    text = Text(board.caption, "bold yellow", no_wrap=True, overflow="ellipsis")
    title = Text("The newsroom" if board.pipeline else "The trading floor", "bold")
    return Panel(text, title=title, title_align="left", subtitle=Text(status, "dim"), box=box.HEAVY)


def _headlines(board: Board, rows: int) -> Panel:
    table = Table(box=None, expand=True, pad_edge=False, show_header=True, header_style="dim")
    for column in HEADLINES:
        ratio = None if column.width else 1
        table.add_column(
            column.title, no_wrap=True, overflow="ellipsis", width=column.width, ratio=ratio
        )
    table.add_column("type", no_wrap=True, style="magenta")
    table.add_column("properties", no_wrap=True, overflow="ellipsis", width=16, style="yellow")
    for entry in _window(board, rows):
        style = "bold on grey30" if entry.id == board.selected else ""
        table.add_row(*_cells(entry), style=style)
    return Panel(table, title="headlines", title_align="left", border_style="blue")


def _window(board: Board, rows: int) -> list[BoardEntry]:
    """The newest entries; after a selection by hand, the entries down to that one."""
    newest_first = list(reversed(board.entries.values()))
    at = next((i for i, entry in enumerate(newest_first) if entry.id == board.selected), 0)
    start = 0 if board.is_following else max(0, at - rows + 1)
    return newest_first[start : start + rows]


def _cells(entry: BoardEntry) -> list[Text]:
    cells = [
        Text(text_of(getattr(entry.obj, column.attribute, ""), column.layout))
        for column in HEADLINES
    ]
    properties = "; ".join(text_of(value) for value in entry.properties.values())
    return [*cells, Text(type_of(entry.obj).name), Text(properties)]


def _story(entry: BoardEntry | None) -> Panel:
    """An object of any type in full: its properties first, then all attributes."""
    table = Table(box=None, expand=True, pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(ratio=1)
    if entry is None:
        return Panel(table, title="nothing selected", title_align="left", border_style="blue")
    for name, value in entry.properties.items():
        table.add_row(
            Text(name, "bold yellow"), Text(f"{text_of(value)}  (property)", "bold yellow")
        )
    known = type_of(entry.obj)
    for attribute in known.attributes:
        value = attribute.get(entry.obj)
        layout = "{:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else "{}"
        table.add_row(attribute.name, Text(text_of(value, layout)))
    above = "".join(f" < {supertype.name}" for supertype in known.supertypes)
    title = Text.assemble((known.name, "bold magenta"), (above, "magenta"), f"  {entry.subject}")
    return Panel(table, title=title, title_align="left", border_style="blue")
