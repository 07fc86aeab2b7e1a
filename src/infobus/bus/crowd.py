"""What happens when a subscription's queue fills: the consumer's choice, carried out.

A subscription that may hold its senders ("pace", "block") does it by not confirming: its node
stops acknowledging the channels it listens to, and so the senders' windows close. "pace" does
so for a bounded time and then lets the oldest events go. If frames still come when the queue
is quite full (several senders, each with a window of its own), the node refuses them; the
senders keep them, and are asked for them once there is room.

Everything here is called under the hub's lock.
"""

from __future__ import annotations

from collections.abc import Callable

from infobus.bus.stats import Counters
from infobus.bus.subscription import Subscription
from infobus.errors import SlowConsumer
from infobus.protocols.effects import Effects
from infobus.protocols.node import Node

PACE_S = 2.0
"""How long a subscription with `when_full="pace"` may hold its senders, each time it fills up."""


class Crowd:
    """The subscriptions that are crowded now."""

    def __init__(
        self,
        node: Node,
        counters: Counters,
        unregister: Callable[[Subscription, SlowConsumer], Effects],
    ) -> None:
        self._node = node
        self._counters = counters
        self._unregister = unregister
        self.holders: dict[Subscription, None] = {}
        self._refusing: dict[str, set[Subscription]] = {}  # channel -> who has no room

    def holds(self, channel: str) -> bool:
        """Whether some subscription asks the senders of `channel` to wait."""
        return any(subscription.wants_channel(channel) for subscription in self.holders)

    def look_at(self, subscription: Subscription, channel: str, now_s: float) -> Effects:
        """More than half of the queue is full, by events of `channel`."""
        is_over = subscription.waiting_count > subscription.queue_count_max
        match subscription.when_full:
            case "disconnect" if is_over:
                return self._disconnect(subscription)
            case "drop_oldest" if is_over:
                self._drop_oldest(subscription)
            case "pace" | "block":
                if not (subscription.is_holding or subscription.has_waited_enough):
                    subscription.is_holding, subscription.held_since_s = True, now_s
                    self.holders[subscription] = None
                    if subscription.waiting_count <= subscription.low_count:
                        # Taken out meanwhile, by a consumer that did not know that it was held
                        # for crowded, and would not say that it has room.
                        return self._let_go(subscription, now_s)
                if is_over and subscription.is_holding:
                    self._refusing.setdefault(channel, set()).add(subscription)
                    return self._node.pause(channel, True, now_s)
                if is_over:
                    self._drop_oldest(subscription)
        return []

    def expire(self, now_s: float) -> Effects:
        """Let no "pace" subscription hold its senders for longer than it may."""
        effects: Effects = []
        for subscription in list(self.holders):
            held_s = now_s - subscription.held_since_s
            if subscription.when_full == "pace" and held_s >= PACE_S:
                effects += self._let_go(subscription, now_s)
                subscription.has_waited_enough = True
        return effects

    def relieve(self, subscription: Subscription, now_s: float) -> Effects:
        """The queue has room again, or is gone."""
        subscription.has_waited_enough = False
        return self._let_go(subscription, now_s)

    def _let_go(self, subscription: Subscription, now_s: float) -> Effects:
        subscription.is_holding = False
        self.holders.pop(subscription, None)
        effects: Effects = []
        for channel, refusing in list(self._refusing.items()):
            refusing.discard(subscription)
            if not refusing:
                del self._refusing[channel]
                effects += self._node.pause(channel, False, now_s)
        for name, peer in self._node.peers.items():
            effects += self._node.acks(name, peer)
        return effects

    def _drop_oldest(self, subscription: Subscription) -> None:
        excess = subscription.waiting_count - subscription.queue_count_max
        while excess > 0 and (dropped := subscription.drop_oldest()):
            excess -= dropped
            self._counters.dropped_by_queue += dropped

    def _disconnect(self, subscription: Subscription) -> Effects:
        count = subscription.waiting_count
        error = SlowConsumer(
            f"the subscription to {', '.join(subscription.patterns[:3])} fell {count} events "
            f"behind (queue_count_max={subscription.queue_count_max}) and was closed"
        )
        return self._unregister(subscription, error)
