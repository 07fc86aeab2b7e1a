"""Classes between real processes: who overtakes whom, who still moves, and who delays nobody."""

import time

import pytest

from tests.processes.conftest import Start
from tests.processes.programs.node import Node

FLOOD = """
import threading
def flood():
    number = 0
    while True:
        number += 1
        try:
            bus.publish(SUBJECT, {"n": number}, priority=PRIORITY)
        except infobus.Backpressure:
            pass
        except infobus.BusClosed:
            return
threading.Thread(target=flood, daemon=True).start()
"""


def flood(node: Node, subject: str, priority: str) -> None:
    """Let a node publish as fast as it is let, from now on."""
    node("exec", FLOOD.replace("SUBJECT", repr(subject)).replace("PRIORITY", repr(priority)))


def wait_for(node: Node, condition: str) -> None:
    """Wait until an expression is true in a node."""
    deadline_s = time.monotonic() + 60
    while not node("exec", f"answer = bool({condition})"):
        assert time.monotonic() < deadline_s, condition
        time.sleep(0.02)


@pytest.fixture
def full(start: Start) -> tuple[Node, Node]:
    """A consumer whose queue of regular events is full, and the supplier that sees to that."""
    consumer, supplier = start(), start()
    consumer("exec", "infobus.sub = bus.subscribe('x.>', when_full='block', queue_count_max=64)")
    flood(supplier, "x.regular", "regular")
    wait_for(consumer, "infobus.sub.waiting_in('regular') > 64")
    return consumer, supplier


EMERGENCY = "bus.publish('x.help', {'n': 1}, priority='emergency')"
TAKEN = "answer = [infobus.sub.receive(60).priority for _ in range(3)]"


class TestAnEmergencyOvertakesAFlood:
    def test_of_another_process(self, full: tuple[Node, Node], start: Start) -> None:
        consumer, _ = full
        start()("exec", EMERGENCY)
        wait_for(consumer, "infobus.sub.waiting_in('emergency')")
        assert consumer("exec", TAKEN) == ["emergency", "regular", "regular"]

    def test_of_the_same_process(self, full: tuple[Node, Node]) -> None:
        """The flood stands still in `publish`, in another thread; the emergency does not wait."""
        consumer, supplier = full
        supplier("exec", EMERGENCY)
        wait_for(consumer, "infobus.sub.waiting_in('emergency')")
        assert consumer("exec", TAKEN) == ["emergency", "regular", "regular"]

    def test_also_past_what_the_consumer_has_at_hand(self, full: tuple[Node, Node]) -> None:
        consumer, supplier = full
        assert consumer("exec", TAKEN) == ["regular"] * 3
        supplier("exec", EMERGENCY)
        wait_for(consumer, "infobus.sub.waiting_in('emergency')")
        assert consumer("exec", TAKEN) == ["emergency", "regular", "regular"]


SERVE = """
import time
infobus.served = []  # class, how many business events waited, when
def serve(event):
    waiting = infobus.sub.waiting_in("business")
    infobus.served.append((event.priority, waiting, time.monotonic()))
    time.sleep(0.002)
infobus.sub = bus.subscribe("x.>", serve, when_full="block", queue_count_max=2000)
"""


def test_a_library_moves_in_periods_though_business_never_ends(start: Start) -> None:
    consumer, business, library = start(), start(), start()
    consumer("exec", SERVE)
    flood(business, "x.business", "business")
    # So many that it goes on being served for seconds even if its supplier stands still.
    wait_for(consumer, "infobus.sub.waiting_in('business') > 1000")
    flood(library, "x.library", "regular")
    # What is served while no business waits does not count: nothing has to be overtaken then.
    moves = "one[0] == 'regular' and one[1] > 0 for one in infobus.served"
    wait_for(consumer, f"sum({moves}) > 50")
    served = consumer("exec", "answer = infobus.served")
    moved = [place for place, one in enumerate(served) if one[0] == "regular" and one[1] > 0]
    # It starved for at least the stated second, and then took turns with business.
    assert served[moved[0]][2] - served[0][2] >= 1.0
    turns = {one[0] for one in served[moved[0] : moved[-1]]}
    assert turns == {"regular", "business"}


STUCK = """
import threading
infobus.never = threading.Event()
bus.subscribe("x.>", lambda event: infobus.never.wait(), when_full=WHEN_FULL, queue_count_max=64,
              on_error=lambda error: None)
"""


class TestAStuckConsumer:
    """Its callback never returns, and its queue is full."""

    @pytest.mark.parametrize("when_full", ["pace", "drop_oldest", "disconnect"])
    def test_delays_no_other_on_its_node_or_elsewhere(self, start: Start, when_full: str) -> None:
        """With `pace`, senders wait for it at most 0.5 s each time; else they never do."""
        supplier, node, elsewhere = start(), start(), start()
        node("exec", STUCK.replace("WHEN_FULL", repr(when_full)))
        for consumer in (node, elsewhere):
            consumer("subscribe", "x.>", {})
        stall_s = supplier("flood", "x.y", 5_000, 10)
        for consumer in (node, elsewhere):
            entries = consumer("account", "x.>", 5_000, 60)[supplier.name]
            assert [entry[0] for entry in entries] == list(range(5_000))
        assert stall_s < 8  # on a busy machine; `publish` itself gives up after 10

    def test_that_asked_to_block_holds_its_own_class_only(self, start: Start) -> None:
        supplier, node, elsewhere = start(), start(), start()
        node("exec", STUCK.replace("WHEN_FULL", "'block'"))
        for consumer in (node, elsewhere):
            consumer("exec", "infobus.sub = bus.subscribe('x.>')")
        flood(supplier, "x.regular", "regular")
        wait_for(node, "bus.stats().waiting > 128")
        supplier("exec", EMERGENCY)
        for consumer in (node, elsewhere):
            wait_for(consumer, "infobus.sub.waiting_in('emergency')")
            assert consumer("exec", "answer = infobus.sub.receive(60).priority") == "emergency"
