"""Which way next: case by case; `tests/simulation` draws worlds around it."""

import pytest

from infobus.engines.attached.ways import (
    EMBEDDED,
    Drop,
    Effect,
    Move,
    Open,
    Way,
    WayChoice,
)
from infobus.patience import DEFAULT_PATIENCE as PATIENCE

FIRST, SECOND = Way(("tcp/first:1",)), Way(("tcp/second:1",))
STEP_S = 0.05


def step_until(ways: WayChoice, end_s: float, now_s: float = 0.0) -> list[Effect]:
    done: list[Effect] = []
    while now_s < end_s:
        done += ways.on_tick(now_s)
        now_s += STEP_S
    return done


class TestWhenItsWayIsLost:
    def test_the_next_is_opened_at_once_and_taken_after_a_while(self) -> None:
        ways = WayChoice(FIRST, 0.0)
        ways.note_offers((FIRST, SECOND, EMBEDDED), 0.0)
        assert ways.on_link(False, 10.0) == [Open(SECOND)]
        assert ways.on_opened(SECOND, 10.1) == []
        assert ways.on_tick(10.0 + PATIENCE.return_s - 0.01) == []
        assert ways.on_tick(10.0 + PATIENCE.return_s) == [Move(SECOND)]
        assert ways.current == SECOND

    def test_what_was_opened_is_dropped_when_it_comes_back(self) -> None:
        ways = WayChoice(FIRST, 0.0)
        ways.note_offers((FIRST, EMBEDDED), 0.0)
        assert ways.on_link(False, 10.0) == [Open(EMBEDDED)]
        assert ways.on_link(True, 10.1) == []
        assert ways.on_opened(EMBEDDED, 10.2) == [Drop(EMBEDDED)]
        assert ways.current == FIRST
        assert ways.is_settled

    def test_one_that_cannot_be_opened_is_left_out(self) -> None:
        ways = WayChoice(FIRST, 0.0)
        ways.note_offers((FIRST, SECOND, EMBEDDED), 0.0)
        ways.on_link(False, 10.0)
        assert ways.on_failed(SECOND, 12.0) == [Open(EMBEDDED)]
        assert ways.on_opened(EMBEDDED, 12.1) == [Move(EMBEDDED)]

    def test_all_are_tried_again_if_none_can_be_opened(self) -> None:
        ways = WayChoice(FIRST, 0.0)
        ways.note_offers((FIRST, EMBEDDED), 0.0)
        ways.on_link(False, 10.0)
        assert ways.on_failed(EMBEDDED, 10.5) == []
        assert ways.on_tick(11.5) == [Open(EMBEDDED)]

    def test_a_move_that_failed_leaves_it_where_it_is(self) -> None:
        ways = WayChoice(FIRST, 0.0)
        ways.note_offers((FIRST, EMBEDDED), 0.0)
        ways.on_link(False, 10.0)
        assert ways.on_opened(EMBEDDED, 11.0) == [Move(EMBEDDED)]
        ways.on_not_moved(FIRST, 11.0)
        assert ways.current == FIRST
        assert ways.on_link(False, 11.1) == [Open(EMBEDDED)]


class TestWhenThereIsABetterOne:
    @pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
    def test_it_is_taken_when_it_has_held(self, chance: float) -> None:
        ways = WayChoice(EMBEDDED, chance)
        ways.note_offers((FIRST, EMBEDDED), 10.0)
        assert ways.on_tick(10.0) == []
        assert ways.on_tick(10.0 + PATIENCE.move_s * (1 + chance) - 0.01) == []
        assert ways.on_tick(10.0 + PATIENCE.move_s * (1 + chance)) == [Open(FIRST)]
        assert ways.on_opened(FIRST, 21.0) == [Move(FIRST)]

    def test_one_that_goes_and_comes_has_to_hold_anew(self) -> None:
        ways = WayChoice(EMBEDDED, 0.0)
        ways.note_offers((FIRST, EMBEDDED), 0.0)
        ways.note_offers((EMBEDDED,), 4.0)
        ways.note_offers((FIRST, EMBEDDED), 4.5)
        assert ways.on_tick(4.5) == []
        assert ways.on_tick(9.0) == []
        assert ways.on_tick(9.5) == [Open(FIRST)]

    def test_one_that_cannot_be_opened_is_left_alone_for_as_long(self) -> None:
        ways = WayChoice(EMBEDDED, 0.0)
        ways.note_offers((FIRST, EMBEDDED), 0.0)
        assert ways.on_tick(5.0) == [Open(FIRST)]
        assert ways.on_failed(FIRST, 6.0) == []
        assert step_until(ways, 11.0, 6.0) == []
        assert ways.on_tick(11.0) == [Open(FIRST)]

    def test_a_daemon_that_started_anew_is_another_way(self) -> None:
        ways = WayChoice(FIRST, 0.0)
        ways.note_offers((FIRST, EMBEDDED), 0.0)
        ways.note_offers((SECOND, EMBEDDED), 1.0)
        assert ways.on_link(False, 1.0) == [Open(SECOND)]
