"""`infobus quench`: what subscribers want, live."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.terminal import console, write, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.bus.quench import Quench, QuenchChange
    from infobus.filters.algebra.reduce import Combined

FILTER_COUNT_MAX = 20  # on the screen; a pipe gets them all
CHANGE_COUNT_MAX = 12


@grouped
def command(
    which: WhichBus,
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="Subjects that a producer would publish under.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Show what is wanted now, then end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what all subscriptions to a pattern ask for together, and how that changes.

    This is what a producer sees: the filters of all subscribers, reduced to one expression.
    """
    out = console()
    with which.join() as node, node.quench(pattern) as quench:
        if as_json:
            _write_json(quench, once)
        elif out.is_terminal and not once:
            _show_live(quench, out)
        else:
            _write_lines(quench, once)


def _write_json(quench: Quench, once: bool) -> None:
    write_json(_record(quench.expression()))
    for change in () if once else quench.changes():
        rows = {"added": _rows(change.added), "removed": _rows(change.removed)}
        write_json(_record(change.expression) | rows)


def _record(wanted: Combined) -> dict[str, Any]:
    return {
        "wanted": str(wanted),
        "everything": wanted.everything,
        "filters": [one.text for one in wanted.filters],
        "exact": wanted.exact,
    }


def _rows(rows: tuple[tuple[str, str], ...]) -> list[dict[str, str | None]]:
    return [{"subject": subject, "where": where or None} for subject, where in rows]


def _write_lines(quench: Quench, once: bool) -> None:
    write(f"wanted: {printable(str(quench.expression()))}")
    for change in () if once else quench.changes():
        for line in _change_lines(change):
            write(line.plain)
        write(f"wanted: {printable(str(change.expression))}")


def _change_lines(change: QuenchChange) -> list[Text]:
    """One line for each subscription that came or went."""
    lines = []
    for sign, style, rows in (("-", "red", change.removed), ("+", "green", change.added)):
        for subject, where in rows:
            told = f"{subject} where {where}" if where else subject
            lines.append(Text(f"{sign} {printable(told)}", style))
    return lines


def _show_live(quench: Quench, out: Console) -> None:
    recent: deque[Text] = deque(maxlen=CHANGE_COUNT_MAX)
    wanted = quench.expression()
    with Live(_screen(quench.pattern, wanted, recent), console=out, auto_refresh=False) as live:
        for change in quench.changes():
            now = datetime.now().strftime("%H:%M:%S ")
            recent.extend(Text(now, "dim") + line for line in _change_lines(change))
            live.update(_screen(quench.pattern, change.expression, recent), refresh=True)


def _screen(pattern: str, wanted: Combined, recent: deque[Text]) -> Group:
    texts = [one.text for one in wanted.filters] or [str(wanted)]
    lines = [Text(printable(text), "bold") for text in texts[:FILTER_COUNT_MAX]]
    if len(texts) > FILTER_COUNT_MAX:
        lines.append(Text(f"and {len(texts) - FILTER_COUNT_MAX} more", "dim"))
    return Group(Text(f"wanted under {printable(pattern)}:", "cyan"), *lines, Text(), *recent)
