"""Inspects ledgers and durable consumers from outside, even while in use, without changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from infobus.errors import StoreError
from infobus.stores.ledger import consumer_store, ledger, reader
from infobus.stores.ledger.consumer_store import ConsumerProgress, Registration, consumer_path
from infobus.stores.ledger.ledger import ledger_path
from infobus.stores.sqlite.database import Damage, Database, DatabaseKind
from infobus.stores.sqlite.locks import FileLock


@dataclass(frozen=True)
class ConsumerGlance:
    """The stored state of a durable consumer at a moment."""

    name: str
    path: Path
    is_in_use: bool
    """Whether a live subscription of this home has the name."""
    registration: Registration
    progress: dict[str, ConsumerProgress]
    """How far it has come, by the id of the ledger."""


def glance_consumer(folder: Path, name: str) -> ConsumerGlance:
    """Read the state of a durable consumer.

    Raises:
        StoreError: It does not exist, or cannot be read.
    """
    path = consumer_path(folder, name)
    _check_there(path, "durable consumer", name)
    with FileLock(path.with_suffix(".lock")) as lock:
        is_in_use = not lock.acquire()
        opened = Database(path, consumer_store.KIND, name)
        try:
            with opened.errors(), opened.snapshot():
                return ConsumerGlance(name, path, is_in_use, *_kept(opened))
        finally:
            opened.close()


def check_ledger(folder: Path, id: str) -> None:
    """Read a whole ledger. Returning means that it is sound.

    If the ledger is in use, the end of the write-ahead log is not checked: it is being written.

    Raises:
        StoreCorrupt: It is damaged; the message says how and what to do.
        StoreError: It does not exist, is of a newer format, or cannot be read.
    """

    def find(opened: Database) -> list[str]:
        extent = reader.measure(opened)
        return reader.find_problems(opened, extent, are_records_read=True)

    path = ledger_path(folder, id)
    _check_there(path, "ledger", id)
    _check(path, ledger.KIND, id, find)


def check_consumer(folder: Path, name: str) -> None:
    """Read the whole file of a durable consumer, as `check_ledger` does."""

    def find(opened: Database) -> list[str]:
        _kept(opened)
        return opened.structure_problems()

    path = consumer_path(folder, name)
    _check_there(path, "durable consumer", name)
    _check(path, consumer_store.KIND, name, find)


def _check_there(path: Path, kind: str, id: str) -> None:
    if not path.exists():
        raise StoreError(f"there is no {kind} {id} in {path.parent}", path=str(path))


def _kept(opened: Database) -> tuple[Registration, dict[str, ConsumerProgress]]:
    found = opened.facts.get("registration")
    if found is None:
        raise Damage("its registration is missing")
    progress = opened.facts.under("progress/")
    return msgspec.convert(found, Registration), msgspec.convert(
        progress, dict[str, ConsumerProgress]
    )


def _check(path: Path, kind: DatabaseKind, id: str, find: Callable[[Database], list[str]]) -> None:
    with FileLock(path.with_suffix(".lock")) as lock:
        is_free = lock.acquire()
        opened = Database(path, kind, id)
        try:
            with opened.errors(), opened.snapshot():
                problems = find(opened) or (opened.log_problems() if is_free else [])
            if problems:
                raise opened.corrupt(problems)
        finally:
            opened.close()
