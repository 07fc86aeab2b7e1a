"""A simulated node that publishes and takes transactions as the bus does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from infobus.bus.publish.outlet import Batch
from infobus.engines.memory.engine import Network
from infobus.errors import Backpressure
from infobus.protocols.frames import transactions, wire
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.reliable.peer import Terms
from infobus.subjects import channel_of
from infobus.testing.simulation.nodes.reliable import Attributes, SimulatedNode, Witness


class TransactionWitness(Witness, Protocol):
    """Whoever wants to hear of transactions, too."""

    def published_group(
        self, node: SimulatedNode, group: Group, numbers: dict[str, int | None]
    ) -> None:
        """A transaction was published; `numbers` are those it got on the channels of its events.

        Where it got none, it was not wanted.
        """


class TransactionNode(SimulatedNode):
    """Publishes transactions, too; taking them apart is the shipped code's part."""

    def __init__(
        self,
        network: Network,
        name: str,
        terms: Terms,
        witness: TransactionWitness,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(network, name, terms, witness, batch)
        self._groups_leaving: dict[tuple[str, int], int] = {}  # the number each is to get
        self._group_witness = witness
        self._epoch = 0

    def publish_transaction(self, events: Sequence[tuple[str, Attributes]]) -> bool:
        """Publish events on subjects of any channels, all or none.

        False if a route that it must go has no room: then nothing is published.
        """
        now_s, depth = self.runtime.clock.wall_s(), self.node.terms.depth
        wanted = dict.fromkeys((channel_of(subject, depth) for subject, _ in events), False)
        for subject, attributes in events:
            wanted[channel_of(subject, depth)] |= self.is_wanted(subject, attributes)
        channels = [channel for channel, is_wanted in wanted.items() if is_wanted]
        outlets = {channel: self.outlet(channel) for channel in channels}
        try:
            for outlet in outlets.values():
                outlet.flush()  # so that the transaction's number is the next
        except Backpressure:
            return False
        routes = {channel: outlet.route for channel, outlet in outlets.items()}
        if not all(route.has_room() for route in routes.values()):
            return False
        for channel, is_wanted in wanted.items():
            if not is_wanted:
                self.node.note_unwanted(channel)
        first = self._events_count + 1
        self._events_count += len(events)
        self._epoch += 1
        items = [
            wire.Item(subject, number, now_s, 0, msgspec.msgpack.encode(attributes))
            for number, (subject, attributes) in enumerate(events, first)
        ]
        run = wire.Items.of(items)
        places = {channel: route.next for channel, route in routes.items()}
        group = Group(first, self._epoch, max(len(routes), 1), run, len(items), places)
        numbers = {c: routes[c].next if c in routes else None for c in wanted}
        self._group_witness.published_group(self, group, numbers)
        for channel, outlet in outlets.items():
            item = transactions.item(events[0][0], now_s, group)
            self._groups_leaving[channel, item.number] = outlet.route.next
            outlet.send(item, len(item.body), (), False)
        return True

    def is_leaving(self) -> bool:
        """Whether anything was published that has not left yet."""
        return super().is_leaving() or bool(self._groups_leaving)

    def left(self, lane: str, number: int, item: wire.Item) -> None:
        """An event, or a transaction, has got its number on the route."""
        if item.type != GROUP:
            super().left(lane, number, item)
            return
        due = self._groups_leaving.pop((lane, item.number), None)
        what = f"{self.name} sent transaction {item.number} on {lane!r} as {number}"
        assert due == number, f"{what}, but {due} was due"
