"""Ledgers that nobody owns: a few are open at a time, and each has its turn."""

from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.guaranteed.adoption import LedgerTurns


def test_those_that_have_waited_longest_are_opened_first():
    turns = LedgerTurns(open_count_max=2)
    assert turns.choose(["a", "b", "c"]) == ["a", "b"]
    turns.opened("a", 0.0)
    turns.opened("b", 0.0)
    assert turns.choose(["c"]) == []
    turns.closed("b", 1.0)
    turns.closed("a", 2.0)
    assert turns.choose(["a", "b", "c"]) == ["c", "b"]


def test_nobody_has_to_go_while_nobody_waits():
    turns = LedgerTurns(open_count_max=2, turn_s=10.0)
    turns.opened("a", 0.0)
    assert turns.choose(["b"]) == ["b"]
    turns.opened("b", 0.0)
    assert not turns.is_over("a", 1_000.0)
    turns.choose(["c"])
    assert turns.is_over("a", 10.0)
    assert not turns.is_over("a", 9.9)


def test_what_has_become_the_nodes_own_takes_no_room():
    turns = LedgerTurns(open_count_max=1, turn_s=10.0)
    turns.opened("a", 0.0)
    turns.closed("a", 1.0)
    assert turns.choose(["b", "c"]) == ["b"]
    assert not turns.is_over("a", 1_000.0)


@given(st.integers(1, 5), st.integers(1, 20))
def test_every_one_of_many_gets_its_turn(open_count_max, count):
    turns = LedgerTurns(open_count_max=open_count_max, turn_s=1.0)
    free, is_open = {f"ledger {n}" for n in range(count)}, set()
    had = set()
    for now_s in range(2 * count + 1):
        for id in [id for id in is_open if turns.is_over(id, now_s)]:
            turns.closed(id, now_s)
            is_open.remove(id)
        for id in turns.choose(sorted(free - is_open)):
            turns.opened(id, now_s)
            is_open.add(id)
        assert len(is_open) <= open_count_max
        had |= is_open
    assert had == free
