"""Keys of events in the command line: made, given to others, used."""

import json

from infobus.cli.lines import event_json, event_line
from infobus.security.event_keys import EventKey
from infobus.stores.event_keys import EventKeyFolder
from tests.patience import PATIENCE_S


def test_a_pair_is_made_given_to_others_and_listed(run, tmp_path):
    assert run("keys", "event", "desk")[0] == 0
    code, public, _ = run("keys", "event", "desk", "--export")
    assert code == 0
    there = tmp_path / "there"
    assert run("keys", "event", "--import", "-", "--home", str(there), stdin=public)[0] == 0
    id_ = EventKeyFolder(tmp_path).pair("desk").id.hex()
    assert run("keys", "event")[1] == f"desk {id_} pair\n"
    assert run("keys", "event", "--home", str(there))[1] == f"desk {id_} public\n"
    assert (tmp_path / "event_keys" / "desk.key").stat().st_mode & 0o777 == 0o600
    assert "desk' in" in run("keys", "event", "desk")[2]  # there is one already
    assert run("keys", "event", "--import", "-", stdin="no key")[0] == 2


def test_what_is_signed_and_sealed_can_be_published_and_watched(run, bus):
    keys = EventKeyFolder(bus.home)
    keys.make("desk")
    audit = EventKey("audit", bytes(32))
    keys.add(audit.public.to_text())
    with bus.subscribe("desk.>", signed_by="desk", holds=[audit]) as sub:
        order = ["desk.order", "symbol=GMC", "price:=41.5", "--wait", "20"]
        run("pub", *order, "--sign", "desk", "--seal-to", "audit", "--clear", "symbol")
        event = sub.receive(PATIENCE_S)
    assert (event.data, event.signed_by) == ({"symbol": "GMC", "price": 41.5}, "desk")


def test_events_are_shown_with_who_signed_them_and_without_envelopes(bus):
    keys = EventKeyFolder(bus.home)
    keys.make("desk")
    with bus.subscribe("desk.>", signed_by="desk") as sub:
        for sealed in ({}, {"seal_to": ["desk"], "clear": ["symbol"]}):
            bus.publish("desk.order", {"symbol": "GMC", "price": 41.5}, sign="desk", **sealed)
        plain, sealed = (sub.receive(PATIENCE_S) for _ in range(2))
    assert str(event_line(plain)).endswith("symbol='GMC' price=41.5 [signed by desk]")
    assert str(event_line(sealed)).endswith("symbol='GMC' [sealed, signed by desk]")
    told = json.loads(event_json(sealed))
    assert told["signed_by"] == "desk"
    assert "price" not in told["data"]
