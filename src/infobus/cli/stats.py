"""`infobus stats`: what every node does, as it tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import msgspec
import typer
from rich.live import Live
from rich.table import Table

import infobus
from infobus import Bus, NodeStats, UsageError
from infobus.cli.lines import to_json
from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.terminal import console, table, warn, write
from infobus.objects.data import attribute_values
from infobus.printable import printable
from infobus.subjects import STATS_SPACE

WAIT_S = 3.0
"""How long to wait for nodes that have not told twice; that is what rates take."""
SILENT_S = 3.5
"""A node that has told nothing for so long is not shown any more."""


class NodeRow(msgspec.Struct):
    """The last two reports of a node, and when the last one came."""

    last: NodeStats
    came_s: float
    before: NodeStats | None = None

    def rate(self, counter: str) -> str:
        """How much a counter grows in a second; `-` while that is not known."""
        if self.before is None:
            return "-"
        seconds = (self.last.at - self.before.at).total_seconds()
        grown = getattr(self.last, counter) - getattr(self.before, counter)
        return f"{grown / seconds:,.0f}" if seconds > 0 else "-"

    @property
    def cpu(self) -> str:
        """The share of a processor."""
        if self.before is None:
            return "-"
        seconds = (self.last.at - self.before.at).total_seconds()
        used_s = self.last.cpu_s - self.before.cpu_s
        return f"{used_s / seconds:.0%}" if seconds > 0 else "-"


@grouped
def command(
    which: WhichBus,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep the table up to date, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what every node of the bus does: rates, queues, losses, processor and memory.

    Nodes tell this once a second while somebody asks, and do nothing for it otherwise. Rates are
    per second. With --json, each report is a line; with --watch, they go on.

    \b
    infobus stats
    infobus stats --watch
    infobus sub '~stats.HOST.>' --full        # all that a node tells
    """
    with which.join() as node, node.subscribe(f"{STATS_SPACE}>", on_loss="ignore") as reports:
        if as_json:
            for told in node_reports(node, reports, None if watch else WAIT_S):
                write(to_json(attribute_values(told)))
            return
        rows: dict[str, NodeRow] = {}
        if watch:
            _watch(node, reports, rows)
            return
        for told in node_reports(node, reports, WAIT_S):
            _take(rows, told)
            if _is_complete(node, rows):
                break
        if not rows:
            warn("no other node is there, or none that tells")
            raise typer.Exit(1)
        out = console()
        out.print(_table(rows.values(), out.width))


def node_reports(
    node: Bus, reports: infobus.Subscription, seconds: float | None
) -> Iterator[NodeStats]:
    """What the other nodes tell, for so long; for ever if None."""
    end_s = None if seconds is None else time.monotonic() + seconds
    while True:
        left_s = None if end_s is None else end_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            return
        try:
            told = reports.receive(left_s).data
        except TimeoutError:
            return
        if isinstance(told, NodeStats) and told.node != node.node:
            yield told


def _take(rows: dict[str, NodeRow], told: NodeStats) -> None:
    known = rows.get(told.node)
    rows[told.node] = NodeRow(told, time.monotonic(), None if known is None else known.last)


def _is_complete(node: Bus, rows: dict[str, NodeRow]) -> bool:
    return all(one in rows and rows[one].before is not None for one in node.stats().peers)


def _watch(node: Bus, reports: infobus.Subscription, rows: dict[str, NodeRow]) -> None:
    out = console()
    if not out.is_terminal:
        raise UsageError("--watch draws on a terminal; use --watch --json for programs")
    with Live(_table((), out.width), console=out, auto_refresh=False, screen=True) as live:
        shown_s = 0.0
        for told in node_reports(node, reports, None):
            _take(rows, told)
            now_s = time.monotonic()
            for name in [name for name, row in rows.items() if now_s - row.came_s > SILENT_S]:
                del rows[name]
            if now_s - shown_s >= 0.25:
                shown_s = now_s
                live.update(_table(rows.values(), out.width), refresh=True)


Cell = Callable[[NodeRow], str]

_COLUMNS: list[tuple[str, Cell, bool]] = [  # heading, text, whether it is for wide screens only
    ("program", lambda row: printable(program_name(row.last)), False),
    ("host", lambda row: printable(row.last.host), True),
    ("pid", lambda row: str(row.last.pid), False),
    ("up", lambda row: _duration((row.last.at - row.last.since).total_seconds()), False),
    ("pub/s", lambda row: row.rate("published"), False),
    ("quenched/s", lambda row: row.rate("quenched"), True),
    ("sent/s", lambda row: row.rate("sent_events"), False),
    ("recv/s", lambda row: row.rate("received_events"), False),
    ("waiting", lambda row: f"{row.last.waiting:,}", False),
    ("unconfirmed", lambda row: f"{row.last.unconfirmed:,}", True),
    ("lost", lambda row: _alarm(row.last.lost), False),
    ("dropped", lambda row: _alarm(row.last.dropped_by_queue), True),
    ("expired", lambda row: _alarm(row.last.expired), True),
    ("complaints", lambda row: _alarm(len(row.last.complaints)), True),
    ("cpu", lambda row: row.cpu, False),
    ("MB", lambda row: _megabytes(row.last.memory_bytes), True),
]
_WIDE = 130
"""Screens with so many characters in a line show all columns."""


def _table(rows: Iterable[NodeRow], width: int) -> Table:
    chosen = [column for column in _COLUMNS if width >= _WIDE or not column[2]]
    drawn = table(*(heading for heading, _, _ in chosen))
    for column in drawn.columns:
        column.no_wrap = True
        column.justify = "left" if column.header in ("program", "host") else "right"
    drawn.columns[0].style = "bold cyan"
    for row in sorted(rows, key=lambda row: (row.last.host, program_name(row.last), row.last.node)):
        drawn.add_row(*(text(row) for _, text, _ in chosen))
    return drawn


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:,.0f}"


def program_name(told: NodeStats) -> str:
    """What people call a program: the name it gave itself, else that of its file."""
    return told.application or told.program or "-"


def _alarm(count: int) -> str:
    """A number that is best 0."""
    return f"[yellow]{count:,}[/]" if count else "0"


def _duration(seconds: float) -> str:
    """A duration in two units.

    >>> _duration(5.2), _duration(620), _duration(9000)
    ('5s', '10m20s', '2h30m')
    """
    whole = max(0, int(seconds))
    for unit, below, length, part in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60)):
        if whole >= length:
            return f"{whole // length}{unit}{whole % length // part}{below}"
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"
