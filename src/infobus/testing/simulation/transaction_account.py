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

from infobus.protocols.frames import wire
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.reliable.effects import Events
from infobus.subjects import channel_of
from infobus.testing.simulation.account import Account, Debt, Uneven
from infobus.testing.simulation.node import SimulatedNode, SimulatedSubscription


@dataclass
class TransactionAccount(Account):
    """The witness of one simulated run with transactions."""

    groups_count: int = 0
    taken_count: int = 0
    parts_count: int = 0  # of them, those that were not the whole transaction
    copies_count: int = 0  # those that came to nodes
    _groups: dict[tuple[str, int], Group] = field(default_factory=dict)
    _took: set[tuple[SimulatedSubscription, str, int]] = field(default_factory=set)

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
                    owed = self._ledger(subscription).owed
                    owed.setdefault((node.name, lane), {})[item.number] = debt
        if self.is_exact and not is_wanted and any(numbers.values()):
            raise Uneven(f"{node.name} sent a transaction which nobody wants")

    def took(
        self,
        subscription: SimulatedSubscription,
        sender: str,
        lane: str,
        group: Group,
        places: list[int],
    ) -> None:
        """Check that it is the subscription's whole part, for the first time."""
        what = f"{subscription.pattern!r} got {places} of transaction {group.number} of {sender}"
        if group != self._groups.get((sender, group.number)):
            raise Uneven(f"{what}, which was never published so")
        if (subscription, sender, group.number) in self._took:
            raise Uneven(f"{what} for a second time")
        self._took.add((subscription, sender, group.number))
        items = list(group.events)
        wanted = [
            at
            for at, item in enumerate(items)
            if subscription.accepts(item.subject, msgspec.msgpack.decode(item.body))
        ]
        if places != wanted:
            raise Uneven(f"{what}, but wants {wanted}")
        self._deliver(subscription, sender, lane, group.number)
        self.taken_count += 1
        self.parts_count += len(places) < len(items)
        for item in items:
            place = (sender, channel_of(item.subject, self.depth))
            self._ledger(subscription).owed.get(place, {}).pop(item.number, None)

    def delivered(self, node: SimulatedNode, events: Events) -> None:
        """Check also that nothing which is owed has been passed over."""
        super().delivered(node, events)
        for subscription in node.subscriptions:
            owed = self._ledger(subscription).owed.get((events.sender, events.lane), {})
            for event, debt in owed.items():
                if debt.number is not None and debt.number <= events.first:
                    what = f"{subscription.pattern!r} has not got {event} of {events.sender}"
                    raise Uneven(f"{what}, although {events.first} on {events.lane!r} has come")

    def _hand(self, node: SimulatedNode, events: Events, item: wire.Item) -> None:
        if item.type == GROUP:
            self.copies_count += 1
        else:
            super()._hand(node, events, item)
