"""The account of runs in which nodes stand still: what they are owed outlives those who owe it.

An event that was published while a node stood still, on a channel that it had subscribed to
before, is delivered or lies in a reported loss. It makes no difference whether the sender has left
or died meanwhile, or began only then. The one exception is a sender that the node never met.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from infobus.testing.simulation.accounts.reliable import Account, Debt
from infobus.testing.simulation.nodes.reliable import (
    Attributes,
    SimulatedNode,
    SimulatedSubscription,
)


@dataclass
class FreezeAccount(Account):
    """The witness of one run. Raises `Uneven` as soon as a promise is broken."""

    missable_count: int = 0
    """How often an event was owed to a subscription whose node stood still."""
    _frozen: dict[str, set[str]] = field(default_factory=dict)  # and the nodes there were before
    _missable: dict[SimulatedSubscription, set[tuple[tuple[str, str], int]]] = field(
        default_factory=dict
    )  # sender and lane, and event

    def froze(self, name: str) -> None:
        """A node stands still."""
        self.stood_still.add(name)
        self._frozen[name] = set(self.nodes)

    def thawed(self, name: str) -> None:
        """It goes on."""
        self._frozen.pop(name, None)

    def published(
        self,
        node: SimulatedNode,
        lane: str,
        subject: str,
        attributes: Attributes,
        event: int,
        number: int | None,
    ) -> None:
        """Note who is owed the event, those that stand still above all."""
        super().published(node, lane, subject, attributes, event, number)
        for name, before in self._frozen.items():
            for subscription in self.nodes[name].subscriptions:
                is_owed = subscription.is_known_to_accept(node.name, subject, attributes) or (
                    node.name not in before and subscription.accepts(subject, attributes)
                )
                if is_owed:
                    stream = (node.name, lane)
                    owed = self.ledger(subscription).owed.setdefault(stream, {})
                    owed[event] = Debt(number, subject, attributes)
                    self._missable.setdefault(subscription, set()).add((stream, event))
                    self.missable_count += 1

    def ended(self, node: SimulatedNode) -> None:
        """What it wanted is owed no more, nor what it published, except while one stood still."""
        kept = {
            (subscription, stream): {e: debt for e, debt in owed.items() if (stream, e) in missable}
            for subscription, missable in self._missable.items()
            if subscription in self.ledgers
            for stream, owed in self.ledgers[subscription].owed.items()
            if stream[0] == node.name
        }
        super().ended(node)
        self.thawed(node.name)
        for (subscription, stream), owed in kept.items():
            if subscription in self.ledgers:
                self.ledgers[subscription].owed[stream] = owed

    def debts(self) -> Iterable[str]:
        """What is still owed, in words, by nodes that the creditor has met."""
        for node in self.nodes.values():
            for subscription in node.subscriptions:
                owed = self.ledger(subscription).owed
                for stream in [s for s in owed if s[0] not in node.node.peers]:
                    del owed[stream]
        yield from super().debts()
