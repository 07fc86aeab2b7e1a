"""Signature and envelope stay with an event where others carry or keep it, and nobody opens it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import infobus
from infobus.objects import codec
from infobus.objects.sealed import SEALED, is_sealed
from infobus.repository import Repository
from infobus.security.event_keys import EventKey
from infobus.security.event_marks import signature_in
from infobus.security.event_seal import is_genuine, open_sealed
from tests.bus.borders import sites
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S

DESK, AUDIT = EventKey("desk", b"d" * 32), EventKey("audit", b"a" * 32)


class Bid(infobus.DataObject, name="keys.Bid"):
    symbol: str
    price: float
    lots: int = 1


BID = Bid(symbol="GMC", price=41.5)
KEYS = {"sign": DESK, "seal_to": [AUDIT.public], "clear": ["symbol"]}


def check(data: infobus.DataObject, headers: infobus.Headers) -> None:
    """What was kept can be checked and opened by whoever has the keys."""
    assert is_sealed(data)
    assert data.price is SEALED
    type_, body, _ = codec.encode(data)
    signature = signature_in(headers)
    assert signature is not None
    assert is_genuine(DESK.public, signature, type_, body)
    opened = open_sealed(body, type_, [AUDIT], DESK.id)
    assert opened is not None
    assert msgspec.msgpack.decode(opened) == {"symbol": "GMC", "price": 41.5, "lots": 1}


def test_a_router_passes_on_what_it_cannot_open_to_those_who_can() -> None:
    with sites() as two:
        router = two.join_sites()
        a, b = two.join("a"), two.join("b")
        holder = b.subscribe("q.>", signed_by=DESK.public, holds=[AUDIT], where="price > 40")
        other = b.subscribe("q.>", signed_by=AUDIT.public)
        plain = b.subscribe("p.>")
        two.wait_until_wanted(a, "p.x")
        wait_until(lambda: a.stats().peers != ())
        a.publish("q.x", BID)  # nobody has signed it, and nobody asks for that
        a.publish("q.x", BID, **KEYS)
        event = holder.receive(PATIENCE_S)
        assert (event.data, event.signed_by) == (BID, "desk")
        assert event.via
        assert [str(run.items.subjects[0]) for run in router.taken] == ["q.x"]
        a.publish("p.x", BID, **KEYS)
        seen = plain.receive(PATIENCE_S)
        check(seen.data, seen.headers)
        assert other.waiting_count == 0


def test_a_repository_keeps_what_is_sealed(tmp_path: Path) -> None:
    with (
        infobus.connect("keep", engine="memory", home=tmp_path) as bus,
        Repository(f"sqlite:///{tmp_path}/objects.db") as repository,
    ):
        sub = bus.subscribe("q.>")
        bus.publish("q.x", BID, **KEYS)
        event = sub.receive(PATIENCE_S)
        repository.store([event])
        found = repository.query("keys.Bid", 'symbol == "GMC"')
        [kept] = found
        check(kept, found.headers_of(kept))
        assert not list(repository.query("keys.Bid", "price > 0"))


def test_a_journal_keeps_what_is_sealed(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from infobus.stores.journal.journal import Journal
    from infobus.stores.journal.writer import JournalWriter

    with infobus.connect("journal", engine="memory", home=tmp_path / "home") as bus:
        sub = bus.subscribe("q.>")
        bus.publish("q.x", Bid(symbol="IBM", price=1.0))
        bus.publish("q.x", BID, **KEYS)
        events = [sub.receive(PATIENCE_S) for _ in range(2)]
    with JournalWriter.open(tmp_path / "journal") as writer:
        writer.append(events, now_s=1.0)
    kept = [
        *Journal.open(tmp_path / "journal").select("keys.Bid", where='symbol == "GMC"').events()
    ]
    check(kept[0].data, kept[0].headers)
    for file in (tmp_path / "journal").rglob("*.parquet"):
        assert b"41.5" not in file.read_bytes()
