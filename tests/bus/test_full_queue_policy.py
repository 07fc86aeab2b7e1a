"""What a full queue does, with plain values: runs come in, time is told, effects come out."""

from dataclasses import dataclass, field

import msgspec
import pytest

from infobus.bus.deliver.event import Run
from infobus.bus.deliver.full_queue import Crowd, Hold
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.queue import Inbox
from infobus.bus.deliver.subscription import WhenFull
from infobus.bus.stats import Counters
from infobus.errors import SlowConsumer
from infobus.patience import Patience
from infobus.protocols.effects import ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import lane_class, lane_of
from infobus.protocols.frames.wire import Item, Items
from infobus.protocols.qos.classes import DEFAULT_CLASSES
from infobus.protocols.reliable.effects import Effects, Lost
from infobus.protocols.reliable.node import Node
from infobus.protocols.reliable.peer import Terms

PATIENCE = Patience(pace_s=2.0, stuck_s=0.5)


@dataclass(eq=False)
class Consumer:
    """A subscription as far as its queue needs one; senders offer to it, and it takes."""

    when_full: WhenFull
    queue_count_max: int = 8
    demand: Demand = field(default_factory=Demand)
    patterns: tuple[str, ...] = ("x",)
    error: SlowConsumer | None = None
    sent: int = 0

    def __post_init__(self) -> None:
        self.queue = Inbox(Terms(), self.demand, self.queue_count_max)
        self.counters = Counters()
        self.node = Node("here", Terms(), lambda types: [])
        self.crowd: Crowd[Consumer] = Crowd(self.node, self.counters, self.end, PATIENCE)

    def end(self, subscription: "Consumer", error: SlowConsumer) -> Effects:
        self.error = error
        return []

    def offer(
        self, count: int, now_s: float, class_: str = "regular", initial: bool = False
    ) -> None:
        """The next events of a sender, each in a run of its own, as a node puts them in."""
        spelled = lane_class(DEFAULT_CLASSES, class_)
        for _ in range(count):
            self.sent += 1
            body = msgspec.msgpack.encode({"n": self.sent})
            items = Items.of([Item("x", self.sent, now_s, 0, body, None, None)])
            run = Run("a", lane_of("x", spelled), [self.sent], items, initial, class_=spelled)
            if spelled or self.queue.classed is not None:
                self.queue.offer_by_class(run, now_s, now_s)
            else:
                self.queue.offer(run)
            if self.queue.waiting_in(class_) > self.queue.high_count:
                self.crowd.look_at(self, class_, run.lane, now_s)

    def take(self, count: int, now_s: float = 0.0) -> list[int | tuple[int, int | None]]:
        """So many numbers of events, and losses in between as pairs of numbers."""
        taken: list[int | tuple[int, int | None]] = []
        events = 0
        while events < count:
            if self.queue.losses:
                lost = self.queue.next_loss()
                taken.append((lost.first, lost.last))
                continue
            entry = self.queue.take_by_class(now_s, now_s)
            if entry is None:
                plain = self.queue.mail.get_nowait()
                self.queue.note_look(plain)
                if isinstance(plain, Run):
                    self.queue.taken += 1
                if isinstance(plain, Run | Lost):
                    entry = plain
            if isinstance(entry, Run):
                taken.append(entry.seqs[0])
                events += 1
            elif isinstance(entry, Lost):
                taken.append((entry.first, entry.last))
        return taken


def test_below_half_of_the_queue_nothing_happens():
    consumer = Consumer("pace")
    consumer.offer(4, now_s=0.0)
    assert not consumer.crowd.holds
    assert consumer.take(4) == [1, 2, 3, 4]


@pytest.mark.parametrize("when_full", ["pace", "block"])
def test_from_half_of_the_queue_senders_are_held(when_full):
    consumer = Consumer(when_full)
    consumer.offer(5, now_s=0.0)
    assert consumer.queue.holding == {"regular"}
    assert consumer.queue.holds_class("") and not consumer.queue.holds_class("emergency")
    assert consumer.crowd.holds_lane("x") and not consumer.crowd.holds_lane("y")
    assert consumer.crowd.held_by("regular") is consumer


@pytest.mark.parametrize("when_full", ["pace", "block"])
def test_a_full_queue_refuses_frames_until_it_has_room(when_full):
    """Several senders, each with a window of its own, would make it grow past its bound."""
    consumer = Consumer(when_full)
    node = consumer.node
    node.add_interest(["x"], 0.0)
    node.peer_up("a", 0.0)
    node.take(wire.Known("a", node.own.version, 1, {"x": 1}), 0.0)
    for first in range(1, 10):
        frame = wire.Data("a", "x", first, Items.of([Item("x", first, 0.0, 0, b"", None, None)]))
        assert (node.take_next(frame, 1) if first > 1 else node.take(frame, 0.0)) is not None
        consumer.offer(1, now_s=0.0)
    late = wire.Data("a", "x", 10, frame.items)
    assert node.take_next(late, 1) is None and node.take(late, 0.0) == []
    consumer.take(7)
    [asked] = [one for one in consumer.crowd.look_again(consumer, 0.1) if is_question(one)]
    assert (asked.message.first, asked.message.last) == (10, 10)


def is_question(effect):
    return isinstance(effect, ToPeer) and isinstance(effect.message, wire.Ask)


@pytest.mark.parametrize("when_full", ["pace", "block"])
def test_senders_go_on_when_a_quarter_is_left(when_full):
    consumer = Consumer(when_full)
    consumer.offer(5, now_s=0.0)
    consumer.take(2)
    assert not consumer.queue.is_relieved()
    consumer.take(1)
    assert consumer.queue.is_relieved()
    consumer.crowd.look_again(consumer, 0.1)
    assert not consumer.crowd.holds and not consumer.queue.holding
    assert not consumer.queue.watched


def test_pace_ends_when_its_time_is_over_and_the_oldest_go_then():
    consumer = Consumer("pace")
    consumer.offer(8, now_s=0.0)
    for tenth in range(20):
        consumer.crowd.expire(tenth / 10)
        consumer.take(1) if tenth % 4 == 0 and tenth < 12 else None
    consumer.crowd.expire(2.0)
    assert not consumer.crowd.holds
    consumer.offer(5, now_s=2.1)  # 3 were taken: 10 would wait
    assert consumer.queue.waiting_count == 8
    assert consumer.counters.dropped_by_queue == 2
    assert consumer.take(8) == [(4, 5), 6, 7, 8, 9, 10, 11, 12, 13]


def test_pace_ends_sooner_for_a_consumer_that_is_stuck():
    consumer = Consumer("pace")
    consumer.offer(6, now_s=0.0)
    consumer.crowd.expire(0.4)
    assert consumer.crowd.holds
    consumer.crowd.expire(0.5)
    assert not consumer.crowd.holds


def test_a_consumer_that_moves_is_not_stuck():
    hold = Hold(since_s=0.0, moved_s=0.0, left_count=10)
    assert not hold.is_over(10, 0.4, PATIENCE)
    assert not hold.is_over(9, 0.8, PATIENCE)
    assert not hold.is_over(8, 1.2, PATIENCE)
    assert hold.is_over(8, 1.7, PATIENCE)


def test_block_holds_for_as_long_as_it_takes():
    consumer = Consumer("block")
    consumer.offer(12, now_s=0.0)
    consumer.crowd.expire(1e6)
    assert consumer.crowd.holds
    assert consumer.take(12) == list(range(1, 13))


def blocking(count: int) -> Consumer:
    """A consumer whose queue is filled by a peer that has sent so many events."""
    consumer = Consumer("block")
    node = consumer.node
    node.peer_up("a", 0.0)
    node.add_interest(["x"], 0.0)
    node.take(wire.Known("a", node.own.version, 1), 0.0)
    items = [Item("x", n, 0.0, 0, b"") for n in range(1, count + 1)]
    node.take(wire.Data("a", "x", 1, Items.of(items)), 0.0)
    consumer.offer(count, now_s=0.0)
    return consumer


def confirmed(effects: Effects) -> list[wire.Ack]:
    return [e.message for e in effects if isinstance(getattr(e, "message", None), wire.Ack)]


def test_block_shows_its_senders_that_its_consumer_moves():
    consumer = blocking(7)
    seen = []
    for tenth in range(0, 400, 5):
        if tenth in (100, 200, 205, 300):
            consumer.take(1)
        seen += confirmed(consumer.crowd.expire(tenth / 10))
    expected = [2, 3, 4, 5]  # not for every event: signs are to last
    assert seen == [wire.Ack("here", {"x": number}, True, "a") for number in expected[: len(seen)]]
    assert len(seen) == 4
    assert consumer.crowd.holds


def test_block_shows_no_sign_of_a_consumer_that_is_stuck():
    consumer = blocking(7)
    assert not any(consumer.crowd.expire(now_s / 10) for now_s in range(1000))


def test_block_takes_more_in_once_it_has_no_other_sign():
    """A queue that refuses more, and has confirmed all that came, would look stuck."""
    consumer = blocking(10)
    consumer.node.pause("x", True, 0.0)
    consumer.node.peers["a"].receivers["x"].acked = 11
    consumer.crowd.expire(10.0)
    consumer.take(1)
    consumer.crowd.expire(20.0)
    assert not consumer.crowd.holds
    assert not consumer.node.peers["a"].receivers["x"].paused


def test_once_it_has_caught_up_it_is_waited_for_again():
    consumer = Consumer("pace")
    consumer.offer(6, now_s=0.0)
    consumer.crowd.expire(3.0)
    consumer.take(6)
    consumer.crowd.look_again(consumer, 3.1)
    consumer.offer(6, now_s=4.0)
    assert consumer.crowd.holds


def test_drop_oldest_drops_only_what_is_too_much():
    consumer = Consumer("drop_oldest")
    consumer.offer(11, now_s=0.0)
    assert not consumer.crowd.holds
    assert consumer.take(8) == [(1, 3), 4, 5, 6, 7, 8, 9, 10, 11]
    assert consumer.counters.dropped_by_queue == 3


@pytest.mark.parametrize("class_", ["regular", "emergency"])
def test_the_word_of_a_loss_is_not_moved_behind_events_that_came_after_it(class_):
    consumer = Consumer("drop_oldest")
    consumer.offer(2, now_s=0.0, class_=class_)
    consumer.sent = 5  # 3 to 5 are lost on the way
    lane = lane_of("x", lane_class(DEFAULT_CLASSES, class_))
    consumer.queue.offer_loss(Lost("a", lane, 3, 5), 0.0)
    consumer.offer(12, now_s=0.0, class_=class_)
    told = consumer.take(8)
    assert told[-8:] == list(range(10, 18))
    assert sorted(told[:-8]) == [(1, 9), (3, 5)]


def test_disconnect_ends_it_with_the_reason():
    consumer = Consumer("disconnect")
    consumer.offer(8, now_s=0.0)
    assert consumer.error is None
    consumer.offer(1, now_s=0.0)
    assert isinstance(consumer.error, SlowConsumer)
    assert "9 events behind (queue_count_max=8)" in str(consumer.error)


def test_a_flood_of_one_class_holds_no_other():
    consumer = Consumer("pace")
    consumer.offer(6, now_s=0.0)
    consumer.offer(2, now_s=0.0, class_="emergency")
    assert consumer.queue.holding == {"regular"}
    assert consumer.take(4) == [7, 8, 1, 2]


def test_what_grew_too_old_leaves_the_queue():
    consumer = Consumer("pace", demand=Demand(max_age=1.0))
    consumer.offer(2, now_s=0.0)
    consumer.offer(1, now_s=0.9)
    assert [run.seqs[0] for run in consumer.queue.tick(1.5)] == [1, 2]
    assert consumer.take(1, now_s=1.5) == [3]


def test_a_rate_leaves_out_what_is_too_much():
    consumer = Consumer("pace", queue_count_max=100, demand=Demand(max_rate=2.0))
    for tenth in range(50):
        consumer.offer(1, now_s=tenth / 10)
    taken = consumer.queue.waiting_count
    assert consumer.queue.thinned == 50 - taken
    assert 10 <= taken <= 13


def test_what_came_before_there_were_classes_stays_the_first_of_its_class():
    consumer = Consumer("pace", queue_count_max=100)
    consumer.offer(3, now_s=0.0)
    consumer.offer(1, now_s=0.0, class_="emergency")
    consumer.offer(2, now_s=0.0)
    assert consumer.take(6) == [4, 1, 2, 3, 5, 6]


@pytest.mark.parametrize("had_classes", [False, True])
def test_initial_state_goes_before_whatever_followed_it(had_classes):
    """An emergency that was published after the state overtook it, in a queue by class."""
    consumer = Consumer("block", queue_count_max=100)
    if had_classes:
        consumer.offer(1, now_s=0.0, class_="emergency")
        consumer.take(1)
    first = consumer.sent + 1
    consumer.offer(2, now_s=0.0, initial=True)
    consumer.offer(1, now_s=0.0)
    consumer.offer(1, now_s=0.0, class_="emergency")
    assert consumer.queue.waiting_count == 4
    assert consumer.take(4) == [first, first + 1, first + 3, first + 2]
    assert consumer.queue.waiting_count == 0


@pytest.mark.parametrize("had_classes", [False, True])
def test_initial_state_that_is_out_of_date_goes_with_the_rest(had_classes):
    consumer = Consumer("block", queue_count_max=100)
    if had_classes:
        consumer.offer(1, now_s=0.0, class_="emergency")
    consumer.offer(2, now_s=0.0, initial=True)
    consumer.queue.clear()
    assert (consumer.queue.waiting_count, consumer.queue.is_empty()) == (0, True)
