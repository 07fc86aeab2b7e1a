"""A router that stands by keeps what was not heard again, for a while."""

from infobus.bus.deliver.event import Run
from infobus.protocols.frames.items import Items
from infobus.router.standby import HOLD_S, Held, Recent


def run(first: int, count: int, sender: str = "p") -> Run:
    items = Items(["x"], [first], [0.0], [0], [b""] * count).come_from(sender, "site")
    return Run("router", "x", range(first, first + count), items)


def numbers(runs: list[Run]) -> list[int]:
    return [number for one in runs for number in one.items.each_number()]


def test_what_was_heard_is_not_passed_again_whichever_came_first():
    held, passed = Held(), Recent()
    passed.note(run(1, 2), 0.0)
    for first in (1, 4, 7):
        held.hold(run(first, 3), passed, 0.0)
    passed.note(run(5, 1), 0.1)
    assert numbers(held.take(passed)) == [3, 4, 6, 7, 8, 9]
    assert len(held) == 0 and held.take(passed) == []


def test_numbers_of_other_senders_are_other_events():
    held, passed = Held(), Recent()
    passed.note(run(1, 1, "q"), 0.0)
    held.hold(run(1, 1), passed, 0.0)
    assert numbers(held.take(passed)) == [1]


def test_what_is_old_is_let_go_if_another_router_carries():
    held, passed = Held(), Recent()
    held.hold(run(1, 1), passed, 0.0)
    held.hold(run(2, 1), passed, HOLD_S + 1)
    passed.note(run(3, 1), HOLD_S + 2)
    held.hold(run(4, 1), passed, HOLD_S + 3)
    assert numbers(held.take(passed)) == [2, 4]


def test_while_nobody_carries_nothing_is_let_go_but_for_lack_of_room():
    held, passed = Held(), Recent()
    for first in range(0, 60_000, 1_000):
        held.hold(run(first, 1_000), passed, first / 1_000.0)
    assert held.dropped == 10_000
    assert numbers(held.take(passed)) == list(range(10_000, 60_000))
    assert held.dropped == 0


def test_a_double_is_known_for_a_while():
    recent = Recent(keep_s=5.0)
    assert recent.note(run(1, 2), 0.0) == [0, 1]
    assert recent.note(run(2, 2), 1.0) == [1]
    assert recent.note(run(1, 1), 7.0) == []  # found before the old ones are let go
    assert recent.note(run(1, 1), 8.0) == [0]
