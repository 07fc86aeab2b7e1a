"""Queues by priority class, against a slow and obvious model of them, and rule by rule."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import UsageError
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Marks, Upgrade
from infobus.protocols.qos.queues import ClassQueues, ClassState, FellBack, Upgraded
from infobus.testing.simulation.accounts.qos_oracle import ObviousQueues, as_told

ORDERS = [("only",), ("high", "low"), ("emergency", "business", "regular"), tuple("abcde")]
PAUSES_S = [0.0, 0.1, 0.5, 1.0, 1.5]


@st.composite
def runs(draw):
    """Classes with marks, perhaps an upgrade, and what happens to them."""
    classes = Classes(draw(st.sampled_from(ORDERS)))
    names = st.sampled_from(classes.names)
    marks = {}
    for name in classes.names:
        high = draw(st.integers(1, 6))
        marks[name] = Marks(high, draw(st.integers(0, high)))
    upgrade = draw(st.sampled_from([None, Upgrade(), Upgrade(after_s=0.3, period_s=0.7)]))
    ages = st.sampled_from([math.inf, math.inf, 0.0, 0.2, 1.0, 3.0])
    raised_s = st.sampled_from([None, None, None, -0.5, 0.4, 0.9, 100.0])
    steps = st.one_of(
        st.tuples(st.just("offer"), names, st.integers(1, 3), ages, raised_s),
        st.tuples(st.just("offer"), names, st.integers(1, 3), ages, raised_s),
        st.tuples(st.just("take")),
        st.tuples(st.just("take")),
        st.tuples(st.just("put_back"), names),
        st.tuples(st.just("tick")),
        st.tuples(st.just("wait"), st.sampled_from(PAUSES_S)),
        st.tuples(st.just("expire")),
        st.tuples(st.just("hold"), names, st.booleans()),
        st.tuples(st.just("drop_oldest"), names),
        st.tuples(st.just("clear")),
    )
    return classes, marks, upgrade, draw(st.lists(steps, max_size=80))


@settings(max_examples=250, deadline=None)
@given(runs())
def test_the_queues_do_what_the_obvious_ones_do(run):
    classes, marks, upgrade, steps = run
    queues = ClassQueues(classes, marks, upgrade)
    obvious = ObviousQueues(classes, marks, upgrade)
    now_s, untold = 10.0, []  # expired when something was taken, and not yet told
    in_hand = {}  # what was taken last of each class
    for value, (what, *arguments) in enumerate(steps):
        match what:
            case "offer":
                class_, weight, age_s, raised_s = arguments
                until_s = 0.0 if raised_s is None else now_s + raised_s
                queues.offer(
                    value,
                    classes.names[classes.raised_rank] if raised_s is not None else class_,
                    now_s,
                    weight=weight,
                    expires_s=now_s + age_s,
                    raised_from=class_ if raised_s is not None else None,
                    raised_until_s=until_s,
                )
                obvious.offer(value, class_, now_s, weight, now_s + age_s, until_s)
            case "take":
                untold += obvious.expire(now_s)
                entry = queues.take(now_s)
                assert as_told(entry) == obvious.take(now_s)
                assert queues.peek_rank() == obvious.rank(now_s)
                if entry is not None:
                    in_hand[entry.raised_from or entry.class_] = entry
            case "put_back":
                if (entry := in_hand.pop(arguments[0], None)) is not None:
                    queues.put_back(entry.value, entry, now_s)
                    obvious.put_back(arguments[0], now_s)
            case "tick":
                assert queues.tick(now_s) == obvious.tick(now_s)
                assert queues.peek_rank() == obvious.rank(now_s)
                raised = {c: state.raised for c, state in queues.state().items()}
                assert raised == {c: obvious.is_raised(c, now_s) for c in classes.names}
            case "wait":
                now_s += arguments[0]
            case "expire":
                told = [entry.value for entry in queues.expire(now_s)]
                assert told == untold + obvious.expire(now_s)
                untold = []
            case "hold":
                queues.hold(*arguments)
                obvious.held[arguments[0]] = arguments[1]
            case "drop_oldest":
                dropped = queues.drop_oldest(*arguments)
                assert (dropped and dropped.value) == obvious.drop_oldest(*arguments)
            case "clear":
                queues.clear()
                obvious.clear()
        assert len(queues) == len(obvious.waiting)
        limits = [-math.inf] * bool(untold) + [entry.expires_s for entry in obvious.waiting]
        assert queues.next_expiry_s() == min(limits, default=math.inf)
        for class_ in classes.names:
            assert queues.waiting(class_) == obvious.weight(class_)
            assert queues.is_accepting(class_) == obvious.accepting[class_]


def flooded(*, high=2, upgrade=None, **counts):
    """Queues of the default classes in which so many entries wait since second 0."""
    queues = ClassQueues(DEFAULT_CLASSES, Marks(high=high, low=1), upgrade)
    for class_, count in counts.items():
        for number in range(count):
            queues.offer(f"{class_[0]}{number}", class_, 0.0)
    return queues


def taken(queues, count, now_s):
    return [entry.value for _ in range(count) if (entry := queues.take(now_s))]


def test_the_highest_class_goes_first_and_nothing_overtakes_inside_a_class():
    queues = flooded(regular=2, emergency=2, business=2)
    assert taken(queues, 6, 0.0) == ["e0", "e1", "b0", "b1", "r0", "r1"]


def test_a_class_stops_accepting_above_its_high_mark_until_it_is_down_to_its_low_mark():
    queues = flooded(regular=2)
    assert queues.is_accepting("regular")
    queues.offer("r2", "regular", 0.0)
    accepting = []
    while queues.take(0.0):
        accepting.append(queues.is_accepting("regular"))
    assert accepting == [False, True, True]


def test_a_class_over_its_mark_does_not_stop_another():
    queues = flooded(regular=9, business=9)
    state = queues.state()
    assert state["regular"] == ClassState(waiting=9, accepting=False, raised=False)
    assert state["emergency"] == ClassState(waiting=0, accepting=True, raised=False)


def test_marks_are_in_weights():
    queues = flooded()
    queues.offer("run", "business", 0.0, weight=3)
    assert queues.waiting("business") == 3
    assert not queues.is_accepting("business")


def test_what_is_too_old_leaves_from_wherever_it_waits():
    queues = flooded(regular=1)
    queues.offer("late", "regular", 0.0, expires_s=1.0)
    queues.offer("fresh", "regular", 0.0, expires_s=9.0)
    assert queues.next_expiry_s() == 1.0
    assert [entry.value for entry in queues.expire(1.0)] == ["late"]
    assert queues.waiting("regular") == 2
    assert queues.next_expiry_s() == 9.0
    assert taken(queues, 3, 1.0) == ["r0", "fresh"]


def test_what_is_too_old_is_not_taken_but_told_by_the_next_expire():
    queues = flooded()
    queues.offer("late", "regular", 0.0, expires_s=1.0)
    assert queues.take(1.0) is None
    assert queues.next_expiry_s() == -math.inf
    assert [entry.value for entry in queues.expire(1.0)] == ["late"]
    assert queues.expire(1.0) == []


def test_a_starving_class_is_raised_for_a_period_and_takes_turns():
    queues = flooded(business=20, regular=9, upgrade=Upgrade(after_s=1.0, period_s=2.0))
    assert queues.tick(0.9) == []
    assert queues.tick(1.0) == [Upgraded("regular", "business", 3.0)]
    assert queues.state()["regular"].raised
    assert taken(queues, 4, 1.0) == ["b0", "r0", "b1", "r1"]
    assert queues.tick(3.0) == [FellBack("regular")]
    assert taken(queues, 4, 3.0) == ["b2", "b3", "b4", "b5"]
    assert queues.tick(3.9) == []
    assert queues.tick(4.0) == [Upgraded("regular", "business", 6.0)]


def test_what_comes_during_an_upgrade_is_not_raised_with_what_waited():
    queues = flooded(business=20, regular=3, upgrade=Upgrade())
    queues.tick(1.0)
    queues.offer("later", "regular", 1.0)
    assert taken(queues, 8, 1.0) == ["b0", "r0", "b1", "r1", "b2", "r2", "b3", "b4"]


def test_the_highest_class_stays_strict_while_another_is_raised():
    queues = flooded(emergency=3, business=3, regular=3, upgrade=Upgrade())
    queues.tick(1.0)
    assert taken(queues, 5, 1.0) == ["e0", "e1", "e2", "b0", "r0"]


def test_of_two_classes_the_lower_takes_turns_with_the_higher():
    queues = ClassQueues(Classes(("high", "low")), Marks(1, 0), Upgrade())
    for class_ in ["high", "high", "low", "low"]:
        queues.offer(class_, class_, 0.0)
    queues.tick(1.0)
    assert taken(queues, 4, 1.0) == ["high", "low", "high", "low"]


def test_a_class_that_was_idle_does_not_starve_from_the_start():
    queues = flooded(upgrade=Upgrade(after_s=1.0))
    for number in range(9):
        queues.offer(number, "regular", 100.0)
    assert queues.tick(100.9) == []
    assert queues.tick(101.0) == [Upgraded("regular", "business", 102.0)]


def test_a_class_that_moves_is_not_raised():
    queues = flooded(regular=9, upgrade=Upgrade())
    for tenth in range(40):
        assert queues.tick(tenth / 10) == []
        if tenth % 9 == 0:
            queues.take(tenth / 10)


def test_what_was_raised_says_from_where_and_until_when():
    queues = flooded(regular=3, upgrade=Upgrade())
    queues.tick(1.0)
    entry = queues.take(1.5)
    assert (entry.class_, entry.raised_from, entry.raised_until_s) == ("business", "regular", 2.0)
    entry = queues.take(2.0)
    assert (entry.class_, entry.raised_from, entry.raised_until_s) == ("regular", None, 0.0)


def test_an_event_raised_elsewhere_keeps_its_new_priority_until_its_time_is_over():
    queues = flooded(business=4, upgrade=Upgrade(period_s=5.0))
    for value in ["x", "y"]:
        queues.offer(value, "business", 0.0, raised_from="regular", raised_until_s=2.0)
    assert queues.waiting("regular") == 2
    assert taken(queues, 2, 1.0) == ["b0", "x"]
    assert taken(queues, 4, 2.0) == ["b1", "b2", "b3", "y"]


def test_an_event_raised_elsewhere_takes_what_is_before_it_in_its_class_along():
    queues = flooded(business=4, regular=1, upgrade=Upgrade())
    queues.offer("x", "business", 0.0, raised_from="regular", raised_until_s=1.0)
    queues.offer("after", "regular", 0.0)
    assert taken(queues, 7, 0.5) == ["b0", "r0", "b1", "x", "b2", "b3", "after"]


def test_an_event_that_is_raised_for_longer_stays_so_when_one_behind_it_falls_back():
    queues = flooded(business=4, upgrade=Upgrade(period_s=5.0))
    queues.offer("longer", "business", 0.0, raised_from="regular", raised_until_s=2.0)
    queues.offer("shorter", "business", 0.0, raised_from="regular", raised_until_s=1.0)
    assert taken(queues, 4, 1.0) == ["b0", "longer", "b1", "b2"]


def test_an_upgrade_from_elsewhere_lasts_no_longer_than_our_own():
    queues = flooded(business=4, upgrade=Upgrade(period_s=1.0))
    queues.offer("x", "business", 0.0, raised_from="regular", raised_until_s=1e9)
    assert taken(queues, 2, 1.0) == ["b0", "b1"]


def test_without_an_upgrade_priority_is_strict():
    queues = flooded(business=4, regular=9)
    queues.offer("x", "business", 0.0, raised_from="regular", raised_until_s=1e9)
    assert queues.tick(1e6) == []
    assert taken(queues, 5, 1e6) == ["b0", "b1", "b2", "b3", "r0"]


def test_a_held_class_is_passed_by_and_not_raised():
    queues = flooded(business=2, regular=9, upgrade=Upgrade())
    queues.hold("regular", True)
    assert queues.tick(5.0) == []
    assert taken(queues, 9, 5.0) == ["b0", "b1"]
    assert queues.peek_rank() is None
    queues.hold("regular", False)
    assert queues.peek_rank() == 2


def test_a_class_that_is_raised_and_held_is_passed_by():
    queues = ClassQueues(Classes(tuple("abcd")), Marks(high=2, low=1), Upgrade())
    queues.offer("d", "d", 0.0)
    queues.offer("c", "b", 0.0, raised_from="c", raised_until_s=0.5)
    assert queues.peek_rank() == 1
    queues.hold("c", True)
    assert queues.peek_rank() == 3
    assert taken(queues, 2, 0.1) == ["d"]


def test_memory_stays_bounded_when_much_expires_behind_something_that_does_not_move():
    queues = flooded(regular=1)
    for second in range(10_000):
        queues.offer("short-lived", "regular", second, expires_s=second + 1)
        queues.expire(second)
    assert len(queues._by_name["regular"].queue) < 100
    assert len(queues._ageing) < 100


def test_memory_stays_bounded_when_much_is_taken_long_before_its_time():
    queues = flooded()
    for second in range(10_000):
        queues.offer("too old", "regular", second, expires_s=second)
        queues.offer("soon gone", "regular", second, expires_s=1e9)
        assert queues.take(second)
        assert len(queues.expire(second)) == 1
    assert len(queues._ageing) < 100


def test_a_class_that_there_is_not_is_refused_and_nothing_changes():
    queues = flooded()
    with pytest.raises(UsageError, match="no priority class 'urgent': this bus has emergency, b"):
        queues.offer("x", "urgent", 0.0)
    with pytest.raises(UsageError, match="no priority class 'urgent'"):
        queues.offer("x", "business", 0.0, raised_from="urgent", raised_until_s=9.0)
    assert len(queues) == 0


def test_every_class_needs_marks():
    with pytest.raises(UsageError, match="no watermarks for priority class 'business'"):
        ClassQueues(DEFAULT_CLASSES, {"emergency": Marks(1, 0)})
