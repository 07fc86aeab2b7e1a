"""A subscription's queue by class, against a plain list of everything that waits."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.bus.deliver.event import Event, Run, events_of
from infobus.bus.deliver.priority_queue import Classed, Demand
from infobus.protocols.frames.lanes import lane_class, lane_of
from infobus.protocols.frames.wire import Item, Items, Qos
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Marks, Upgrade
from infobus.protocols.reliable.peer import Terms

NAMES = DEFAULT_CLASSES.names
MARKS = Marks(high=3, low=1)
WALL_S = 1e9  # the events' clock shows so much more


def a_run(
    sender: str, class_: str, first: int, count: int, now_s: float, qos: Qos | None = None
) -> Run:
    """Events {"n": first} and so on, as they come in from another node."""
    spelled = lane_class(DEFAULT_CLASSES, class_)
    items = [
        Item("x", n, now_s + WALL_S, 0, msgspec.msgpack.encode({"n": n}), None, qos)
        for n in range(first, first + count)
    ]
    seqs = range(first, first + count)
    return Run(sender, lane_of("x", spelled), seqs, Items.of(items), class_=spelled)


@dataclass
class Consumer:
    """Takes events one by one, as a subscription does: what is urgent goes before what is at hand.

    `waiting` is the oracle: what was offered and not delivered yet, in the order it came.
    """

    upgrade: Upgrade | None
    now_s: float = 10.0
    waiting: list[Event] = field(default_factory=list)
    hand: list[Event] = field(default_factory=list)  # the next one is last
    is_hand_raised: bool = False
    is_interrupted: bool = False

    def __post_init__(self) -> None:
        self.queue = Classed(Terms(upgrade=self.upgrade), Demand(), MARKS)
        self.raised_until_s = dict.fromkeys(NAMES, 0.0)
        self.is_crowded = dict.fromkeys(NAMES, False)
        self.moved_s = dict.fromkeys(NAMES, 0.0)
        self.taken: set[int] = set()  # what is, or was, at hand: its numbers

    def offer(
        self, sender: str, class_: str, first: int, count: int, raised_s: float = 0.0
    ) -> None:
        """Let events come in, raised for so long by their sender."""
        qos = None
        if raised_s:
            qos = Qos(raised_until=self.now_s + WALL_S + raised_s)
        if self.upgrade and raised_s > 0 and class_ == "regular":
            until_s = self.now_s + min(raised_s, self.upgrade.period_s)
            self.raised_until_s[class_] = max(self.raised_until_s[class_], until_s)
        run = a_run(sender, class_, first, count, self.now_s, qos)
        self.waiting += events_of(run, print, NAMES[-1])
        assert self.queue.offer(run, self.now_s, self.now_s + WALL_S) == {class_}
        self.is_interrupted |= self.queue.is_urgent()
        self.note_crowd()

    def receive(self) -> Event | None:
        """The next event. Fails if it overtakes another of its class, or of a higher one."""
        if self.is_interrupted:
            self.queue.set_aside(self.hand, self.now_s)
            self.hand, self.is_interrupted = [], False
        if not self.hand and not self.take():
            assert not self.waiting, "nothing comes, and something waits"
            return None
        event = self.hand.pop()
        own = [other for other in self.waiting if other.priority == event.priority]
        assert event == own[0], "inside a class nothing overtakes"
        higher = NAMES[: 1 if self.is_hand_raised else NAMES.index(event.priority)]
        assert not [other for other in self.waiting if other.priority in higher]
        self.waiting.remove(event)
        return event

    def take(self) -> bool:
        got = self.queue.take(self.now_s)
        if got is None:
            return False
        if isinstance(got, Run):
            got = events_of(got, print, NAMES[-1])[::-1]
        assert isinstance(got, list)
        self.hand = got
        self.taken |= {event.number for event in got}
        class_ = got[-1].priority
        self.is_hand_raised = self.raised_until_s[class_] > self.now_s
        self.moved_s[class_] = self.now_s
        self.note_crowd()
        return True

    def drop_oldest(self, class_: str) -> None:
        dropped, _lost = self.queue.drop_oldest(class_)
        in_queue = [event for event in self.of(class_) if event.number not in self.taken]
        gone = [] if dropped is None else events_of(dropped, print, NAMES[-1])
        assert gone == in_queue[: len(gone)]
        assert bool(gone) == bool(in_queue)
        self.waiting = [event for event in self.waiting if event not in gone]
        self.note_crowd()

    def tick(self) -> None:
        assert self.queue.tick(self.now_s) == []
        self.is_interrupted |= self.queue.is_urgent()
        starving_s = self.now_s - self.moved_s["regular"]
        if self.upgrade and self.is_crowded["regular"] and starving_s >= self.upgrade.after_s:
            self.raised_until_s["regular"] = self.now_s + self.upgrade.period_s

    def of(self, class_: str) -> list[Event]:
        return [event for event in self.waiting if event.priority == class_]

    def note_crowd(self) -> None:
        for class_ in NAMES:
            count = sum(event.number not in self.taken for event in self.of(class_))
            assert self.queue.waiting_in(class_) == count
            if count > MARKS.high and not self.is_crowded[class_]:
                self.is_crowded[class_], self.moved_s[class_] = True, self.now_s
            elif count <= MARKS.low:
                self.is_crowded[class_] = False


classes = st.sampled_from([*NAMES, "regular"])  # most is regular
raised_s = st.sampled_from([0.0, 0.0, 0.0, 0.5, 100.0, -1.0])
offers = st.tuples(st.just("offer"), st.sampled_from("ab"), classes, st.integers(1, 6), raised_s)
steps = st.one_of(
    offers,
    offers,
    st.tuples(st.just("receive"), st.integers(1, 3)),
    st.tuples(st.just("receive"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.4, 1.0])),
    st.tuples(st.just("drop_oldest"), classes),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([None, Upgrade()]), st.lists(steps, min_size=20, max_size=60))
def test_nothing_overtakes_inside_a_class_and_only_upgrades_do_between_them(upgrade, run):
    consumer, number = Consumer(upgrade), 0
    for what, *arguments in run:
        match what:
            case "offer":
                sender, class_, count, raised_for_s = arguments
                consumer.offer(sender, class_, number, count, raised_for_s)
                number += count
            case "receive":
                for _ in range(arguments[0]):
                    consumer.receive()
            case "wait":
                consumer.now_s += arguments[0]
                consumer.tick()
            case "drop_oldest":
                consumer.drop_oldest(*arguments)
    while consumer.receive() is not None:
        pass


def numbers(consumer: Consumer, count: int) -> list[int]:
    return [event.number for _ in range(count) if (event := consumer.receive()) is not None]


def test_what_was_set_aside_stays_first_of_its_class_when_that_is_raised():
    consumer = Consumer(Upgrade())
    consumer.offer("a", "regular", 0, 4)
    assert numbers(consumer, 1) == [0]
    consumer.offer("a", "regular", 4, 5)  # above the high mark
    consumer.offer("a", "emergency", 100, 2)
    assert numbers(consumer, 1) == [100]
    consumer.now_s += 1.0
    consumer.tick()
    assert numbers(consumer, 9) == [101, *range(1, 9)]


def test_what_its_sender_raised_takes_turns_until_then_with_what_waits_before_it():
    consumer = Consumer(Upgrade())
    for n in range(8):
        consumer.offer("a", "business", 100 + n, 1)
        consumer.offer("a", "regular", n, 1, raised_s=0.5 if n == 3 else 0.0)
    assert numbers(consumer, 4) == [100, 0, 101, 1]
    consumer.now_s += 0.5
    assert numbers(consumer, 12) == [*range(102, 108), *range(2, 8)]


def test_what_came_raised_before_there_were_classes_is_still_raised():
    consumer = Consumer(Upgrade())
    raised = a_run("a", "regular", 0, 1, 10.0, Qos(raised_until=WALL_S + 10.5))
    consumer.offer("a", "regular", 1, 1, raised_s=0.5)
    consumer.offer("a", "business", 100, 1)
    consumer.offer("a", "business", 101, 1)
    consumer.waiting[:0] = events_of(raised, print, "regular")
    consumer.queue.put_first([raised], 10.0, WALL_S + 10.0)
    assert numbers(consumer, 4) == [100, 0, 101, 1]


def test_a_consumer_that_chose_a_class_is_not_told_what_goes_first():
    queue = Classed(Terms(), Demand(priority="regular"), MARKS)
    queue.offer(a_run("a", "regular", 0, 1, 10.0, Qos(raised_until=WALL_S + 11)), 10.0, WALL_S + 10)
    assert not queue.is_urgent()
