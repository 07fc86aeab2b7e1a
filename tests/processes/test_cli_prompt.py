"""`infobus pub` without arguments, on a terminal: it asks for everything."""

import re

import pexpect
import pytest

import infobus
from infobus import DataObject
from tests.cli.running import Shell


class Bid(DataObject, name="cli_prompt.Bid"):
    symbol: str
    price: float = 1.0


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


@pytest.fixture
def bus(shell):
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        yield bus


@pytest.fixture
def terminal(shell, bus):
    """A terminal in which the prompt has just started."""
    return shell.terminal("pub")


def answer(terminal, question, text):
    terminal.expect(re.escape(question))
    terminal.sendline(text)


def test_it_asks_for_each_attribute_and_publishes(terminal, bus):
    bids = bus.subscribe("bids.>")
    answer(terminal, "subject> ", "bids.gmc")
    answer(terminal, "type [untyped]> ", "cli_prompt.Bid")
    answer(terminal, "symbol: str> ", "GMC")
    answer(terminal, "price: float [1.0]> ", "41.5")
    terminal.expect("published under bids.gmc")
    assert bids.receive(60).data == Bid(symbol="GMC", price=41.5)
    terminal.expect("subject> ")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


def test_it_asks_again_when_an_answer_does_not_fit(terminal, bus):
    bids = bus.subscribe("bids.>")
    answer(terminal, "subject> ", "bids..gmc")
    terminal.expect("has an empty element")
    answer(terminal, "subject> ", "bids.gmc")
    answer(terminal, "type [untyped]> ", "Nothing")
    terminal.expect("knows a type 'Nothing'")
    answer(terminal, "type [untyped]> ", "cli_prompt.Bid")
    answer(terminal, "symbol: str> ", "GMC")
    answer(terminal, "price: float [1.0]> ", "high")
    terminal.expect("price: expected float, got str 'high'")
    answer(terminal, "price: float [1.0]> ", "")
    terminal.expect("published under bids.gmc")
    assert bids.receive(60).data == Bid(symbol="GMC", price=1.0)


def test_untyped_objects_attribute_by_attribute(terminal, bus):
    notes = bus.subscribe("notes.>")
    answer(terminal, "subject> ", "notes.a")
    answer(terminal, "type [untyped]> ", "")
    answer(terminal, "Enter ends)> ", "text=hello")
    answer(terminal, "Enter ends)> ", "number")
    terminal.expect("is not an attribute")
    answer(terminal, "Enter ends)> ", "number:=3")
    answer(terminal, "Enter ends)> ", "")
    terminal.expect("published under notes.a")
    assert notes.receive(60).data == {"text": "hello", "number": 3}


def test_it_says_when_nobody_wants_it(terminal):
    answer(terminal, "subject> ", "notes.a")
    answer(terminal, "type [untyped]> ", "")
    answer(terminal, "Enter ends)> ", "")
    terminal.expect("nobody subscribes to notes.a")


def test_control_c_ends_it(terminal):
    terminal.expect("subject> ")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 130
