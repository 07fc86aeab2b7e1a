"""A simulated node whose subscriptions have short queues, and differ in what a full one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from infobus.bus.deliver.subscription import WhenFull
from infobus.bus.publish.outlet import Batch
from infobus.engines.memory.engine import Network
from infobus.errors import LossError
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import class_in
from infobus.protocols.frames.wire import Items
from infobus.protocols.reliable.effects import Effects
from infobus.protocols.reliable.peer import Terms
from infobus.testing.simulation.nodes.reliable import (
    TICK_S,
    SimulatedNode,
    SimulatedSubscription,
    Witness,
)

_WHEN_FULL: list[WhenFull] = ["block", "pace", "pace", "drop_oldest"]
_FRAMES_COUNT_MAX = 2
"""Of a lane, into a full queue: the one that finds it full, and one as a sign that it moves."""


class FullQueueWitness(Witness, Protocol):
    """Whoever wants to hear what full queues let go, too."""

    def dropped(
        self, node: SimulatedNode, subscription: SimulatedSubscription, loss: LossError
    ) -> None:
        """A consumer hears that its own queue has let events go."""


class FullQueueNode(SimulatedNode):
    """One node of a run; it checks after each frame and tick that its queues keep their bounds."""

    queue_counts = (2, 8, 8, 65_536)

    def __init__(
        self,
        network: Network,
        name: str,
        terms: Terms,
        witness: FullQueueWitness,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(network, name, terms, witness, batch)
        self._full_queue_witness = witness
        self._looked_s: dict[SimulatedSubscription, float] = {}  # when its consumer last did
        self._held_s: dict[tuple[SimulatedSubscription, str], float] = {}  # since when, by class
        self._full: set[tuple[SimulatedSubscription, str]] = set()  # classes, before this frame
        self._filled: set[tuple[SimulatedSubscription, str]] = set()  # by that frame, with its lane
        self._filled_count: Counter[tuple[SimulatedSubscription, str]] = Counter()
        tick = self.runtime.tick_reliable

        def witnessed_tick(now_s: float) -> Effects:
            effects = tick(now_s)
            self._check_holds(now_s)
            return effects

        self.runtime.tick_reliable = witnessed_tick  # type: ignore[method-assign]

    def when_full(self) -> WhenFull:
        """What the next subscription wants to be done."""
        return self.network.random.choice(_WHEN_FULL)

    @property
    def pace_s(self) -> float:
        """So long a full queue may hold its senders for a consumer that takes nothing."""
        patience = self.runtime.patience
        return min(patience.pace_s, patience.stuck_s)

    def waited_s(self, subscription: SimulatedSubscription) -> float:
        """For how long the consumer has not looked into its queue."""
        return self.network.now_s - self._looked_s.get(subscription, 0.0)

    def told(self, subscription: SimulatedSubscription, loss: LossError) -> None:
        """A consumer has heard of a loss, perhaps one that its own queue has made."""
        if (loss.sender, loss.first, loss.last) in subscription.words:
            super().told(subscription, loss)
        else:
            self._full_queue_witness.dropped(self, subscription, loss)

    def drain_one(self, subscription: SimulatedSubscription) -> None:
        """Let a consumer take what is in its queue."""
        held = {lane for hold in self.runtime.crowd.holds.values() for lane in hold.lanes}
        super().drain_one(subscription)
        self._check_confirmed([one for one in held if not self.runtime.crowd.holds_lane(one)])
        self._looked_s[subscription] = self.network.now_s
        self._full = {full for full in self._full if full[0] is not subscription}
        for place in [place for place in self._filled_count if place[0] is subscription]:
            del self._filled_count[place]
        for kept in [kept for kept in self._held_s if kept[0] is subscription]:
            del self._held_s[kept]

    def dispatched(self, sender: str, lane: str, first: int, items: Items) -> None:
        """Events were put into the queues."""
        before = {one: len(one.due.get((sender, lane), ())) for one in self.subscriptions}
        super().dispatched(sender, lane, first, items)
        class_ = class_in(lane) or self.node.terms.classes.default
        for one in self.subscriptions:
            if (one, class_) in self._full and len(one.due.get((sender, lane), ())) > before[one]:
                self._filled.add((one, lane))

    def took(self, message: wire.Message) -> None:
        """A frame was taken in."""
        super().took(message)
        for subscription, lane in self._filled:
            self._filled_count[subscription, lane] += 1
            count = self._filled_count[subscription, lane]
            assert self._may_drop(subscription) or count <= _FRAMES_COUNT_MAX, (
                f"{self.name} took {count} frames of {lane!r} into the full queue of "
                f"{subscription.pattern!r}"
            )
        self._filled.clear()
        for one in self.subscriptions:
            queue = one.real.queue
            for class_ in self.node.terms.classes.names:
                count = queue.waiting_in(class_)
                if count > queue.queue_count_max:
                    self._full.add((one, class_))
                    # Words of losses count as events, and are never let go.
                    assert one.words or one.real.when_full != "drop_oldest", (
                        f"{count} {class_} events wait for {one.pattern!r}, "
                        f"which lets the oldest of more than {queue.queue_count_max} go"
                    )
            for class_ in queue.holding:
                self._held_s.setdefault((one, class_), self.network.now_s)

    def _check_confirmed(self, lanes: Iterable[str]) -> None:
        """Check that senders which were held need not wait for a tick to hear of room."""
        for name, peer in self.node.peers.items():
            for lane in lanes:
                receiver = peer.receivers.get(lane)
                assert receiver is None or receiver.acked == (receiver.next or receiver.acked), (
                    f"{self.name} has room for {lane!r} again, and did not confirm it to {name}"
                )

    def _check_holds(self, now_s: float) -> None:
        """Check that no consumer which may only pace its senders holds them any longer."""
        for (one, class_), since_s in list(self._held_s.items()):
            if class_ not in one.real.queue.holding:
                del self._held_s[one, class_]
            elif one.real.when_full == "pace":
                held_s = now_s - since_s
                assert held_s <= self.pace_s + TICK_S, (
                    f"{one.pattern!r} holds its senders for {held_s:.1f} s, though it is stuck"
                )

    def _may_drop(self, subscription: SimulatedSubscription) -> bool:
        """Whether the queue may let events go by now."""
        if subscription.real.when_full == "pace":
            return self.waited_s(subscription) >= self.pace_s
        return subscription.real.when_full == "drop_oldest"
