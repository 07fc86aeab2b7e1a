"""What a home keeps for guaranteed delivery: collected from its files, shown as tables."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from infobus.cli.terminal import console, table
from infobus.errors import StoreError
from infobus.printable import printable
from infobus.stores.ledger.consumer_store import consumer_names
from infobus.stores.ledger.folder import glance, ledger_ids
from infobus.stores.ledger.inspection import glance_consumer
from infobus.stores.ledger.ledger import ledger_path
from infobus.stores.sqlite.database import companions


class ConsumerRow(msgspec.Struct, frozen=True):
    """A durable consumer as a ledger knows it."""

    name: str
    position: int
    """Everything up to this number is settled."""
    behind: int
    """How many numbers follow it; some of them may not be for this consumer."""
    seen_at: float


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger."""

    id: str
    file_bytes: int
    """On disk, including the write-ahead log."""
    problem: str = ""
    """Why it cannot be read; nothing else is known then."""
    owned: bool = False
    """Whether a live process owns it."""
    first: int = 0
    last: int = 0
    count: int = 0
    """How many events there are from `first` to `last`."""
    lost: tuple[tuple[int, int], ...] = ()
    sealed: str = ""
    consumers: list[ConsumerRow] = []


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer of this home."""

    name: str
    problem: str = ""
    in_use: bool = False
    patterns: tuple[str, ...] = ()
    where: str = ""
    registered_at: float = 0.0
    positions: dict[str, int] = {}
    """By the id of the ledger, which may be on another host."""


class Holdings(msgspec.Struct, frozen=True):
    """Everything that a home keeps for guaranteed delivery on one bus."""

    ledgers: list[LedgerRow]
    consumers: list[Registered]


def holdings(ledgers: Path, consumers: Path) -> Holdings:
    """Look at all files in the two folders; a folder may be missing."""
    return Holdings(
        [_kept(ledgers, id) for id in ledger_ids(ledgers)],
        [_registered(consumers, name) for name in consumer_names(consumers)],
    )


def _kept(folder: Path, id: str) -> LedgerRow:
    path = ledger_path(folder, id)
    files = [one for one in (path, companions(path)[0]) if one.exists()]
    file_bytes = sum(one.stat().st_size for one in files)
    try:
        seen = glance(folder, id)
    except StoreError as error:
        return LedgerRow(id=id, file_bytes=file_bytes, problem=str(error))
    extent = seen.extent
    last = extent.next - 1
    return LedgerRow(
        id=id,
        file_bytes=file_bytes,
        owned=seen.is_owned,
        first=extent.gone + 1,
        last=last,
        count=extent.count,
        lost=extent.lost,
        sealed=extent.sealed,
        consumers=[
            ConsumerRow(name, one.position, last - one.position, one.seen_at)
            for name, one in sorted(seen.positions.items())
        ],
    )


def _registered(folder: Path, name: str) -> Registered:
    try:
        seen = glance_consumer(folder, name)
    except StoreError as error:
        return Registered(name=name, problem=str(error))
    return Registered(
        name=name,
        in_use=seen.is_in_use,
        patterns=seen.registration.patterns,
        where=seen.registration.where,
        registered_at=seen.registration.registered_at,
        positions={id: one.position for id, one in seen.progress.items()},
    )


def show(found: Holdings) -> None:
    """Print the tables that are not empty, and every problem in full."""
    out = console()
    followers = [(one.id, follower) for one in found.ledgers for follower in one.consumers]
    if found.ledgers:
        out.print(_ledger_table(found.ledgers))
    if followers:
        out.print(_follower_table(followers))
    if found.consumers:
        out.print(_consumer_table(found.consumers))
    if not found.ledgers and not found.consumers:
        out.print("nothing is kept here")
    problems = [*(one.problem for one in found.ledgers), *(one.problem for one in found.consumers)]
    for problem in filter(None, problems):
        out.print(Text(printable(problem), "red"), soft_wrap=True)


def _ledger_table(ledgers: list[LedgerRow]) -> Table:
    drawn = table("ledger", "owner", "numbers kept", "size", "", title="Ledgers")
    drawn.columns[0].no_wrap = True
    for one in ledgers:
        if one.problem:
            drawn.add_row(one.id, "", "", decimal(one.file_bytes), Text("cannot be read", "red"))
            continue
        drawn.add_row(
            one.id,
            "alive" if one.owned else "none",
            f"{one.first} to {one.last}" if one.count else "none",
            decimal(one.file_bytes),
            _remark(one),
        )
    return drawn


def _remark(one: LedgerRow) -> Text:
    lost = ", ".join(f"{first} to {last}" for first, last in one.lost)
    remarks = [f"lost: {lost}"] * bool(lost) + ["takes no more"] * bool(one.sealed)
    return Text("; ".join(remarks), "yellow")


def _follower_table(followers: list[tuple[str, ConsumerRow]]) -> Table:
    headings = ("ledger", "consumer", "settled", "behind", "heard of")
    drawn = table(*headings, title="Their consumers")
    drawn.columns[0].no_wrap = True
    for id, one in followers:
        row = (str(one.position), str(one.behind), _time(one.seen_at))
        drawn.add_row(id, printable(one.name), *row)
    return drawn


def _consumer_table(consumers: list[Registered]) -> Table:
    headings = ("consumer", "in use", "patterns", "where", "registered")
    drawn = table(*headings, title="Durable consumers of this home")
    for one in consumers:
        name = printable(one.name)
        if one.problem:
            drawn.add_row(name, "", Text("cannot be read", "red"))
            continue
        drawn.add_row(
            name,
            "yes" if one.in_use else "no",
            printable(", ".join(one.patterns)),
            printable(one.where),
            _time(one.registered_at),
        )
    return drawn


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a clock may be wrong in any way
        return "?"
