"""The receiving half of a route, against an account that is kept by hand."""

from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.reliable.channel import AskAgain, Deliver, Receiver, ReportLoss

arrivals = st.tuples(st.just("data"), st.integers(1, 30), st.integers(1, 5))
ends = st.tuples(st.just("end"), st.integers(1, 30), st.just(0))
gones = st.tuples(st.just("gone"), st.integers(1, 30), st.just(0))
pauses = st.tuples(st.just("pause"), st.integers(0, 1), st.just(0))
ticks = st.tuples(st.just("tick"), st.integers(0, 20), st.just(0))


def numbers(first, count):
    return list(range(first, first + count))


def play(receiver, steps):
    """Everything the receiver says, in order, when fed with `steps`."""
    now_s, effects = 0.0, []
    for what, number, count in steps:
        match what:
            case "data":
                effects += receiver.on_data(number, numbers(number, count), now_s)
            case "end":
                effects += receiver.on_end(number, now_s)
            case "gone":
                if receiver.next is not None and number >= receiver.next:
                    effects += receiver.on_gone(number, now_s)
            case "pause":
                effects += receiver.on_pause(bool(number), now_s)
            case "tick":
                now_s += number / 10
                effects += receiver.on_tick(now_s)
        assert receiver.held_count == sum(map(len, receiver.held.values()))
        assert receiver.held_count <= receiver.held_count_max
        assert receiver.next is None or all(first > receiver.next for first in receiver.held)
    return effects, now_s


def account(effects):
    """The numbers that were delivered or reported, in order."""
    told = []
    for effect in effects:
        match effect:
            case Deliver(first, items):
                assert list(items) == numbers(first, len(items))
                told += items
            case ReportLoss(first, last):
                told += range(first, last + 1)
    return told


@given(st.integers(1, 5), st.lists(st.one_of(arrivals, ends, gones, pauses, ticks), max_size=60))
def test_each_number_is_delivered_or_reported_exactly_once_in_order(baseline, steps):
    receiver = Receiver(held_count_max=12)
    receiver.on_baseline(baseline, 0.0)
    effects, _ = play(receiver, steps)
    told = account(effects)
    assert told == numbers(baseline, len(told))
    assert receiver.next == baseline + len(told)


@given(st.lists(arrivals, max_size=20), st.integers(1, 10))
def test_what_came_before_the_baseline_is_neither_delivered_nor_missed(steps, baseline):
    receiver = Receiver(held_count_max=1000)
    effects, now_s = play(receiver, steps)
    assert effects == []
    effects = receiver.on_baseline(baseline, now_s)
    assert all(number >= baseline for number in account(effects))
    assert all(effect.first >= baseline for effect in effects)


@given(st.lists(st.one_of(arrivals, ends, ticks), max_size=40))
def test_a_receiver_that_hears_nothing_more_comes_to_an_end(steps):
    receiver = Receiver(next=1, held_count_max=12)
    effects, now_s = play(receiver, steps)
    for _ in range(2000):
        now_s += 0.1
        effects += receiver.on_tick(now_s)
    assert not receiver.has_hole()
    assert receiver.ask_at_s is None
    known_to_exist = [number + count for what, number, count in steps if what != "tick"]
    assert len(account(effects)) >= max(known_to_exist, default=1) - 1


@given(st.permutations(range(8)), st.integers(1, 3))
def test_frames_in_any_order_are_delivered_in_order_without_loss(order, size):
    receiver = Receiver(next=1)
    effects = []
    for at in order:
        first = 1 + at * size
        effects += receiver.on_data(first, numbers(first, size), 0.0)
    assert account(effects) == numbers(1, 8 * size)
    assert not any(isinstance(effect, ReportLoss) for effect in effects)


def test_a_hole_is_asked_for_at_once_and_then_with_growing_pauses_and_given_up():
    receiver = Receiver(next=1, tries_max=4, ask_every_s=0.125)
    assert receiver.on_data(3, [3], 0.0) == [AskAgain(1, 2)]
    said = [(t / 8, e) for t in range(1, 40) for e in receiver.on_tick(t / 8)]
    assert said == [
        (0.125, AskAgain(1, 2)),
        (0.375, AskAgain(1, 2)),
        (0.875, AskAgain(1, 2)),
        (1.875, ReportLoss(1, 2)),
        (1.875, Deliver(3, [3])),
    ]


def test_a_tail_that_a_heartbeat_tells_of_is_given_time_to_arrive():
    receiver = Receiver(next=1)
    assert receiver.on_end(4, 0.0) == []
    assert receiver.on_tick(0.1) == []
    assert receiver.on_tick(0.2) == [AskAgain(1, 3)]


def test_a_growing_hole_is_asked_for_only_where_it_is_new():
    receiver = Receiver(next=1)
    assert receiver.on_data(3, [3], 0.0) == [AskAgain(1, 2)]
    assert receiver.on_data(5, [5], 0.0) == []
    assert receiver.on_data(1, [1, 2], 0.0) == [Deliver(1, [1, 2]), Deliver(3, [3]), AskAgain(4, 4)]


def test_the_fast_path_takes_only_the_very_next_frame():
    receiver = Receiver(next=1)
    assert receiver.accept(1, 2)
    assert not receiver.accept(1, 2)
    assert not receiver.accept(4, 1)
    receiver.on_data(5, [5], 0.0)
    assert not receiver.accept(3, 2), "what is held must follow it"
    receiver.on_data(3, [3, 4], 0.0)
    receiver.on_pause(True, 0.0)
    assert not receiver.accept(6, 1)


def test_what_was_refused_while_paused_is_asked_for_as_soon_as_there_is_room():
    receiver = Receiver(next=1)
    receiver.on_pause(True, 0.0)
    assert receiver.on_data(1, [1, 2], 0.0) == []
    assert receiver.on_tick(5.0) == []
    assert receiver.on_pause(False, 5.0) == [AskAgain(1, 2)]


def test_nothing_is_held_while_paused_even_before_the_baseline():
    receiver = Receiver(paused=True)
    assert receiver.on_data(1, [1, 2], 0.0) == []
    assert receiver.on_baseline(1, 0.0) == []
    assert receiver.on_pause(False, 0.0) == [AskAgain(1, 2)]


def test_a_vanished_sender_leaves_no_hole_open():
    receiver = Receiver(next=1)
    receiver.on_data(2, [2], 0.0)
    receiver.on_data(4, [4], 0.0)
    receiver.on_end(7, 0.0)
    assert receiver.on_sender_lost(0.0) == [
        ReportLoss(1, 1),
        Deliver(2, [2]),
        AskAgain(3, 3),
        ReportLoss(3, 3),
        Deliver(4, [4]),
        ReportLoss(5, 6),
    ]
