"""`infobus call` without arguments, on a terminal: it leads a person through a service."""

import re
import threading
from collections.abc import Iterator

import pexpect
import pytest

import infobus
from infobus import DataObject, Service
from tests.cli.running import Shell


class Item(DataObject, name="call_prompt.Item"):
    name: str
    price: float = 1.5


class Shop(Service):
    """Sells things."""

    def __init__(self):
        self.has_begun = threading.Event()
        self.is_stopped = threading.Event()

    def total(self, items: list[Item], rebate: float = 0.0) -> float:
        """What they cost together."""
        return sum(item.price for item in items) - rebate

    def ticks(self) -> Iterator[int]:
        """One after the other, for ever."""
        number = 0
        self.has_begun.set()
        try:
            while True:
                yield number
                number += 1
        finally:
            self.is_stopped.set()

    def wait(self) -> str:
        """Until nobody waits for it any more."""
        self.has_begun.set()
        if infobus.current_call().stopped.wait(60):
            self.is_stopped.set()
        return "done"


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def terminal(tmp_path, shop):
    """A terminal in which the prompt has just started, beside a node that serves two things."""
    shell = Shell(tmp_path)
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        bus.serve("svc.shop", shop)
        bus.serve("svc.other", Shop())
        child = shell.terminal("call")
        answer(child, "service> ", "svc.sh\t")
        child.expect_exact("ticks() -> stream of int")
        yield child
        shell.close()


def answer(child, question, text):
    child.expect(re.escape(question))
    child.sendline(text)


def test_names_are_completed_and_objects_are_typed_as_json(terminal):
    answer(terminal, "operation (Enter lists them)> ", "to\t")
    answer(terminal, "items: list[call_prompt.Item] as JSON> ", "pen")
    terminal.expect_exact("expected list[call_prompt.Item], got str 'pen'")
    answer(terminal, "as JSON> ", '[{"name": "pen"}, {"name": "ink", "price": 4}]')
    answer(terminal, "rebate: float [0.0]> ", "")
    terminal.expect_exact("5.5")
    answer(terminal, "operation (Enter lists them)> ", "")
    terminal.expect_exact("What they cost together.")
    terminal.expect_exact("operation (Enter lists them)> ")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


@pytest.mark.parametrize("operation", ["ticks", "wait"])
def test_control_c_gives_up_a_call_but_not_the_prompt(terminal, shop, operation):
    answer(terminal, "operation (Enter lists them)> ", operation)
    assert shop.has_begun.wait(60)
    terminal.sendintr()
    terminal.expect_exact("given up")
    assert shop.is_stopped.wait(60)
    answer(terminal, "operation (Enter lists them)> ", "")
    terminal.expect_exact("ticks() -> stream of int")
