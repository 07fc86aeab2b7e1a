"""The sending half of a route, against a slow and obvious model of it."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.reliable.channel import NO_LIMIT, Sender

NODES = ["a", "b", "c"]


def sender(**terms):
    return Sender(**{"window_count_max": 8, "window_bytes_max": 1000, "stall_s": 2.0, **terms})


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3), st.just("")),
        st.tuples(st.just("join"), st.just(0), st.sampled_from(NODES)),
        st.tuples(st.just("leave"), st.just(0), st.sampled_from(NODES)),
        st.tuples(st.just("away"), st.just(0), st.sampled_from(NODES)),
        st.tuples(st.just("back"), st.just(0), st.sampled_from(NODES)),
        st.tuples(st.just("ack"), st.integers(0, 40), st.sampled_from(NODES)),
        st.tuples(st.just("tick"), st.integers(0, 15), st.just("")),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_a_waited_for_receiver_lacks_can_be_asked_for(steps):
    """The model keeps every frame for ever, and each receiver's place in the stream."""
    route, now_s = sender(), 0.0
    frames, places = [], {}  # (first, end, frame); node -> next number
    absent: set[str] = set()
    for what, number, node in steps:
        match what:
            case "send" if route.has_room():
                first = route.next
                frame = f"{first}+{number}".encode()
                route.sent(frame, number)
                frames.append((first, first + number, frame))
            case "join":
                assert route.join(node, now_s) == places.setdefault(node, route.next)
            case "leave":
                route.leave(node)
                places.pop(node, None)
                absent.discard(node)
            case "away" if node in places:
                route.away(node)
                absent.add(node)
            case "back":
                route.back(node, now_s)
                absent.discard(node)
            case "ack":
                route.on_ack(node, number, False, now_s)
                if node in places:
                    places[node] = max(places[node], min(number, route.next))
            case "tick":
                now_s += number / 10
                route.on_tick(now_s)
        waited_for = {n: p.next for n, p in route.receivers.items() if p.waited_for}
        assert {n: p.next for n, p in route.receivers.items()} == places
        for place in waited_for.values():
            expected = [f for first, end, f in frames if end > place]
            assert route.on_ask(place, route.next - 1) == (expected, None)
        if waited_for:
            assert route.next < min(waited_for.values()) + route.window_count_max + 3
            assert route.limit == min(waited_for.values()) + route.window_count_max
            assert route.is_confirmed() == (min(waited_for.values()) == route.next)
        else:
            assert route.limit == NO_LIMIT
            assert route.is_confirmed()
        assert route.is_quiet() == all(place == route.next for place in places.values())
        kept = sum(len(frame) for _, _, frame in route.buffer)
        assert route.sent_bytes - route.freed_bytes == kept
        assert not absent & waited_for.keys()
        assert sum(end - first for first, end, _ in route.retained) <= route.window_count_max
        assert route.retained_bytes == sum(len(frame) for _, _, frame in route.retained)
        if not route.keeps:
            assert not route.retained


def test_what_an_absent_receiver_lacks_is_kept_beside_the_window():
    route = sender(window_count_max=2)
    route.join("away", 0.0)
    route.join("here", 0.0)
    route.sent(b"1", 2)
    assert not route.has_room()
    route.away("away")
    route.on_ack("here", 3, False, 0.1)
    assert route.has_room()
    assert route.is_confirmed()
    assert route.on_ask(1, 2) == ([b"1"], None)
    route.back("away", 1.0)
    assert route.lagging() == ["away"]
    route.on_ack("away", 3, False, 1.1)
    assert not route.retained


def test_an_absent_receiver_that_missed_more_than_is_kept_hears_which_numbers():
    route = sender(window_count_max=2)
    route.join("away", 0.0)
    route.away("away")
    for _ in range(3):
        route.sent(b"x", 2)
        route.on_tick(0.1)
    route.back("away", 1.0)
    assert route.has_room(), "it is not waited for"
    assert route.on_ask(1, 6) == ([b"x"], (1, 4))
    route.on_ack("away", 7, False, 1.1)
    assert route.receivers["away"].waited_for
    assert not route.retained


def test_a_stalled_receiver_that_is_back_among_what_is_retained_can_ask_for_it():
    """It was waited for, and what it lacked went when an absent one no longer needed it."""
    route = sender(window_count_max=2)
    route.join("slow", 0.0)
    route.join("away", 0.0)
    route.away("away")
    route.sent(b"1", 2)
    route.on_tick(0.0)
    assert route.on_tick(2.0) == ["slow"]
    route.on_ack("slow", 2, False, 2.1)
    assert route.receivers["slow"].waited_for
    route.leave("away")
    assert route.on_ask(2, 2) == ([b"1"], None)
    route.on_ack("slow", 3, False, 2.2)
    assert not route.retained


def test_a_receiver_that_is_back_and_silent_keeps_nothing_for_long():
    route = sender(window_count_max=2)
    route.join("away", 0.0)
    route.away("away")
    for _ in range(3):
        route.sent(b"x", 2)
        route.on_tick(0.1)
    route.back("away", 1.0)
    route.on_tick(2.9)
    assert route.retained
    route.on_tick(3.0)
    assert not route.retained


def test_a_stalled_receiver_is_waited_for_no_longer_than_stated_and_again_once_it_is_back():
    route = sender(window_count_max=2)
    route.join("slow", 0.0)
    route.join("fast", 0.0)
    route.sent(b"x", 2)
    route.on_ack("fast", 3, False, 0.1)
    assert not route.has_room()
    assert [route.on_tick(t) for t in (1.0, 2.9, 3.0)] == [[], [], ["slow"]]
    assert route.has_room()
    assert route.on_ask(1, 2) == ([], (1, 2)), "its events are no longer kept"
    route.on_ack("slow", 3, False, 3.1)
    assert route.receivers["slow"].waited_for


def test_a_receiver_that_says_it_holds_on_purpose_is_waited_for():
    route = sender(window_count_max=2)
    route.join("held", 0.0)
    route.sent(b"x", 3)
    for now_s in range(10):
        route.on_ack("held", 2, True, float(now_s))
        assert route.on_tick(float(now_s)) == []
    assert not route.has_room()


def held(route, number, until_s, since_s=0.0):
    """The receiver `r` says so long that it is held: when it was no longer waited for."""
    for tenth in range(round(10 * since_s), round(10 * until_s) + 1):
        route.on_ack("r", number, True, tenth / 10)
        if route.on_tick(tenth / 10):
            return tenth / 10
    return None


def test_a_receiver_that_never_confirmed_anything_cannot_hold_a_sender():
    """One frame with a window of 1, and then nothing but "held", stopped a publisher for good."""
    route = sender(stall_s=2.0, hold_s=60.0)
    route.join("r", 0.0, window=1)
    route.sent(b"x", 1)
    assert held(route, 1, 100.0) == 2.0
    assert route.has_room()


def test_a_receiver_whose_consumer_takes_nothing_holds_a_sender_for_a_bounded_time():
    route = sender(stall_s=2.0, hold_s=60.0, window_count_max=2)
    route.join("r", 0.0)
    route.sent(b"x", 3)
    assert held(route, 2, 100.0) == 60.0
    route.on_ack("r", 4, False, 70.0)  # it is back, and waited for, but must earn its time anew
    route.sent(b"x", 2)
    assert held(route, 4, 200.0, since_s=71.0) == 73.0


def test_a_receiver_whose_consumer_takes_something_now_and_then_is_waited_for():
    route = sender(stall_s=2.0, hold_s=60.0, window_count_max=10)
    route.join("r", 0.0)
    route.sent(b"x", 12)
    for number in range(10):
        assert held(route, 2 + number, 50.0 * (number + 1), since_s=50.0 * number) is None


def test_a_receiver_not_waited_for_still_hears_of_the_tail():
    route = sender(window_count_max=2)
    route.join("slow", 0.0)
    route.sent(b"x", 2)
    route.on_tick(0.0)
    assert route.on_tick(2.0) == ["slow"]
    assert route.is_confirmed()
    assert not route.is_quiet()


def test_nobody_can_confirm_what_was_not_sent():
    route = sender()
    route.join("liar", 0.0)
    route.on_ack("liar", 1000, False, 0.0)
    route.sent(b"x", 1)
    assert not route.is_confirmed()


def test_the_window_is_bounded_in_bytes_too():
    route = sender(window_bytes_max=10)
    route.join("a", 0.0)
    route.sent(b"0123456789", 1)
    assert not route.has_room()
    route.on_ack("a", 2, False, 0.0)
    assert route.has_room()


def test_one_answer_does_not_replay_a_whole_window():
    route, frame = sender(), bytes(3 * 1024 * 1024)
    route.join("a", 0.0)
    for _ in range(6):
        route.sent(frame, 1)
    frames, gone = route.on_ask(2, 6)
    assert (len(frames), gone) == (3, None)


@pytest.mark.world
def test_a_question_may_be_answered_while_the_publisher_goes_on():
    """Iterating the buffer itself raised: it was changed by the publisher's thread."""
    route = sender(window_count_max=1 << 40, window_bytes_max=1 << 40)
    route.join("a", 0.0)
    stop = threading.Event()

    def publish():
        while not stop.is_set() and route.next < 200_000:
            route.sent(b"x", 1)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        for _ in range(30):
            route.on_ask(1, 20_000)
    finally:
        stop.set()
        publisher.join()


def test_patience_begins_anew_with_every_window_that_fills():
    """A window that had filled long ago made its receiver stall at once (seeds 5121, 8041)."""
    route = sender(window_count_max=1, stall_s=2.0)
    route.join("a", 0.0)
    route.sent(b"", 1)
    assert route.on_tick(0.0) == []
    route.on_ack("a", 2, False, 0.1)
    route.sent(b"", 1)
    assert route.on_tick(100.0) == []
    assert route.on_tick(101.9) == []
    assert route.on_tick(102.0) == ["a"]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), min_size=1, max_size=12))
def test_whoever_asks_hears_of_numbers_that_no_event_has(steps):
    """However sent and lost numbers take turns, each question brings the account further."""
    route, fate = sender(window_count_max=100), {}
    for is_lost, count in steps:
        fate |= dict.fromkeys(range(route.next, route.next + count), is_lost)
        route.sent(b"" if is_lost else b"%d %d" % (route.next, route.next + count), count)
    next_number, account = 1, {}
    while next_number < route.next:
        frames, gone = route.on_ask(next_number, route.next - 1)
        assert frames or gone
        if gone is not None:
            assert gone[0] == next_number
            account |= dict.fromkeys(range(gone[0], gone[1] + 1), True)
            next_number = gone[1] + 1
        for frame in frames:
            first, end = map(int, frame.split())
            assert first <= next_number < end
            account |= dict.fromkeys(range(next_number, end), False)
            next_number = end
    assert account == fate
