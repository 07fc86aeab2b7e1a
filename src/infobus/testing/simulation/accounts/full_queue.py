"""The account of runs whose queues are full: what they let go, against what they may.

Beside the promises of the reliable account: a queue lets events go only if its consumer allows it,
not before its senders have waited as long as was said, from the oldest on, and with a word.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from infobus.errors import LossError
from infobus.protocols.frames.lanes import lane_of
from infobus.testing.simulation.accounts.reliable import Account, Uneven
from infobus.testing.simulation.nodes.full_queue import FullQueueNode
from infobus.testing.simulation.nodes.reliable import (
    Attributes,
    SimulatedNode,
    SimulatedSubscription,
)


@dataclass
class FullQueueAccount(Account):
    """The witness of one simulated run. Raises `Uneven` as soon as a promise is broken."""

    dropped_count: int = 0
    _numbers: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Of events on their routes, by sender, lane and event."""

    def published(
        self,
        node: SimulatedNode,
        lane: str,
        subject: str,
        attributes: Attributes,
        event: int,
        number: int | None,
    ) -> None:
        """Note who is owed the event, and its number."""
        super().published(node, lane, subject, attributes, event, number)
        if number is not None:
            self._numbers[node.name, lane, event] = number

    def dropped(
        self, node: SimulatedNode, subscription: SimulatedSubscription, loss: LossError
    ) -> None:
        """Check that the queue may let these events go, and that they waited in it."""
        assert isinstance(node, FullQueueNode)
        what = f"{subscription.pattern!r} is told of {loss}"
        when_full, waited_s = subscription.real.when_full, node.waited_s(subscription)
        if when_full == "block":
            raise Uneven(f"{what}, but it blocks its senders")
        if when_full == "pace" and waited_s < node.pace_s:
            raise Uneven(f"{what}, but its senders have waited for {waited_s:.1f} s only")
        class_ = "" if loss.priority == "regular" else loss.priority
        lane, last = lane_of(loss.channel, class_), loss.last
        assert last is not None, f"{what}, but nobody knows how many"
        due = subscription.due.get((loss.sender, lane), deque())
        numbers = [self._numbers[loss.sender, lane, event] for event in due]
        gone_count = sum(loss.first <= number <= last for number in numbers)
        if not gone_count or not loss.first <= numbers[0] or numbers[gone_count - 1] > last:
            raise Uneven(f"{what}, but {numbers} were due")
        for _ in range(gone_count):
            self.pay(subscription, loss.sender, lane, due[0])
            due.popleft()
        self.delivered_count -= gone_count
        self.dropped_count += gone_count
