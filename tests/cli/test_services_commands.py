"""`infobus services` and `infobus call`, against a service in this process."""

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import infobus
from infobus import DataObject, Service
from infobus.services import ServiceClient


class Listing(DataObject):
    symbol: str
    price: float


class Market(Service):
    """Prices."""

    def symbols(self) -> list[str]:
        """All that is traded."""
        return ["GMC", "IBM"]

    def listing(self, symbol: str, price: float = 1.5) -> Listing:
        return Listing(symbol=symbol, price=price)

    def ticks(self, count: int) -> Iterator[int]:
        yield from range(count)

    def fail(self) -> None:
        raise KeyError("nope")

    def checksum(self, data: bytes) -> int:
        return sum(data)


@pytest.fixture
def bus(tmp_path):
    with infobus.connect(f"test-{uuid.uuid4().hex}", home=tmp_path) as bus:
        bus.serve("svc.market", Market(), version="1.2")
        yield bus


def test_services_are_listed_with_their_operations(run):
    code, out, err = run("services")
    assert (code, err) == (0, "")
    assert "svc.market" in out
    assert "1.2" in out
    assert "listing(symbol: str, price: float = 1.5) -> Listing" in out


def test_on_a_narrow_terminal_signatures_stay_whole(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run("services")
    assert "    listing(symbol: str, price: float = 1.5) -> Listing\n" in out
    assert re.search(r"^svc\.market  1\.2  load 0  up \d+ \w+  \S+$", out, re.MULTILINE)


def test_services_as_json(run):
    code, out, _ = run("services", "svc.*", "--json", "--where", 'version == "1.2"')
    record = json.loads(out)
    assert (code, record["subject"], record["role"]) == (0, "svc.market", "server")
    assert record["operations"][0]["doc"] == "All that is traded."


def test_nobody_serves(run):
    assert run("services", "nothing.>") == (0, "", "nobody serves nothing.>\n")


@pytest.mark.parametrize(
    "arguments",
    [['{"symbol": "GMC", "price": 41}'], ["symbol=GMC", "price=41"], ["symbol=GMC", "price:=41.0"]],
)
def test_a_call_shows_its_signature_and_its_result(run, arguments):
    code, out, err = run("call", "svc.market", "listing", *arguments)
    assert (code, err) == (0, "listing(symbol: str, price: float = 1.5) -> Listing\n")
    assert "symbol: str = 'GMC'" in out
    assert "price: float = 41.0" in out


def test_results_as_json(run):
    assert run("call", "svc.market", "symbols", "--json")[:2] == (0, '["GMC","IBM"]\n')
    assert run("call", "svc.market", "ticks", "count=3", "--json")[:2] == (0, "0\n1\n2\n")
    code, out, _ = run("call", "svc.market", "symbols", "--policy", "all", "--json")
    assert (code, json.loads(out)["value"]) == (0, ["GMC", "IBM"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["svc.market", "listin"], 2, "no operation 'listin', only .*did you mean listing"),
        (["svc.market", "listing", "symbl=x"], 2, "not an argument of listing.*mean symbol"),
        (["svc.market", "listing"], 2, "needs a value for 'symbol'"),
        (["svc.market", "ticks", "count=x"], 2, "count: expected int, got str 'x'"),
        (["svc.market", "fail"], 1, "KeyError: 'nope'"),
        (["svc.nobody", "x"], 1, "nobody served 'svc.nobody'"),
        (["svc.markt", "x"], 1, "nobody served 'svc.markt' within 1.0 s; did you mean svc.market"),
        (["svc.none", "x", "--timeout", "0.3"], 1, "nobody served 'svc.none' within 0.3 s"),
        (["svc.none", "--timeout", "0.3"], 1, "nobody served 'svc.none' within 0.3 s"),
        (["svc.market", "checksum", "data=f!"], 2, "data: bytes are given as base64, and 'f!' is"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(run, arguments, code, says):
    got, out, err = run("call", *arguments)
    assert (got, out) == (code, "")
    assert re.search(says, err.splitlines()[-1]), err


def test_a_call_waits_for_a_server_as_long_as_it_may(run, bus, monkeypatch):
    for module in ("call", "services"):
        monkeypatch.setattr(f"infobus.cli.{module}.PATIENCE_S", 0.0)
    looks = threading.Event()
    search = ServiceClient.servers

    def searched(client, timeout_s=None):
        looks.set()
        return search(client, timeout_s)

    def serve_late():
        looks.wait(60)
        time.sleep(0.3)
        bus.serve("svc.late", Market())

    monkeypatch.setattr(ServiceClient, "servers", searched)
    late = threading.Thread(target=serve_late)
    late.start()
    code, out, _ = run("call", "svc.late", "symbols", "--timeout", "60", "--json")
    late.join()
    assert (code, out) == (0, '["GMC","IBM"]\n')


def test_bytes_are_asked_for_as_base64(run):
    _, out, _ = run("call", "svc.market", stdin="checksum\nAQI=\n")
    assert "data: bytes as base64>" in out
    assert "\n3\n" in out or "> 3\n" in out


def test_a_bare_call_walks_a_person_through(run):
    typed = "\nlisting\nGMC\nhigh\n2.5\nfail\nnothing\n"
    code, out, err = run("call", stdin=typed)
    assert (code, err) == (0, "")
    assert "Ctrl-D" not in out, "it is no terminal"
    assert "service [svc.market]>" in out
    assert "All that is traded." in out
    assert "price: float [1.5]>" in out
    assert "expected float, got str 'high'" in out
    assert "price: float = 2.5" in out
    assert "KeyError: 'nope'" in out
    assert "there is no 'nothing'; choose one of symbols" in out
