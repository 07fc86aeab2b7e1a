"""A simulated node whose followers begin with initial state, by the code that ships.

What a node has published on a lane, as a count, is the state that it gives. So a follower that
adds one for each event knows at any time what its sender has published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from infobus.bus.deliver.event import Event
from infobus.bus.deliver.priority_queue import Demand
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.initial_state import InitialState
from infobus.bus.publish.outlet import Batch
from infobus.engines.memory.engine import Network
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import channel_in
from infobus.protocols.reliable.peer import Terms
from infobus.testing.simulation.nodes.reliable import SimulatedNode, Witness

_QUEUE_COUNTS = [2, 8, 65_536]


@dataclass(eq=False)
class SimulatedFollower:
    """A subscription that begins with initial state, and begins anew after every loss."""

    node: str
    pattern: str
    real: Subscription
    version: int  # of the rows by which it is wanted
    is_started: bool = False
    begun_count: int = 0
    counts: dict[tuple[str, str], int] = field(default_factory=dict)  # by sender and lane
    informed: set[tuple[str, str]] = field(default_factory=set)  # senders and channels with state
    behind: set[str] = field(default_factory=set)  # senders that sent it nothing for a while


class FollowerWitness(Witness, Protocol):
    """Whoever wants to hear of followers, too."""

    def followed(self, follower: SimulatedFollower, event: Event) -> None:
        """A follower has got an event, or some initial state."""


class StateNode(SimulatedNode):
    """Gives its state to others, and has followers of theirs."""

    def __init__(
        self,
        network: Network,
        name: str,
        terms: Terms,
        witness: FollowerWitness,
        batch: Batch | None,
        subjects: dict[str, str],
    ) -> None:
        super().__init__(network, name, terms, witness, batch)
        self.followers: list[SimulatedFollower] = []
        self._follower_witness = witness
        self._initial = InitialState(self.runtime, self.outlets, self.outlet, self._item)
        self.runtime.recover_by(self._begin_anew)
        for channel, subject in subjects.items():  # one of each channel
            self._initial.register(f"{channel}.>", partial(self._state, channel, subject))

    def follow(self, pattern: str) -> SimulatedFollower:
        """Want everything of `pattern`; the state is asked for once the others know."""
        real = Subscription(
            self.runtime,
            [pattern],
            terms=self.node.terms,
            where=None,
            test=False,
            demand=Demand(),
            callback=None,
            on_error=None,
            on_loss="quit_and_recover",
            when_full="block",
            queue_count_max=self.network.random.choice(_QUEUE_COUNTS),
            clock=self.runtime.clock,
        )
        self.runtime.subscribe(real, timeout_s=0.0)
        follower = SimulatedFollower(self.name, pattern, real, self.node.own.version)
        self.followers.append(follower)
        return follower

    def begin_followers(self) -> None:
        """Let those begin that all others know by now, and let all look into their queues."""
        for follower in self.followers:
            if not follower.is_started and self.node.is_known(follower.version):
                follower.is_started = True
                self._initial.start(follower.real)
        if self.followers:
            self.consume_soon()

    def drain(self) -> None:
        """Let every consumer take what is in its queue."""
        super().drain()
        for follower in self.followers:
            while not follower.real.is_empty():
                try:
                    event = follower.real.receive(timeout_s=0.0)
                except TimeoutError:
                    break
                if follower.is_started and event.sender != self.name:
                    self._follower_witness.followed(follower, event)

    def leave(self) -> None:
        """Give no more state, and leave."""
        self._initial.close()
        super().leave()

    def _begin_anew(self, subscription: Subscription) -> None:
        for follower in self.followers:
            if follower.real is subscription:
                follower.is_started = True
                follower.begun_count += 1
                follower.counts.clear()
                follower.informed.clear()
                follower.behind.clear()

    def _state(self, channel: str, subject: str) -> Iterable[tuple[str, object]]:
        lanes = [lane for lane in self.outlets if channel_in(lane) == channel]
        return [(subject, {lane: self.published_count(lane) for lane in lanes})]

    def _item(self, subject: str, obj: object) -> tuple[wire.Item, tuple[int, ...]]:
        body = msgspec.msgpack.encode(obj)
        return wire.Item(subject, 0, self.runtime.clock.wall_s(), 0, body), ()
