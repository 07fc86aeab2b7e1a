"""Filters of other nodes may be long: whoever publishes does not wait until they are compiled."""

import threading
from typing import Any

import pytest

import infobus.filters
from infobus import Bus
from infobus.bus.runtime.filter_compiler import AT_ONCE_CHARS
from infobus.protocols.interest.peer_rows import FILTERS_CHARS_MAX, PeerRows
from tests.bus.helpers import wait_until
from tests.patience import PATIENCE_S

LONG = " || ".join(f"n == {number}" for number in range(1000, 1600))
assert len(LONG) > AT_ONCE_CHARS


def test_publishing_goes_on_while_a_long_filter_is_compiled(
    bus: Bus, other: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile, release = infobus.filters.compile, threading.Event()

    def compile_late(text: str) -> Any:
        assert len(text) < AT_ONCE_CHARS or release.wait(PATIENCE_S)
        return compile(text)

    where = compile(LONG)
    monkeypatch.setattr(infobus.filters, "compile", compile_late)
    sub = other.subscribe("x", where=where)
    before = other.stats().received_events
    bus.publish("x", {"n": 1})  # not wanted, which nobody here knows yet
    bus.publish("x", {"n": 1000})
    assert sub.receive(PATIENCE_S).data == {"n": 1000}
    assert (other.stats().received_events, bus.stats().quenched) == (before + 2, 0)
    release.set()

    def is_quenched() -> bool:
        bus.publish("x", {"n": 1})
        return bus.stats().quenched > 0

    wait_until(is_quenched)
    bus.publish("x", {"n": 1001})
    assert sub.receive(PATIENCE_S).data == {"n": 1001}


def test_short_filters_are_compiled_at_once_within_a_share_of_the_time(bus: Bus) -> None:
    compiler = bus._runtime.compiler
    assert compiler.chars_at_once() == AT_ONCE_CHARS
    compiler._saved_s = 0.001
    compiler._saved_at_s -= 1.0  # as if somebody had compiled for a second
    compiler.note_asked()
    assert compiler.chars_at_once() == 0
    compiler._saved_at_s -= 100.0
    assert compiler.chars_at_once() == AT_ONCE_CHARS


def rows_of(*filters: str) -> PeerRows:
    rows = PeerRows()
    rows.update("peer", 0, 1, [(f"x.p{at}", where) for at, where in enumerate(filters)])
    return rows


def test_a_pattern_counts_as_unfiltered_until_its_filters_are_compiled() -> None:
    from infobus.filters import compile
    from infobus.filters.matching.matcher import Matcher

    rows = rows_of(LONG, "n == 1 && long_name == 5", "n == 2")
    assert [rows.wanted(f"x.p{at}", 10) for at in range(2)] == [True, True]
    assert callable(rows.wanted("x.p2", 10))
    assert rows.next_uncompiled() == ("x.p1", ["n == 1 && long_name == 5"])  # the short one first
    matcher = Matcher()
    matcher.add("any", compile("n == 1"))
    rows.compiled("x.p1", ["n == 1 && long_name == 5"], matcher)
    wanted = rows.wanted("x.p1", 0)
    assert callable(wanted) and wanted({"n": 1}) and not wanted({"n": 2})
    rows.compiled("x.p0", [LONG], None)  # as if it had not been understood
    assert rows.wanted("x.p0", 0) is True and rows.unreadable == 1
    assert rows.next_uncompiled() is None


def test_filters_that_come_and_go_meanwhile_are_not_mistaken_for_others() -> None:
    rows = rows_of(LONG)
    assert rows.wanted("x.p0", 10) is True
    pattern, filters = rows.next_uncompiled() or ("", [])
    rows.update("peer", 1, 2, [("x.p0", "n == 5 && m == 6")], dropped=[("x.p0", LONG)])
    rows.compiled(pattern, filters, None)
    assert rows.wanted("x.p0", 10) is True  # the new one waits for its turn
    assert rows.next_uncompiled() == ("x.p0", ["n == 5 && m == 6"])
    rows.forget("peer")
    assert rows.next_uncompiled() is None
    rows.compiled("x.p0", filters, None)


def test_a_peer_has_room_for_so_much_text() -> None:
    text = 'a == "' + "x" * 60_000 + '"'
    rows = PeerRows()
    fitting = FILTERS_CHARS_MAX // len(text)
    rows.update("peer", 0, 1, [(f"c{at}.x", text) for at in range(fitting + 2)])
    rows.update("honest", 0, 1, [("h.x", "n == 5")])
    assert (rows.records["peer"].count, rows.refused) == (fitting, 2)
    assert rows.wanted(f"c{fitting}.x", 0) is True and not rows.uncompiled
    assert callable(rows.wanted("h.x", 100))
    rows.update("peer", 0, 2, [])
    assert (rows.records["peer"].chars, rows.wanted(f"c{fitting}.x")) == (0, False)
