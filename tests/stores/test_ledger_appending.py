"""Records that one thread makes for all that share its commit."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from infobus.errors import BadValue
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.record import Record, decode


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path) as opened:
        yield opened


def record(n):
    return Record("orders.new", float(n), 0, b"%d" % n)


def nonsense():
    raise BadValue("nonsense")


def bodies(ledger):
    return {number: int(kept.body) for number, kept in ledger.read(0, 100, 1 << 20)}


def test_what_cannot_be_made_is_told_to_its_own_thread_alone(ledger):
    is_made, may_go_on = threading.Event(), threading.Event()

    def make_slowly():
        is_made.set()
        assert may_go_on.wait(60)
        return [record(0)], {}

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(ledger.append_made, make_slowly)
        assert is_made.wait(60)
        others = [threads.submit(ledger.append, [record(n), record(n)], {n: b"t"}) for n in (1, 2)]
        failing = threads.submit(ledger.append_made, nonsense)
        while len(ledger._writer._commits._gathering.works) < 3:
            threading.Event().wait(0.001)
        may_go_on.set()
        with pytest.raises(BadValue, match="nonsense"):
            failing.result(60)
        numbers = [first.result(60), *(one.result(60) for one in others)]
    assert sorted(numbers) == [1, 2, 4]
    kept = bodies(ledger)
    assert kept == {1: 0} | {numbers[n] + i: n for n in (1, 2) for i in (0, 1)}
    assert ledger.descriptor(2) == b"t"


def test_nothing_is_written_for_what_cannot_be_made(ledger):
    with pytest.raises(BadValue):
        ledger.append_made(nonsense)
    assert ledger.next == 1
    assert ledger.append([record(1)]) == 1
    assert bodies(ledger) == {1: 1}


def test_a_record_of_an_older_ledger_with_nil_in_its_last_place_is_read():
    places = ["orders.new", 1.0, 7, b"", None, None, False, "emergency", None]
    assert decode(msgspec.msgpack.encode(places)) == Record(*places[:-1])
