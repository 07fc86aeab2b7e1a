"""The account of transactions: each subscription gets its whole part of them, or nothing.

A `TransactionAccount` holds nodes to what an `Account` does, and to this:

* what a subscription gets of a transaction is every event of it that it wants, just as they were
  published and in their order, as one value and once;
* a transaction comes no later than its place in each of its channels;
* it is lost for a subscription only if it is lost on every channel that the subscription wants
  some of it from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from infobus.bus.deliver.event import Event, Transaction
from infobus.protocols.frames import transactions, wire
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.reliable.effects import Events
from infobus.subjects import channel_of
from infobus.testing.simulation.accounts.reliable import Account, Debt, Uneven
from infobus.testing.simulation.nodes.reliable import SimulatedNode, SimulatedSubscription

_Part = tuple[SimulatedSubscription, str, int]  # who gets which event of which sender


@dataclass
class TransactionAccount(Account):
    """The witness of one simulated run with transactions."""

    groups_count: int = 0
    taken_count: int = 0
    parts_count: int = 0  # of them, those that were not the whole transaction
    copies_count: int = 0  # those that came to nodes
    _groups: dict[tuple[str, int], Group] = field(default_factory=dict)
    _took: set[_Part] = field(default_factory=set)
    _come: set[tuple[str, str, int]] = field(default_factory=set)  # node, sender, transaction
    _parts: dict[_Part, tuple[str, list[int]]] = field(default_factory=dict)  # lane and places
    _handed: set[_Part] = field(default_factory=set)  # put into a queue

    def published_group(
        self, node: SimulatedNode, group: Group, numbers: dict[str, int | None]
    ) -> None:
        """Note who is owed which events of the transaction."""
        self.groups_count += 1
        self._groups[node.name, group.number] = group
        others = [
            s for other in self.nodes.values() if other is not node for s in other.subscriptions
        ]
        is_wanted = False
        for item in group.events:
            attributes = msgspec.msgpack.decode(item.body)
            lane = channel_of(item.subject, self.depth)  # of the default class
            debt = Debt(numbers[lane], item.subject, attributes)
            for subscription in others:
                is_wanted = is_wanted or subscription.accepts(item.subject, attributes)
                if subscription.is_known_to_accept(node.name, item.subject, attributes):
                    owed = self.ledger(subscription).owed
                    owed.setdefault((node.name, lane), {})[item.number] = debt
        if self.is_exact and not is_wanted and any(numbers.values()):
            raise Uneven(f"{node.name} sent a transaction which nobody wants")

    def check_word(self, *_: object) -> None:
        """A transaction may come before its place, so something may be missing before an event."""

    def received(
        self, node: SimulatedNode, subscription: SimulatedSubscription, event: Event
    ) -> None:
        """Check that it is the subscription's whole part, for the first time."""
        if not isinstance(event.data, Transaction):
            super().received(node, subscription, event)
            return
        group = self._groups.get((event.sender, event.number))
        what = f"{subscription.pattern!r} got transaction {event.number} of {event.sender}"
        if group is None:
            raise Uneven(f"{what}, which was never published")
        if (subscription, event.sender, event.number) in self._took:
            raise Uneven(f"{what} for a second time")
        self._took.add((subscription, event.sender, event.number))
        items = list(group.events)
        lane, wanted = self._parts[subscription, event.sender, event.number]
        self.got(subscription, event, lane)
        expected = [(items[at].subject, msgspec.msgpack.decode(items[at].body)) for at in wanted]
        if [(part.subject, part.data) for part in event.data] != expected:
            raise Uneven(f"{what} as {event.data}, but wants {expected}")
        self.taken_count += 1
        self.parts_count += len(wanted) < len(items)
        for item in items:
            place = (event.sender, channel_of(item.subject, self.depth))
            self.ledger(subscription).owed.get(place, {}).pop(item.number, None)

    def delivered(self, node: SimulatedNode, events: Events) -> None:
        """Check also that nothing which is owed has been passed over."""
        super().delivered(node, events)
        end = events.first + len(events.items)
        for subscription in node.subscriptions:
            owed = self.ledger(subscription).owed.get((events.sender, events.lane), {})
            for event, debt in owed.items():
                is_past = debt.number is not None and debt.number < end
                if is_past and (subscription, events.sender, event) not in self._handed:
                    what = f"{subscription.pattern!r} has not got {event} of {events.sender}"
                    raise Uneven(f"{what}, although {end - 1} on {events.lane!r} has come")

    def _hand_over(
        self, subscription: SimulatedSubscription, sender: str, lane: str, event: int
    ) -> None:
        super()._hand_over(subscription, sender, lane, event)
        self._handed.add((subscription, sender, event))

    def _hand(self, node: SimulatedNode, events: Events, item: wire.Item) -> None:
        if item.type != GROUP:
            super()._hand(node, events, item)
            return
        self.copies_count += 1
        key = (node.name, events.sender, item.number)
        if key in self._come:
            return  # a copy, by another of its channels
        self._come.add(key)
        parts = list(transactions.decode(item.body).events)
        for subscription in node.subscriptions:
            wanted = [
                at
                for at, part in enumerate(parts)
                if subscription.accepts(part.subject, msgspec.msgpack.decode(part.body))
            ]
            if wanted:
                self._parts[subscription, events.sender, item.number] = (events.lane, wanted)
                self.check_order(subscription, events.sender, events.lane, item.number)
                self._hand_over(subscription, events.sender, events.lane, item.number)
                for at in wanted:
                    self._handed.add((subscription, events.sender, parts[at].number))
