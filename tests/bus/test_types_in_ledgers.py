"""The types of guaranteed objects outlive the publisher that knew them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infobus import Bus, DataObject, type_of
from infobus.bus.settings import ledgers_folder
from infobus.stores.ledger import folder as shelf
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.repair import repair
from tests.bus.conftest import Connect
from tests.objects.worlds import another_process
from tests.patience import PATIENCE_S


class Paper(DataObject, name="kept.Paper"):
    n: int


class Note(Paper, name="kept.Note"):
    text: str = ""


class Letter(Note, name="kept.Letter"):
    about: DataObject | None = None


class Stamp(DataObject, name="kept.Stamp"):
    price: int = 1


class Rare(Stamp, name="kept.Rare"):
    year: int = 1840


LETTER = {"kept.Paper", "kept.Note", "kept.Letter"}
RARE = {"kept.Stamp", "kept.Rare"}


@pytest.fixture
def shop(connect: Connect, tmp_path: Path) -> Bus:
    """The publisher, which is gone by the time that somebody takes its events."""
    shop = connect(home=tmp_path / "home")
    shop.subscribe("post.>", durable="billing").close()
    return shop


@pytest.fixture
def reader(shop: Bus, connect: Connect, tmp_path: Path) -> Reader:
    return Reader(shop, connect, tmp_path / "home")


class Reader:
    """A later process of the same home, in which nobody has declared anything."""

    def __init__(self, shop: Bus, connect: Connect, home: Path) -> None:
        self._shop, self._connect, self._home = shop, connect, home

    @contextmanager
    def take(self, **options: Any) -> Iterator[tuple[Any, dict[str, frozenset[str]]]]:
        """The next event's data, and the lineages of the types that are known by then."""
        self._shop.close()
        with another_process(), self._connect(home=self._home) as bus:
            subscription = bus.subscribe("post.>", durable="billing", **options)
            data = subscription.receive(PATIENCE_S).data
            known = {one.name: one.lineage for one in bus.types() if one.is_known}
            yield data, known


def letter() -> Letter:
    return Letter(n=1, text="hello", about=Rare())


def test_a_subtype_is_known_with_its_supertypes(shop: Bus, reader: Reader) -> None:
    shop.publish("post.a", Note(n=1, text="hello"), guaranteed=True)
    with reader.take() as (data, known):
        assert type_of(data).name == "kept.Note"
        assert (data.n, data.text) == (1, "hello")
        assert known["kept.Note"] >= {"kept.Paper", "kept.Note"}
        assert known["kept.Paper"] >= {"kept.Paper"}


def test_so_are_objects_inside_others(shop: Bus, reader: Reader) -> None:
    shop.publish("post.a", letter(), guaranteed=True)
    with reader.take() as (data, known):
        assert (type_of(data).name, type_of(data.about).name) == ("kept.Letter", "kept.Rare")
        assert data.about.year == 1840
        assert known["kept.Letter"] >= LETTER
        assert known["kept.Rare"] >= RARE


def test_so_are_objects_inside_a_dict(shop: Bus, reader: Reader) -> None:
    shop.publish("post.a", {"some": [letter()]}, guaranteed=True)
    with reader.take() as (data, known):
        assert type_of(data["some"][0]).name == "kept.Letter"
        assert known.keys() >= LETTER | RARE


def test_so_are_those_of_every_event_of_a_transaction(shop: Bus, reader: Reader) -> None:
    with shop.transaction(guaranteed=True) as tx:
        tx.publish("post.a", Stamp())
        tx.publish("post.b", {"n": 2})
        tx.publish("post.c", letter())
    with reader.take() as (data, known):
        stamp, _, last = (event.data for event in data)
        assert (type_of(stamp).name, type_of(last).name) == ("kept.Stamp", "kept.Letter")
        assert known["kept.Letter"] >= LETTER
        assert known["kept.Rare"] >= RARE


def test_a_filter_can_ask_for_a_supertype(shop: Bus, reader: Reader) -> None:
    shop.publish("post.a", Stamp(), guaranteed=True)
    shop.publish("post.a", Note(n=2), guaranteed=True)
    with reader.take(where='isa("kept.Paper")') as (data, _):
        assert (type_of(data).name, data.n) == ("kept.Note", 2)


def test_a_descriptor_kept_under_another_type_is_not_believed_and_is_replaced(
    shop: Bus, bus_name: str, tmp_path: Path
) -> None:
    note, paper = type_of(Note(n=1)), type_of(Paper(n=1))
    shop.publish("post.a", {}, guaranteed=True)
    shop.close()
    folder = ledgers_folder(tmp_path / "home", bus_name)
    (id,) = shelf.ledger_ids(folder)
    spoil(folder, id, note.fingerprint, paper.descriptor)
    ledger = Ledger.open(folder, id)
    assert ledger.descriptor(note.fingerprint) is None
    records = [one for _, one in ledger.read(0, 10, 10_000)]
    ledger.append(records, {note.fingerprint: note.descriptor})
    assert ledger.descriptor(note.fingerprint) == note.descriptor
    ledger.close()


def test_nor_does_a_repair_keep_it(shop: Bus, bus_name: str, tmp_path: Path) -> None:
    note, paper = type_of(Note(n=1)), type_of(Paper(n=1))
    shop.publish("post.a", Paper(n=1), guaranteed=True)
    shop.close()
    folder = ledgers_folder(tmp_path / "home", bus_name)
    (id,) = shelf.ledger_ids(folder)
    spoil(folder, id, note.fingerprint, paper.descriptor)
    with sqlite3.connect(folder / f"{id}.db") as database:
        database.execute("UPDATE records SET crc = crc + 1")
    database.close()
    repair(folder, id)
    with sqlite3.connect(folder / f"{id}.db") as database:
        kept = database.execute("SELECT key FROM facts WHERE key LIKE 'type/%'").fetchall()
    database.close()
    assert kept == [(f"type/{paper.fingerprint:016x}",)]


def spoil(folder: Path, id: str, fingerprint: int, descriptor: bytes) -> None:
    """Write a descriptor under the fingerprint of another type, as older versions did."""
    ledger = Ledger.open(folder, id)
    ledger._writer._commits.run(
        lambda: ledger._writer._database.facts.put(f"type/{fingerprint:016x}", descriptor)
    )
    ledger.close()


def test_an_object_of_a_type_that_is_nowhere_comes_all_the_same(
    shop: Bus, reader: Reader, bus_name: str, tmp_path: Path
) -> None:
    shop.publish("post.a", Note(n=1), guaranteed=True)
    shop.close()
    folder = ledgers_folder(tmp_path / "home", bus_name)
    (id,) = shelf.ledger_ids(folder)
    spoil(folder, id, type_of(Note(n=1)).fingerprint, type_of(Paper(n=1)).descriptor)
    with reader.take() as (data, known):
        assert not type_of(data).is_known
        assert "kept.Paper" not in known  # it would be taken for a type that came with the event
