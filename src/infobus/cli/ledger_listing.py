"""What a home keeps for guaranteed delivery: gathered from its files, and shown as tables."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from infobus.cli.lines import printable
from infobus.errors import StoreError
from infobus.stores.ledger.consumer_store import consumer_names
from infobus.stores.ledger.folder import glance, ledger_ids
from infobus.stores.ledger.inspection import glance_consumer
from infobus.stores.ledger.ledger import ledger_path
from infobus.stores.sqlite.database import companions


class Follower(msgspec.Struct, frozen=True):
    """A durable consumer as a ledger knows it."""

    name: str
    position: int
    """Everything up to this number is settled."""
    behind: int
    """How many numbers follow that; not all of them need be for this consumer."""
    seen_at: float


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger."""

    id: str
    file_bytes: int
    """On the disk, with the write-ahead log."""
    problem: str = ""
    """Why it cannot be read; then nothing else is known."""
    owned: bool = False
    """Whether a live process owns it."""
    first: int = 0
    last: int = 0
    count: int = 0
    """How many events there are from `first` to `last`; 0 if there is none."""
    lost: tuple[tuple[int, int], ...] = ()
    sealed: str = ""
    consumers: list[Follower] = []


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer of this home."""

    name: str
    problem: str = ""
    in_use: bool = False
    patterns: tuple[str, ...] = ()
    where: str = ""
    registered_at: float = 0.0
    positions: dict[str, int] = {}
    """By the id of the ledger, wherever that is."""


class Holdings(msgspec.Struct, frozen=True):
    """Everything that a home keeps for guaranteed delivery on one bus."""

    ledgers: list[Kept]
    consumers: list[Registered]


def holdings(ledgers: Path, consumers: Path) -> Holdings:
    """Look at all files in the two folders, which need not be there."""
    return Holdings(
        [_kept(ledgers, id) for id in ledger_ids(ledgers)],
        [_registered(consumers, name) for name in consumer_names(consumers)],
    )


def _kept(folder: Path, id: str) -> Kept:
    path = ledger_path(folder, id)
    files = [one for one in (path, companions(path)[0]) if one.exists()]
    file_bytes = sum(one.stat().st_size for one in files)
    try:
        seen = glance(folder, id)
    except StoreError as error:
        return Kept(id=id, file_bytes=file_bytes, problem=str(error))
    extent = seen.extent
    last = extent.next - 1
    return Kept(
        id=id,
        file_bytes=file_bytes,
        owned=seen.is_owned,
        first=extent.gone + 1,
        last=last,
        count=extent.count,
        lost=extent.lost,
        sealed=extent.sealed,
        consumers=[
            Follower(name, one.position, last - one.position, one.seen_at)
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


def show(found: Holdings, console: Console) -> None:
    """Print the tables that are not empty, and what is damaged in full."""
    followers = [(one.id, follower) for one in found.ledgers for follower in one.consumers]
    if found.ledgers:
        console.print(_ledger_table(found.ledgers))
    if followers:
        console.print(_follower_table(followers))
    if found.consumers:
        console.print(_consumer_table(found.consumers))
    if not found.ledgers and not found.consumers:
        console.print("nothing is kept here")
    problems = [*(one.problem for one in found.ledgers), *(one.problem for one in found.consumers)]
    for problem in filter(None, problems):
        console.print(Text(printable(problem), "red"), soft_wrap=True)


def _ledger_table(ledgers: list[Kept]) -> Table:
    table = _table("Ledgers", "ledger", "owner", "numbers kept", "size", "")
    for one in ledgers:
        if one.problem:
            table.add_row(one.id, "", "", decimal(one.file_bytes), Text("cannot be read", "red"))
            continue
        table.add_row(
            one.id,
            "alive" if one.owned else "none",
            f"{one.first} to {one.last}" if one.count else "none",
            decimal(one.file_bytes),
            _remark(one),
        )
    return table


def _remark(one: Kept) -> Text:
    lost = ", ".join(f"{first} to {last}" for first, last in one.lost)
    remarks = [f"lost: {lost}"] * bool(lost) + ["takes no more"] * bool(one.sealed)
    return Text("; ".join(remarks), "yellow")


def _follower_table(followers: list[tuple[str, Follower]]) -> Table:
    table = _table("Their consumers", "ledger", "consumer", "settled", "behind", "heard of")
    for id, one in followers:
        row = (str(one.position), str(one.behind), _time(one.seen_at))
        table.add_row(id, Text(printable(one.name)), *row)
    return table


def _consumer_table(consumers: list[Registered]) -> Table:
    title = "Durable consumers of this home"
    table = _table(title, "consumer", "in use", "patterns", "where", "registered")
    for one in consumers:
        name = Text(printable(one.name))
        if one.problem:
            table.add_row(name, "", Text("cannot be read", "red"))
            continue
        table.add_row(
            name,
            "yes" if one.in_use else "no",
            Text(printable(", ".join(one.patterns))),
            Text(printable(one.where)),
            _time(one.registered_at),
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "ledger")
    return table


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a clock may say anything
        return "?"
