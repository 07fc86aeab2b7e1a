"""What happens when a subscription's queue fills: the consumer's choice, carried out.

A subscription that may hold its senders ("pace", "block") does it by not confirming: its node
stops acknowledging the lanes whose events fill the queue, and so the senders' windows close.
"pace" does so for a bounded time, while its consumer moves, and then lets the oldest events go.
"block" confirms an event now and then while its consumer moves, because senders do not wait for
ever for a node that shows no sign of that. If
frames still come when the queue is quite full (several senders, each with a window of its own),
the node refuses them; the senders keep them, and are asked for them once there is room.

All of this goes class by class: a flood of regular events holds back no emergency.

Time comes in as `now_s`. Everything here is called under the runtime's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from infobus.bus.deliver.queue import Inbox
from infobus.bus.deliver.subscription import WhenFull
from infobus.bus.stats import Counters
from infobus.errors import SlowConsumer
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.protocols.reliable.effects import Effects
from infobus.protocols.reliable.node import Node


class Crowded(Protocol):
    """A subscription whose queue fills."""

    patterns: tuple[str, ...]
    queue: Inbox
    when_full: WhenFull


S = TypeVar("S", bound=Crowded)

_NUDGES = 8  # signs that a consumer moves, in the time that senders wait for one


class Hold(Struct):
    """Senders are asked to wait."""

    since_s: float
    moved_s: float  # when its consumer last took something
    left_count: int  # that the consumer had not taken then
    lanes: set[str] = field(default_factory=set)  # whose events fill the queue
    has_moved: bool = False  # its consumer has taken something since `nudged_s`
    nudged_s: float = 0.0  # when senders were last shown that it moves

    def must_nudge(self, left_count: int, now_s: float, patience: Patience) -> bool:
        """Whether senders are to be shown now that the consumer moves."""
        self.has_moved |= left_count < self.left_count
        self.left_count = left_count
        if not self.has_moved or now_s - self.nudged_s < patience.hold_s / _NUDGES:
            return False
        self.has_moved, self.nudged_s = False, now_s
        return True

    def is_over(self, left_count: int, now_s: float, patience: Patience) -> bool:
        """Whether a consumer that may only pace its senders has had its time."""
        if left_count < self.left_count:
            self.left_count, self.moved_s = left_count, now_s
        # Nobody waits as long for a consumer that is stuck.
        held_s, stuck_s = now_s - self.since_s, now_s - self.moved_s
        return held_s >= patience.pace_s or stuck_s >= patience.stuck_s


class Crowd(Generic[S]):
    """The subscriptions that are crowded now, each by the classes of its queue."""

    def __init__(
        self,
        node: Node,
        counters: Counters,
        unregister: Callable[[S, SlowConsumer], Effects],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._node = node
        self._counters = counters
        self._unregister = unregister
        self.patience = patience
        self.holds: dict[tuple[S, str], Hold] = {}
        self._patient: set[tuple[S, str]] = set()  # "pace" has had its time; oldest events go now
        self._refusing: dict[str, set[tuple[S, str]]] = {}  # lane -> who has no room

    def holds_lane(self, lane: str) -> bool:
        """Whether some subscription asks the senders of `lane` to wait."""
        return any(lane in hold.lanes for hold in self.holds.values())

    def held_by(self, class_: str) -> S | None:
        """A subscription whose queue of a class is above its mark, if there is one."""
        return next((one for one, held in self.holds if held == class_), None)

    def look_at(self, subscription: S, class_: str, lane: str, now_s: float) -> Effects:
        """More than half of a class's queue is full, by events of `lane`."""
        queue = (subscription, class_)
        is_over = subscription.queue.waiting_in(class_) > subscription.queue.queue_count_max
        match subscription.when_full:
            case "disconnect" if is_over:
                return self._disconnect(subscription, class_)
            case "drop_oldest" if is_over:
                self._drop_oldest(subscription, class_)
            case "pace" | "block":
                if queue not in self._patient:
                    return self._hold(queue, lane, is_over, now_s)
                if is_over:
                    self._drop_oldest(subscription, class_)
        return []

    def expire(self, now_s: float) -> Effects:
        """Let no "pace" subscription hold its senders for longer than it may.

        Senders of a "block" subscription are shown that it moves, if it does.
        """
        effects: Effects = []
        for queue, hold in list(self.holds.items()):
            subscription, class_ = queue
            left_count = subscription.queue.left_in(class_)
            if subscription.when_full != "pace":
                if hold.must_nudge(left_count, now_s, self.patience):
                    effects += self._nudge(queue, hold, now_s)
            elif hold.is_over(left_count, now_s, self.patience):
                effects += self._let_go(queue, now_s)
                self._patient.add(queue)
                subscription.queue.watched.add(class_)
        return effects

    def _nudge(self, queue: tuple[S, str], hold: Hold, now_s: float) -> Effects:
        effects = self._node.nudge(list(self._node.peers), hold.lanes)
        if not effects and any(queue in refusing for refusing in self._refusing.values()):
            # All that came is confirmed, and no more is taken in: only that can be a sign.
            return self.relieve(queue[0], now_s, queue[1])
        return effects

    def relieve(self, subscription: S, now_s: float, class_: str = "") -> Effects:
        """The queue of a class, or of every class, has room again, or is gone."""
        effects: Effects = []
        for one in [class_] if class_ else list(subscription.queue.watched):
            effects += self._let_go((subscription, one), now_s)
            self._patient.discard((subscription, one))
            subscription.queue.watched.discard(one)
        return effects

    def look_again(self, subscription: S, now_s: float) -> Effects:
        """Some classes of a subscription may have room again."""
        effects: Effects = []
        for class_ in tuple(subscription.queue.watched):
            if subscription.queue.waiting_in(class_) <= subscription.queue.low_count:
                effects += self.relieve(subscription, now_s, class_)
        return effects

    def _hold(self, queue: tuple[S, str], lane: str, is_over: bool, now_s: float) -> Effects:
        subscription, class_ = queue
        hold = self.holds.get(queue)
        if hold is None:
            hold = self.holds[queue] = Hold(now_s, now_s, subscription.queue.left_in(class_))
            subscription.queue.watched.add(class_)
            subscription.queue.holding.add(class_)
        hold.lanes.add(lane)
        if subscription.queue.waiting_in(class_) <= subscription.queue.low_count:
            # Taken out meanwhile, by a consumer that did not know that it was held for
            # crowded, and would not say that it has room.
            return self.relieve(subscription, now_s, class_)
        if is_over:
            self._refusing.setdefault(lane, set()).add(queue)
            return self._node.pause(lane, True, now_s)
        return []

    def _let_go(self, queue: tuple[S, str], now_s: float) -> Effects:
        queue[0].queue.holding.discard(queue[1])
        if self.holds.pop(queue, None) is None:
            return []
        effects: Effects = []
        for lane, refusing in list(self._refusing.items()):
            refusing.discard(queue)
            if not refusing:
                del self._refusing[lane]
                effects += self._node.pause(lane, False, now_s)
        for name, peer in self._node.peers.items():
            effects += self._node.acks(name, peer)
        return effects

    def _drop_oldest(self, subscription: S, class_: str) -> None:
        excess = subscription.queue.waiting_in(class_) - subscription.queue.queue_count_max
        while excess > 0 and (dropped := subscription.queue.drop_oldest(class_)):
            excess -= dropped
            self._counters.dropped_by_queue += dropped

    def _disconnect(self, subscription: S, class_: str) -> Effects:
        count = subscription.queue.waiting_in(class_)
        error = SlowConsumer(
            f"the subscription to {', '.join(subscription.patterns[:3])} fell {count} events "
            f"behind (queue_count_max={subscription.queue.queue_count_max}) and was closed"
        )
        return self._unregister(subscription, error)
