"""Tables for the terminal: words on the left, numbers on the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rich import box
from rich.table import Table

from infobus.bench.common.bar import Bar


def table_of(
    title: str,
    words: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str | None = None,
    grouped: bool = False,
) -> Table:
    """A table whose first columns hold `words` and whose last columns hold `numbers`.

    With `grouped`, a new group begins where the first column changes. On a narrow terminal,
    headers and words wrap; numbers are always shown in full.
    """
    rows = list(rows)
    table = Table(title=title, caption=caption, box=box.SIMPLE, padding=0, show_edge=False)
    for place, column in enumerate((*words, *numbers)):
        cells = [row[place] for row in rows]
        if place < len(words):
            longest = max((len(word) for cell in cells for word in cell.split()), default=0)
            table.add_column(column, min_width=longest)
        else:
            table.add_column(column, justify="right", min_width=max(map(len, cells), default=0))
    for row, following in zip_longest(rows, rows[1:]):
        ends_group = grouped and following and following[0] != row[0]
        table.add_row(*row, end_section=bool(ends_group))
    return table


def number(value: float | None, form: str) -> str:
    """The value in this format; a dash if there is none.

    >>> number(1234.5, ",.0f"), number(None, ".2f")
    ('1,234', '-')
    """
    return "-" if value is None else format(value, form)


def bar_table(bars: Iterable[Bar]) -> Table:
    """Each bar, and whether it was met."""
    table = Table(title="Bars")
    table.add_column("what")
    for column in ("measured", "lowest to highest", "bar"):
        table.add_column(column, justify="right")
    table.add_column("ok")
    for bar in bars:
        measured = "-" if bar.measured is None else f"{bar.measured:.2f} {bar.unit}"
        limit = f"{'>=' if bar.at_least else '<='} {bar.bar:g} {bar.unit}"
        spread = "" if bar.spread is None else f"{bar.spread[0]:.2f} to {bar.spread[1]:.2f}"
        mark = {True: "[green]yes[/]", False: "[red]no[/]", None: "not measured"}[bar.ok]
        doubt = "" if bar.is_sure else " (repetitions disagree)"
        table.add_row(bar.what, measured, spread, limit, mark + doubt)
    return table
