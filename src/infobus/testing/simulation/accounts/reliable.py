"""The account that must come out even: what was published against what was delivered or lost.

An `Account` watches simulated nodes from outside. It knows nothing of how they work, only
what they promise:

* no subscription gets an event twice, or a sender's events of one lane out of order, or one
  that was published before anything on its node wanted the channel;
* of each sender's lane a node delivers or reports every number, from where it began;
* an event published while its publisher had said that it knows the subscription is delivered,
  or lies in a reported loss, unless publisher or subscription end first, or the subscription
  gets a filter that does not let it through;
* nothing is delivered before the word of what was missed before it;
* each consumer that may have missed something hears of the loss, once;
* a loss of unknown size is reported only where the sender had indeed given the node up, or the
  node the sender, which takes `absent_s`, or where the node stood still and so cannot know; every
  other hole has numbers;
* that a sender is out of reach is told if it is, or if it is seen again and nothing that it answers
  arrives, and once until the two have met again;
* the rows of a node that is out of sight for longer than `absent_s` are gone;
* nobody complains that it misses a node which it has seen in the last `MISSED_S`;
* once every table is up to date, nothing is sent that nobody wants (unless tables must be small).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from infobus.bus.deliver.event import Event
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import channel_in, lane_of
from infobus.protocols.interest.own_rows import touches
from infobus.protocols.reliable.effects import Events, Lost
from infobus.subjects import channel_of
from infobus.testing.simulation.nodes.reliable import (
    TICK_S,
    Attributes,
    SimulatedNode,
    SimulatedSubscription,
)

Stream = tuple[str, str, str]  # receiving node, sender, lane

MISSED_S = 5.0
CONFIRM_S = 1.0  # within which a confirmation has come, though some are lost


class Uneven(AssertionError):
    """A promise was broken."""


@dataclass
class _Ledger:
    """What one subscription is owed and has got."""

    last: dict[tuple[str, str], int] = field(default_factory=dict)  # sender, lane -> event
    before: dict[tuple[str, str], int] = field(default_factory=dict)  # what left before it began
    owed: dict[tuple[str, str], dict[int, Debt]] = field(default_factory=dict)


class Debt(NamedTuple):
    """An event that a subscription is owed, by its number on the route; None: quenched."""

    number: int | None
    subject: str
    attributes: Attributes


@dataclass
class Account:
    """The witness of one simulated run. Raises `Uneven` as soon as a promise is broken."""

    depth: int = 1
    absent_s: float = 3.0  # a node that is away for less is not given up
    blameless: Iterable[str] = ()  # senders whose events nothing has happened to
    nodes: dict[str, SimulatedNode] = field(default_factory=dict)  # those alive
    stood_still: set[str] = field(default_factory=set)  # nodes that were ever frozen
    rested: set[str] = field(default_factory=set)  # nodes whose consumers ever took nothing
    trace: list[tuple[object, ...]] = field(default_factory=list)
    error: Exception | None = None
    is_exact: bool = False  # every table is up to date and tells exactly what is wanted
    published_count: int = 0
    quenched_count: int = 0
    delivered_count: int = 0
    lost_count: int = 0
    unknown_count: int = 0  # of these, the losses of unknown size
    unreachable_count: int = 0
    ledgers: dict[SimulatedSubscription, _Ledger] = field(default_factory=dict)
    _events: dict[tuple[str, str], int] = field(default_factory=dict)  # last that left, by lane
    _expected: dict[Stream, int] = field(default_factory=dict)
    _baselines: dict[Stream, int] = field(default_factory=dict)
    _places: dict[Stream, int] = field(default_factory=dict)  # before a loss of unknown size
    _heard: dict[Stream, int] = field(default_factory=dict)
    _unseen: dict[tuple[str, str], float] = field(default_factory=dict)  # node, peer -> since when
    _given_up: set[tuple[str, str]] = field(default_factory=set)  # node, whom it gave up
    _had: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # node, sender -> lanes
    missed: set[tuple[str, str]] = field(default_factory=set)  # node, whom it missed
    _visible: set[tuple[str, str]] = field(default_factory=set)  # node, whom it sees
    _parted: set[tuple[str, str]] = field(default_factory=set)  # node, of whom it heard the end
    _out_of_reach: set[tuple[str, str]] = field(default_factory=set)  # node, who is, as was told
    _back: dict[tuple[str, str], float] = field(
        default_factory=dict
    )  # node, who did not answer yet
    _stalled: set[Stream] = field(default_factory=set)  # whose sender did not wait
    _begun: dict[Stream, float] = field(default_factory=dict)  # when the first of it was taken

    def check(self) -> None:
        """Raise what went wrong within an engine's callback."""
        if self.error is not None:
            raise self.error

    # What the nodes report.

    def published(
        self,
        node: SimulatedNode,
        lane: str,
        subject: str,
        attributes: Attributes,
        event: int,
        number: int | None,
    ) -> None:
        """Note who is owed the event."""
        self.published_count += 1
        self.quenched_count += number is None
        stream = (node.name, lane)
        if number is not None:
            self._events[stream] = event
        debt = Debt(number, subject, attributes)
        others = [
            s for other in self.nodes.values() if other is not node for s in other.subscriptions
        ]
        for subscription in others:
            if subscription.is_known_to_accept(node.name, subject, attributes):
                self.ledger(subscription).owed.setdefault(stream, {})[event] = debt
        is_wanted = any(subscription.accepts(subject, attributes) for subscription in others)
        if self.is_exact and number is not None and not is_wanted:
            raise Uneven(f"{node.name} sent {attributes} on {subject}, which nobody wants")

    def told(self, node: SimulatedNode, known: wire.Known) -> None:
        """Note where the peer lets the node begin."""
        self._out_of_reach.discard((node.name, known.sender))
        self._back.pop((node.name, known.sender), None)
        for lane, number in known.nexts.items():
            stream = (node.name, known.sender, lane)
            self._baselines[stream] = max(number, self._baselines.get(stream, 1))

    def heard(self, node: SimulatedNode, sender: str, lane: str, end: int) -> None:
        """Note what the node cannot claim not to know of."""
        stream = (node.name, sender, lane)
        self._heard[stream] = max(end, self._heard.get(stream, 0))

    def delivered(self, node: SimulatedNode, events: Events) -> None:
        """Check order and number, and strike the events off what is owed."""
        self.trace.append((node.network.now_s, node.name, events.sender, events.first))
        stream = (node.name, events.sender, events.lane)
        self._go_on(stream, events.first, events.first + len(events.items), "delivered")
        self._had.setdefault(stream[:2], set()).add(events.lane)
        if (pair := (node.name, events.sender)) not in self._visible:
            self._out_of_reach.discard(pair)  # it was heard of once more, and may fall silent again
        self._begun.setdefault(stream, node.network.now_s)
        for item in events.items:
            self._hand(node, events, item)

    def received(
        self, node: SimulatedNode, subscription: SimulatedSubscription, event: Event
    ) -> None:
        """Check that it is what the node took in for the consumer, each once and in order."""
        class_ = "" if event.priority == "regular" else event.priority
        lane = lane_of(channel_of(event.subject, self.depth), class_)
        self.got(subscription, event, lane)
        self.pay(subscription, event.sender, lane, event.number)

    def got(self, subscription: SimulatedSubscription, event: Event, lane: str) -> None:
        due = subscription.due.get((event.sender, lane))
        if not due or due[0] != event.number:
            what = f"got event {event.number} of {event.sender} on {lane!r}"
            raise Uneven(f"{subscription.pattern!r} {what}, but {list(due or ())} were due")
        due.popleft()

    def lost(self, node: SimulatedNode, lost: Lost) -> None:
        """Check that the loss is a real one, and strike it off what is owed."""
        self.trace.append((node.network.now_s, node.name, lost.sender, lost.first, lost.last))
        if lost.reason:
            return self._note_unreachable(node, lost)
        self.lost_count += 1
        self.unknown_count += lost.last is None
        stream = (node.name, lost.sender, lost.lane)
        now_s = node.network.now_s
        if lost.sender in self.blameless and not self._may_have_stalled(stream, now_s):
            raise Uneven(f"{node.name} reports {lost}, but nothing happened that would excuse it")
        if lost.last is not None:
            self._go_on(stream, lost.first, lost.last + 1, "reported lost")
        elif not (
            self._gave_up(lost.sender, node.name, node.network.now_s)
            or self._gave_up(node.name, lost.sender, node.network.now_s)
            or (node.name in self.stood_still and lost.first == 0)
        ):
            raise Uneven(f"{node.name} reports {lost}, but was never given up there")
        elif not self._gave_up(lost.sender, node.name, node.network.now_s) and lost.first:
            return  # the sender may have died; if not, it goes on where it was
        else:
            for open_stream in [s for s in self._expected if s[:2] == stream[:2]]:
                if lost.lane in ("", open_stream[2]):
                    self._places[open_stream] = self._expected.pop(open_stream)
        for subscription in node.subscriptions:
            for (sender, lane), owed in self.ledger(subscription).owed.items():
                if sender == lost.sender and lost.lane in ("", lane):
                    gone = [e for e, d in owed.items() if self._covers(stream, lost, d.number)]
                    for event in gone:
                        del owed[event]

    def _may_have_stalled(self, stream: Stream, now_s: float) -> bool:
        """Whether a sender that was refused from the beginning may have stopped waiting.

        It waits longer only for nodes that confirm something before their queues are full. What
        was taken just now may not have been confirmed by then.
        """
        is_new = now_s - self._begun.get(stream, now_s) < CONFIRM_S
        if stream[0] in self.rested and is_new:
            self._stalled.add(stream)
        return stream in self._stalled

    def saw(self, node: SimulatedNode, peer: str, alive: bool) -> None:
        """Note who gives up whom."""
        pair, now_s = (node.name, peer), node.network.now_s
        if not alive:
            self._unseen[pair] = now_s
            self._visible.discard(pair)
        else:
            self._visible.add(pair)
            if self._gave_up(*pair, now_s):
                self._given_up.add(pair)
            if self._unseen.pop(pair, None) is not None:
                self._back[pair] = now_s
            self._parted.discard(pair)

    def ends(self, node: SimulatedNode, peer: str) -> None:
        """The node hears that a peer has left or died."""
        self._parted.add((node.name, peer))

    def failed(self, error: Exception) -> None:
        """Keep the first error for `check`."""
        self.error = self.error or error

    # What the run reports.

    def subscribed(self, subscription: SimulatedSubscription) -> None:
        """Note what was published too early for it."""
        self.ledger(subscription).before = dict(self._events)

    def unsubscribed(self, node: SimulatedNode, subscription: SimulatedSubscription) -> None:
        """Nothing is owed any more; channels that nobody wants start anew."""
        self.ledgers.pop(subscription, None)
        wanted = node.node.own.channel_patterns()
        for stream in [s for s in self._expected if s[0] == node.name]:
            if not touches(wanted, channel_in(stream[2])):
                del self._expected[stream]
        for stream in [s for s in self._heard if s[0] == node.name]:
            if not touches(wanted, channel_in(stream[2])):
                del self._heard[stream]
        for (name, _), lanes in self._had.items():
            if name == node.name:
                lanes -= {lane for lane in lanes if not touches(wanted, channel_in(lane))}

    def replaced(self, subscription: SimulatedSubscription) -> None:
        """What the new filter does not let through is owed no more."""
        for owed in self.ledger(subscription).owed.values():
            for event, debt in list(owed.items()):
                if not subscription.accepts(debt.subject, debt.attributes):
                    del owed[event]

    def ended(self, node: SimulatedNode) -> None:
        """Neither what it published nor what it wanted is owed any more."""
        del self.nodes[node.name]
        for subscription in node.subscriptions:
            self.ledgers.pop(subscription, None)
        for ledger in self.ledgers.values():
            for stream in [s for s in ledger.owed if s[0] == node.name]:
                del ledger.owed[stream]

    def _gave_up(self, name: str, peer: str, now_s: float) -> bool:
        """Whether the node has, or may have, given the peer up at any time."""
        pair = (name, peer)
        since_s = self._unseen.get(pair)
        if pair in self._given_up or (since_s is not None and pair in self._parted):
            return True
        return since_s is not None and now_s - since_s >= self.absent_s

    def _note_unreachable(self, node: SimulatedNode, lost: Lost) -> None:
        pair, now_s = (node.name, lost.sender), node.network.now_s
        self.unreachable_count += 1
        if pair in self._out_of_reach:
            raise Uneven(f"{node.name} reports twice that {lost.sender} is out of reach")
        # A node that is seen again, and whose answers are all lost, is out of reach, too.
        is_mute = now_s - self._back.get(pair, now_s) >= self.absent_s
        if not (is_mute or self._gave_up(*pair, now_s) or self._gave_up(*pair[::-1], now_s)):
            raise Uneven(f"{node.name} reports that {lost.sender} is out of reach, which it is not")
        self._out_of_reach.add(pair)

    def _untold(self) -> Iterable[str]:
        """The nodes that were not told that a sender of their events is out of reach."""
        for (name, sender), lanes in self._had.items():
            if name not in self.nodes or sender in self.nodes or not lanes:
                continue
            pair = (name, sender)
            if pair in self._unseen and pair not in self._parted | self._out_of_reach:
                yield f"{name} was not told that {sender} is out of reach"

    def misses(self, node: SimulatedNode, peer: str) -> None:
        """The node says that others see a peer which it does not see itself."""
        pair = (node.name, peer)
        self.missed.add(pair)
        since_s = self._unseen.get(pair, 0.0)
        if pair in self._visible or node.network.now_s - since_s < MISSED_S:
            raise Uneven(f"{node.name} says that it misses {peer}, which it has seen just now")

    def holds_rows(self, node: SimulatedNode, peer: str) -> None:
        """The node still sends to a peer, which it may do for a while after it is out of sight."""
        unseen_s = node.network.now_s - self._unseen.get((node.name, peer), node.network.now_s)
        if unseen_s > self.absent_s + 2 * TICK_S and node.name not in self.stood_still:
            raise Uneven(f"{node.name} keeps rows of {peer}, out of sight for {unseen_s:.1f} s")

    def debts(self) -> Iterable[str]:
        """What is still owed, in words; nothing once a healed network has settled."""
        for node in self.nodes.values():
            for subscription in node.subscriptions:
                for (sender, lane), owed in self.ledger(subscription).owed.items():
                    if owed:
                        events = f"{len(owed)} events of {sender} on {lane!r}: {owed}"
                        yield f"{node.name} has not got {events}"
                for (sender, lane), due in subscription.due.items():
                    if due:
                        events = f"{list(due)} of {sender} on {lane!r}"
                        yield f"{node.name} did not hand {events} to {subscription.pattern!r}"
                if subscription.words and not node.is_consuming:
                    yield f"{node.name} did not tell {subscription.pattern!r}: {subscription.words}"
        yield from self._untold()
        for (name, sender, lane), expected in self._expected.items():
            end = self._heard.get((name, sender, lane), 0)
            if name in self.nodes and expected < end:
                yield f"{name} knows of {expected}..{end - 1} of {sender} on {lane!r}"

    def _hand(self, node: SimulatedNode, events: Events, item: wire.Item) -> None:
        attributes = msgspec.msgpack.decode(item.body)
        for subscription in node.subscriptions:
            if subscription.accepts(item.subject, attributes):
                stream = (events.sender, events.lane)
                before = self.ledger(subscription).before.get(stream, 0)
                is_new = not touches(subscription.beside, channel_in(events.lane))
                if is_new and item.number <= before:
                    what = f"event {item.number} of {events.sender}, from before it began"
                    raise Uneven(f"{subscription.pattern!r} got {what}")
                self.check_order(subscription, events.sender, events.lane, item.number)
                self.check_word(node, subscription, stream, item.number)
                self._hand_over(subscription, events.sender, events.lane, item.number)

    def ledger(self, subscription: SimulatedSubscription) -> _Ledger:
        return self.ledgers.setdefault(subscription, _Ledger())

    def _go_on(self, stream: Stream, first: int, end: int, what: str) -> None:
        expected = self._expected.get(stream, self._baselines.get(stream, 1))
        if first not in (expected, self._places.pop(stream, 0)):
            name, sender, lane = stream
            raise Uneven(
                f"{name}: {first}..{end - 1} of {sender} on {lane!r} {what}, "
                f"but {expected} was next"
            )
        self._expected[stream] = end

    def _covers(self, stream: Stream, lost: Lost, number: int | None) -> bool:
        if lost.last is not None:
            return number is not None and lost.first <= number <= lost.last
        # What got a number that the node was told to begin with is still to come.
        return not lost.lane or number is None or number < self._baselines.get(stream, 1)

    def check_order(
        self, subscription: SimulatedSubscription, sender: str, lane: str, event: int
    ) -> None:
        ledger = self.ledger(subscription)
        last = ledger.last.get((sender, lane), 0)
        if event <= last:
            what = "twice" if event == last else f"after {last}"
            raise Uneven(f"{subscription.pattern!r} got event {event} of {sender} {what}")
        ledger.last[sender, lane] = event

    def check_word(
        self,
        node: SimulatedNode,
        subscription: SimulatedSubscription,
        stream: tuple[str, str],
        event: int,
    ) -> None:
        """Check that whatever the subscription missed before the event was reported before it."""
        due = subscription.due.get(stream, ())
        owed = self.ledger(subscription).owed.get(stream, {})
        late = [e for e in owed if e < event and e not in due]
        if late:
            what = f"{event} of {stream[0]} before the word that it missed {late}"
            raise Uneven(f"{node.name} delivers event {what}")

    def _hand_over(
        self, subscription: SimulatedSubscription, sender: str, lane: str, event: int
    ) -> None:
        """The node has put it into the queue; the consumer must get it out."""
        subscription.due.setdefault((sender, lane), deque()).append(event)

    def pay(self, subscription: SimulatedSubscription, sender: str, lane: str, event: int) -> None:
        """The consumer has it, or knows that it has not."""
        self.ledger(subscription).owed.get((sender, lane), {}).pop(event, None)
        self.delivered_count += 1
