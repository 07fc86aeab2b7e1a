"""The account of followers: the state first, then exactly the events that followed it.

A `StateAccount` holds nodes to what an `Account` does, and to this:

* after a sender's state, a follower gets the event that followed it, then the next, and no other;
* a follower that its sender sent nothing for a while begins anew;
* once everything is settled, a follower knows what each sender that gave it state has published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infobus.bus.deliver.event import Event
from infobus.protocols.frames.lanes import channel_in, lane_of
from infobus.subjects import channel_of
from infobus.testing.simulation.accounts.reliable import Account, Uneven
from infobus.testing.simulation.nodes.initial_state import SimulatedFollower, StateNode
from infobus.testing.simulation.nodes.reliable import Attributes, SimulatedNode


@dataclass
class StateAccount(Account):
    """The witness of one simulated run with followers."""

    states_count: int = 0
    followed_count: int = 0

    def followers(self) -> Iterable[SimulatedFollower]:
        """Those of all live nodes."""
        for node in self.nodes.values():
            assert isinstance(node, StateNode)
            yield from node.followers

    def published(
        self,
        node: SimulatedNode,
        lane: str,
        subject: str,
        attributes: Attributes,
        event: int,
        number: int | None,
    ) -> None:
        """Note also who misses an event because its sender believes that nobody wants it."""
        super().published(node, lane, subject, attributes, event, number)
        if number is None:
            for follower in self.followers():
                if (node.name, channel_in(lane)) in follower.informed:
                    follower.behind.add(node.name)

    def followed(self, follower: SimulatedFollower, event: Event) -> None:
        """Check that it is the state, or what comes next after it."""
        channel = channel_of(event.subject, self.depth)
        sender = event.sender
        if event.initial:
            self.states_count += 1
            follower.informed.add((sender, channel))
            for lane in [c for s, c in follower.counts if s == sender and channel_in(c) == channel]:
                del follower.counts[sender, lane]
            follower.counts |= {(sender, lane): count for lane, count in event.data.items()}
            return
        self.followed_count += 1
        lane = lane_of(channel, "" if event.priority == "regular" else event.priority)
        is_informed = (sender, channel) in follower.informed
        count = follower.counts.get((sender, lane), 0 if is_informed else None)
        if count is not None and event.seq != count + 1:
            what = f"event {event.seq} of {sender} on {lane!r} after {count}"
            raise Uneven(f"{follower.node}: the follower of {follower.pattern!r} got {what}")
        follower.counts[sender, lane] = event.seq

    def debts(self) -> Iterable[str]:
        """What is still owed, in words."""
        yield from super().debts()
        for follower in self.followers():
            who = f"{follower.node}: the follower of {follower.pattern!r}"
            if senders := follower.behind & self.nodes.keys():
                yield f"{who} does not know that it missed events of {sorted(senders)}"
            for (sender, lane), count in follower.counts.items():
                node = self.nodes.get(sender)
                if node is not None and count != (all_count := node.published_count(lane)):
                    yield f"{who} knows of {count} of {all_count} events of {sender} on {lane!r}"
