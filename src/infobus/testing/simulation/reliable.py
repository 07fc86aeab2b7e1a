"""Whole runs of the protocols over a network that fails, each drawn from one seed.

`simulate(seed)` lets a few nodes publish and subscribe while frames are lost, doubled, late and
overtaken, links are cut or clogged, and nodes crash, leave, freeze and come back. An `Account`
holds the nodes to their promises after every step. Then the network heals, and everything must
be settled within `SETTLE_S`: every debt paid, every table equal to what the rows' owners tell,
nothing left of dead nodes, and one more event from everyone delivered to everyone who wants it.

A seed that fails is replayed by `python -m infobus.testing.simulation.reliable SEED`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from infobus.bus.publish.gather import ITEM_BYTES
from infobus.bus.publish.outlet import Batch
from infobus.protocols.interest.own_rows import channel_pattern
from infobus.protocols.reliable.peer import Route, Terms
from infobus.subjects import channel_of
from infobus.testing.simulation.accounts.reliable import Account, Uneven
from infobus.testing.simulation.harm import Harm, drawn_network
from infobus.testing.simulation.nodes.reliable import (
    CLASSES,
    GATHER_BYTES,
    TICK_S,
    Attributes,
    SimulatedNode,
)
from infobus.testing.simulation.world import quiet

SETTLE_S = 15.0
"""Virtual time within which a healed network is at rest, whatever had happened."""

FREEZE_S = 0.3
"""No lease that is drawn is shorter, so whoever was taken for dead can know that it stood still."""

REST_S = 4.0
"""A sender stops waiting sooner for a node that confirms nothing, but not for one that holds it."""

SUBJECTS = [f"{a}.{b}.{c}" for a in "ab" for b in "xy" for c in "12"]
_PATTERNS = [">", "a.>", "b.>", "a.x.*", "*.y.1", "a.*.2", "b.x.1", "b.y.>"]
_FILTERS = ["", "", "n > 2", "n <= 2", "n == 1", "n in [0, 4]", 'c == "red"', "exists(c) && n != 3"]
_COLOURS: list[Attributes] = [{}, {"c": "red"}, {"c": "blue"}, {"c": 7}]
_PUBLISHED_CLASSES = ["", "", "", *CLASSES]
_WIDE_TERMS = {"rows_count_max": 10_000, "filters_count_max": 64, "spare_count_max": 10_000}
_BATCH_COUNT_MAX = 5
_NODES_COUNT_MAX = 5
_BATCHES = [None, None, Batch(100, 2.0), Batch(GATHER_BYTES, 50.0)]
_FRAME_COUNT_MAX = GATHER_BYTES * (_NODES_COUNT_MAX - 1) // ITEM_BYTES + 1


class SimulationFailed(AssertionError):
    """A run broke a promise; the message says which seed replays it."""


@dataclass(frozen=True)
class Outcome:
    """What happened in a run that kept all promises."""

    seed: int
    published_count: int
    delivered_count: int
    lost_count: int
    unknown_count: int
    """Of these, the losses of unknown size."""
    unreachable_count: int
    missed_count: int
    """How often a node complained that it does not see one whom others see."""
    quenched_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


class VirtualClock(Protocol):
    """Something that knows the virtual time."""

    now_s: float


@contextmanager
def replayable(module: str, seed: int | str, clock: VirtualClock) -> Iterator[None]:
    """Let whatever goes wrong say how it can be seen again."""
    try:
        with quiet():
            yield
    except Exception as error:
        raise SimulationFailed(
            f"{type(error).__name__}: {error}\n"
            f"  seed {seed}, at {clock.now_s:.3f} s; to replay it:\n"
            f"  python -m {module} {seed}"
        ) from error


def simulate(seed: int) -> Outcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = SimulationRun(seed)
    with replayable("infobus.testing.simulation.reliable", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    return outcome_of(run, seed, settled_after_s)


def outcome_of(run: SimulationRun, seed: int, settled_after_s: float) -> Outcome:
    """What the account of a run says in the end."""
    account = run.account
    return Outcome(
        seed,
        account.published_count,
        account.delivered_count,
        account.lost_count,
        account.unknown_count,
        account.unreachable_count,
        len(account.missed),
        account.quenched_count,
        settled_after_s,
        tuple(account.trace),
    )


class SimulationRun:
    """One run, drawn from a seed; others may add to what happens in it."""

    frame_bytes_max = 500

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        is_rough = draw.random() < 0.7  # else: nothing that would excuse a loss
        self.terms = Terms(
            depth=draw.choice([1, 1, 2]),
            window_count_max=draw.choice([4, 16, 64, 1000]),
            window_bytes_max=draw.choice([500, 1_000_000]),
            stall_s=draw.choice([0.5, 2.0]) if is_rough else 2.0,
            rows_count_max=draw.choice([3, 10_000, 10_000]),
            filters_count_max=draw.choice([1, 64]),
            spare_count_max=draw.choice([0, 4, 10_000, 10_000]),
            freeze_s=FREEZE_S,
        )
        is_on = [draw.random() < 0.5 for _ in range(9)]
        self.network = drawn_network(draw, is_on, 0.3 if is_rough else 0.05)
        self.batch = draw.choice(_BATCHES)
        self._is_calm = not is_rough and not self.network.faults.loss
        self.account = self._account()
        self.harm = harm = Harm(draw, self.network, self._names)
        self._born_count = 0
        self.actions: list[Callable[[], None]] = [self.publish_some] * 12
        self.actions += [self.subscribe_one] * 3 + [self._unsubscribe, self._replace, self.rest_one]
        faults_of_nodes = [
            [harm.partition, harm.heal],
            [harm.cut, harm.heal],
            [harm.swizzle, harm.heal],
            [self.freeze_one, harm.thaw],
            [self._crash, self.be_born],
            [self.leave_one, self.be_born],
        ]
        if is_rough:
            for on, actions in zip(is_on[3:], faults_of_nodes, strict=True):
                self.actions += actions * on
        for _ in range(draw.randint(2, 5)):
            self.be_born()
        if not is_rough:
            self.account.blameless = self._names()

    # The three acts.

    def do_harm(self) -> None:
        """Let things happen, most of them bad."""
        for _ in range(self.random.randint(15, 60)):
            self.random.choice(self.actions)()
            self.advance(self.random.choice([0.005, 0.05, 0.3]))

    def settle(self) -> float:
        """Heal the network, and wait until everything is settled; how long that took."""
        self.advance(max(0.0, self.harm.clogged_until_s - self.network.now_s))
        self.harm.end()
        healed_s = self.network.now_s
        self.advance(2 * self.network.faults.lease_s)  # until then some see what is no more
        while unsettled := list(self.unsettled()):
            if self.network.now_s - healed_s > SETTLE_S:
                raise Uneven(f"not settled {SETTLE_S} s after healing: " + "; ".join(unsettled))
            self.advance(0.2)
        return self.network.now_s - healed_s

    def say_one_more_thing(self) -> None:
        """Publish once more from everyone, which must reach everyone who wants it."""
        terms, nodes = self.terms, self.account.nodes
        self.account.blameless = list(nodes)
        self.account.is_exact = terms == replace(terms, **_WIDE_TERMS)
        for node in nodes.values():
            for subject in SUBJECTS:
                assert node.publish([(subject, self.drawn_attributes())])
                self.advance(0.02)  # confirmations make room in the window
        self.advance(1.5)  # rows that are missed are asked for once a second
        self.check_settled("after one more event from everyone")

    def check_settled(self, when: str) -> None:
        """Raise `Uneven` unless everything is settled."""
        if unsettled := list(self.unsettled()):
            raise Uneven(f"{when}: " + "; ".join(unsettled))

    def advance(self, seconds: float) -> None:
        self.network.advance(seconds)
        self.account.check()
        for node in self.account.nodes.values():
            for lane, route in node.node.routes.items():
                self._check_window(node.name, lane, route)
            for peer in node.node.missed():
                self.account.misses(node, peer)
            for peer in node.node.rows.records:
                self.account.holds_rows(node, peer)
            if self._is_calm:
                self._check_rows_arrive(node)

    def _check_rows_arrive(self, node: SimulatedNode) -> None:
        """Where no frame is lost, everyone soon knows what is wanted."""
        faults = self.network.faults
        late_s = self.terms.idle_beat_s + faults.detect_s + 4 * faults.delay_max_s + 2 * TICK_S
        others = self.account.nodes.keys() - {node.name}
        for subscription in node.subscriptions:
            version = subscription.filters[-1][0]
            unaware = [name for name in others if subscription.known.get(name, 0) < version]
            if unaware and self.network.now_s - subscription.changed_at_s > late_s:
                pattern = subscription.pattern
                raise Uneven(f"{unaware} have not heard of {node.name}'s {pattern!r} in {late_s} s")

    def _check_window(self, name: str, lane: str, route: Route) -> None:
        # The window may be overstepped by the frame that fills it, and a frame is kept whole.
        kept_bytes = sum(len(frame) for _, _, frame in route.buffer)
        kept_count = sum(end - first for first, end, _ in route.buffer)
        is_waiting = any(progress.waited_for for progress in route.receivers.values())
        count_max = self.terms.window_count_max + 2 * _FRAME_COUNT_MAX
        if kept_bytes > self.terms.window_bytes_max + self.frame_bytes_max or (
            is_waiting and kept_count > count_max
        ):
            kept = f"{kept_count} events and {kept_bytes} bytes"
            raise Uneven(f"{name} keeps {kept} of {lane!r}, more than its window allows")
        retained_bytes = sum(len(frame) for _, _, frame in route.retained)
        retained_count = sum(end - first for first, end, _ in route.retained)
        if retained_bytes > self.terms.window_bytes_max or (
            retained_count > self.terms.window_count_max
        ):
            kept = f"{retained_count} events and {retained_bytes} bytes"
            raise Uneven(f"{name} retains {kept} of {lane!r} for absent nodes, more than a window")
        places = [progress.next for progress in route.receivers.values() if progress.waited_for]
        kept_from = (*route.retained, *route.buffer, (route.next, 0, b""))[0][0]
        if any(place < kept_from for place in places):
            raise Uneven(f"{name} waits on {lane!r} for a node that it has nothing for")

    def unsettled(self) -> Iterable[str]:
        """What is not as it must be in the end, in words."""
        yield from self.account.debts()
        nodes = self.account.nodes
        for node in nodes.values():
            alive = {name for name, peer in node.node.peers.items() if peer.alive}
            if alive != nodes.keys() - {node.name}:
                yield f"{node.name} sees {sorted(alive)}"
            if not (node.node.is_synced() and all(r.is_quiet() for r in node.node.routes.values())):
                yield f"{node.name} waits for an answer"
            if node.rest_s > 0:
                yield f"{node.name} lets its consumers rest"
            if node.is_leaving():
                yield f"{node.name} has not sent what was published"
            for name, peer in node.node.peers.items():
                for lane, receiver in peer.receivers.items():
                    if receiver.has_hole():  # also of a dead sender, until it is given up
                        yield f"{node.name} misses events of {name} on {lane!r}"
            yield from self._disagreements(node)

    def _disagreements(self, node: SimulatedNode) -> Iterable[str]:
        """Where what a node believes that others want is not what they tell."""
        others = {o.name: o.node.own for o in self.account.nodes.values() if o is not node}
        records = node.node.rows.records
        if records.keys() != others.keys():
            yield f"{node.name} holds rows of {sorted(records)}"
        for name, own in others.items():
            if own.crowded or any(group.asked for group in own.groups.values()):
                yield f"{name} has not reduced its rows"
            if name in records:
                record = records[name]
                held = {(p, where) for p, filters in record.rows.items() for where in filters}
                missing = own.added.keys() - held
                if (
                    record.is_missed
                    or held - own.added.keys()
                    or not record.let_go.issuperset(
                        channel_pattern(pattern, self.terms.depth) for pattern, _ in missing
                    )
                ):
                    yield f"{node.name} holds {held} of {name}, which tells {list(own.added)}"

    def _account(self) -> Account:
        return Account(self.terms.depth)

    def _node(self, name: str) -> SimulatedNode:
        return SimulatedNode(self.network, name, self.terms, self.account, self.batch)

    # What may happen.

    def awake(self) -> list[SimulatedNode]:
        return [n for name, n in self.account.nodes.items() if name not in self.harm.frozen]

    def _names(self) -> list[str]:
        return list(self.account.nodes)

    def be_born(self) -> None:
        if len(self.account.nodes) < _NODES_COUNT_MAX:
            self._born_count += 1
            name = f"node{self._born_count}"
            self.account.nodes[name] = self._node(name)

    def publish_some(self) -> None:
        if awake := self.awake():
            node = self.random.choice(awake)
            subject = self.random.choice(SUBJECTS)
            depth = self.terms.depth
            channel = channel_of(subject, depth)
            others = [s for s in SUBJECTS if channel_of(s, depth) == channel]
            count = self.random.choice([1, 1, 2, _BATCH_COUNT_MAX])
            for _ in range(self.random.choice([1, 1, 3, 10])):
                some = [self.random.choice(others) for _ in range(count)]
                class_ = self.random.choice(_PUBLISHED_CLASSES)
                node.publish([(subject, self.drawn_attributes()) for subject in some], class_)

    def drawn_attributes(self) -> Attributes:
        return {"n": self.random.randrange(6), **self.random.choice(_COLOURS)}

    def subscribe_one(self) -> None:
        if awake := self.awake():
            node = self.random.choice(awake)
            pattern, where = self.random.choice(_PATTERNS), self.random.choice(_FILTERS)
            self.account.subscribed(node.subscribe(pattern, where))

    def _replace(self) -> None:
        if subscribed := [node for node in self.awake() if node.subscriptions]:
            node = self.random.choice(subscribed)
            subscription = self.random.choice(node.subscriptions)
            node.replace(subscription, self.random.choice(_FILTERS))
            self.account.replaced(subscription)

    def _unsubscribe(self) -> None:
        if subscribed := [node for node in self.awake() if node.subscriptions]:
            node = self.random.choice(subscribed)
            subscription = self.random.choice(node.subscriptions)
            node.unsubscribe(subscription)
            self.account.unsubscribed(node, subscription)

    def rest_one(self) -> None:
        """Let the consumers of a node take nothing for a while."""
        if awake := self.awake():
            node = self.random.choice(awake)
            node.rest(self.random.choice([0.5, REST_S]))
            self.account.rested.add(node.name)

    def freeze_one(self) -> None:
        self.harm.freeze()
        self.account.stood_still.update(self.harm.frozen)

    def _crash(self) -> None:
        if names := self._names():
            name = self.random.choice(names)
            self.network.crash(name)
            self.end_node(name)

    def leave_one(self) -> None:
        if awake := self.awake():
            node = self.random.choice(awake)
            node.leave()
            self.end_node(node.name)

    def end_node(self, name: str) -> None:
        self.harm.forget(name)
        self.account.ended(self.account.nodes[name])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
