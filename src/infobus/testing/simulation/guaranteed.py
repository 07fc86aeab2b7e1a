"""Whole runs of guaranteed delivery over networks and disks that fail, each drawn from one seed.

`simulate(seed)` lets nodes of a few homes publish guaranteed events and consume them durably while
frames are lost, doubled, late and overtaken, links are cut or clogged, and nodes crash in the
middle of whatever they do, freeze, come back, and take over what dead ones had served. Some of the
events are transactions. Ledgers let go of events before everyone has them; applications nack. A
`GuaranteedAccount` holds the nodes to their promises after every step. Then the world heals, and
within `SETTLE_S` everything accepted must be settled, dead-lettered or reported lost, at every
consumer that it is for.

A seed that fails is replayed by `python -m infobus.testing.simulation.guaranteed SEED`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from infobus.protocols.frames import transactions
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.frames.wire import Item, Items
from infobus.protocols.guaranteed.adoption import LedgerTurns
from infobus.protocols.guaranteed.effects import ConsumerTerms
from infobus.protocols.guaranteed.server import ServerTerms
from infobus.stores.ledger.record import Record
from infobus.testing.memory_stores import MemoryDisk
from infobus.testing.simulation.accounts.guaranteed import GuaranteedAccount
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.harm import Harm, drawn_network
from infobus.testing.simulation.nodes.guaranteed import (
    WALL_AHEAD_S,
    DurableInterest,
    GuaranteedNode,
    let_go,
)
from infobus.testing.simulation.reliable import replayable

SETTLE_S = 60.0
"""Virtual time within which a healed world is at rest, whatever had happened."""

_SUBJECTS = ["a.x", "a.y", "b.x", "b.y"]
_PATTERNS = [(">",), ("a.>",), ("b.x", "a.*"), ("*.y",), ("dead.>",)]
_FILTERS = ["", "", "n > 2", "n == 1"]


@dataclass(frozen=True)
class GuaranteedOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    accepted_count: int
    delivered_count: int
    again_count: int
    groups_count: int
    dead_count: int
    lost_count: int
    crashes_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> GuaranteedOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = _Run(seed)
    with replayable("infobus.testing.simulation.guaranteed", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    account = run.account
    return GuaranteedOutcome(
        seed,
        account.accepted_count,
        account.delivered_count,
        account.again_count,
        account.groups_count,
        account.dead_count,
        account.lost_count,
        account.crashes_count,
        settled_after_s,
        tuple(account.trace),
    )


class _Run:
    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        is_on = [draw.random() < 0.5 for _ in range(11)]
        self.network = drawn_network(draw, is_on)
        announce_s = draw.choice([1.0, 5.0])
        self.terms = (
            ServerTerms(
                lease_s=3 * announce_s,
                skip_s=draw.choice([0.5, 5.0]),
                slice_count=draw.choice([1, 3, 256]),
                slice_bytes=draw.choice([1, 1_000_000]),
            ),
            ConsumerTerms(
                announce_s=announce_s,
                held_count_max=draw.choice([1, 4, 1_024]),
                held_bytes_max=draw.choice([1, 100, 1_000_000]),
                above_count_max=draw.choice([1, 10_000]),
                out_count_max=draw.choice([1, 3, 256]),
                deliveries_max=draw.choice([2, 5]),
                careful_s=draw.choice([0.0, 1.0]),
                pause_s_max=draw.choice([0.2, 2.0]),
            ),
        )
        self.open_count_max = draw.choice([1, 2, 8])
        self.account = GuaranteedAccount(self.random, self.terms[1])
        self.account.disk = random.Random(seed)  # its own: the rest is drawn as before
        self.account.nack_chance = is_on[3] * draw.uniform(0, 0.3)
        self.account.full_disk_chance = is_on[4] * draw.uniform(0, 0.5)
        self.homes = [MemoryDisk(name) for name in "hij"[: draw.randint(1, 3)]]
        self.interests: dict[str, DurableInterest] = {}
        self.harm = harm = Harm(draw, self.network, lambda: list(self.account.nodes))
        self._born_count = self._groups_count = 0
        self._actions: list[Callable[[], None]] = [self._publish] * 10 + [self._take_over] * 2
        self._actions += [self._register] * 2 + [self._consume] * 3 + [self._stop]
        faults = [
            [harm.partition, harm.heal],
            [harm.swizzle, harm.heal],
            [harm.freeze, harm.thaw],
            [self._crash, self._be_born],
            [self._crash_soon, self._crash_soon, self._be_born],
            [self._prune],
        ]
        for on, actions in zip(is_on[5:], faults, strict=True):
            self._actions += actions * on
        for home in self.homes:
            self._be_born_in(home)
        self._be_born()
        self._register()

    # The three acts.

    def do_harm(self) -> None:
        for _ in range(self.random.randint(15, 60)):
            self.random.choice(self._actions)()
            self._advance(self.random.choice([0.005, 0.05, 0.3]))

    def settle(self) -> float:
        self._advance(max(0.0, self.harm.clogged_until_s - self.network.now_s))
        self.harm.end()
        self.account.nack_chance = self.account.full_disk_chance = 0.0
        for node in self._nodes():
            node.effects_left = None
        for home in self.homes:
            if not any(node.home is home for node in self._nodes()):
                self._be_born_in(home)
        healed_s = self.network.now_s
        while unsettled := list(self._unsettled()):
            if self.network.now_s - healed_s > SETTLE_S:
                raise Uneven(f"not settled {SETTLE_S} s after healing: " + "; ".join(unsettled))
            for node in self._nodes():
                node.take_over()
            for name in self._idle():
                self._consume_one(name)
            self._advance(0.5)
        return self.network.now_s - healed_s

    def say_one_more_thing(self) -> None:
        lost_count = self.account.lost_count
        for node in self._nodes():
            events = [self._event(subject) for subject in _SUBJECTS]
            node.publish([*events, self._transaction()])
        # A node without a ledger may still take a dead consumer for the one that uses its name.
        server, consumer = self.terms
        bound_s = server.lease_s + server.skip_s + consumer.announce_s + 5.0
        until_s = self.network.now_s + bound_s
        self._advance(0.5)
        while unsettled := list(self._unsettled()):
            if self.network.now_s > until_s:
                raise Uneven("after one more event from everyone: " + "; ".join(unsettled))
            for node in self._nodes():
                node.take_over()
            self._advance(0.5)
        if self.account.lost_count > lost_count:
            raise Uneven("a loss is reported although nothing was lost")

    def _advance(self, seconds: float) -> None:
        self.network.advance(seconds)
        self.account.check()

    def _unsettled(self) -> Iterable[str]:
        yield from self.account.debts()
        yield from (f"{name} is not used" for name in self._idle())

    # What may happen.

    def _nodes(self) -> list[GuaranteedNode]:
        return list(self.account.nodes.values())

    def _awake(self) -> list[GuaranteedNode]:
        return [node for node in self._nodes() if node.name not in self.harm.frozen]

    def _idle(self) -> list[str]:
        used = [name for node in self._nodes() for name in node.consumers]
        return [name for name in self.interests if name not in used]

    def _event(self, subject: str, *, poison: bool = False, age_s: float | None = None) -> Record:
        wall_s = self.network.now_s + WALL_AHEAD_S
        expires = None if age_s is None else wall_s + age_s
        return Record(subject, wall_s, 0, self._body(poison), expires=expires)

    def _transaction(self, *, poison: bool = False, age_s: float | None = None) -> Record:
        self._groups_count += 1
        first = self._event(self.random.choice(_SUBJECTS), poison=poison, age_s=age_s)
        subjects = [first.subject, *self.random.choices(_SUBJECTS, k=self.random.randrange(3))]
        bodies = [first.body, *(self._body() for _ in subjects[1:])]
        events = [
            Item(subject, number, first.time, 0, body)
            for number, (subject, body) in enumerate(zip(subjects, bodies, strict=True), 1)
        ]
        group = Group(1, self._groups_count, 1, Items.of(events), len(events))
        return replace(first, type=GROUP, body=transactions.encode(group))

    def _body(self, poison: bool = False) -> bytes:
        attributes = {"n": self.random.randrange(5), **({"poison": True} if poison else {})}
        return msgspec.msgpack.encode(attributes)

    def _publish(self) -> None:
        if awake := self._awake():
            draw = self.random
            node = draw.choice(awake)
            for _ in range(draw.choice([1, 1, 3, 10])):
                age_s = draw.choice([None] * 8 + [0.05, 1.0])
                poison = draw.random() < 0.03
                if draw.random() < 0.25:
                    event = self._transaction(poison=poison, age_s=age_s)
                else:
                    event = self._event(draw.choice(_SUBJECTS), poison=poison, age_s=age_s)
                if node.is_alive:
                    node.publish([event])

    def _take_over(self) -> None:
        if awake := self._awake():
            self.random.choice(awake).take_over()

    def _register(self) -> None:
        if len(self.interests) < 4:
            name = f"c{len(self.interests)}"
            self.interests[name] = DurableInterest(
                name,
                self.random.choice(self.homes),
                self.random.choice(_PATTERNS),
                self.random.choice(_FILTERS),
                self.random.random() < 0.6,
            )
            self._consume_one(name)

    def _consume(self) -> None:
        if idle := self._idle():
            self._consume_one(self.random.choice(idle))

    def _consume_one(self, name: str) -> None:
        interest = self.interests[name]
        if able := [node for node in self._awake() if node.home is interest.home]:
            self.random.choice(able).consume(interest)

    def _stop(self) -> None:
        if using := [node for node in self._awake() if node.consumers]:
            node = self.random.choice(using)
            consumer = self.random.choice(list(node.consumers.values()))
            node.stop(consumer.name)
            self.account.stopped(node.name, consumer)

    def _prune(self) -> None:
        if ledgers := [ledger for node in self._nodes() for ledger in node.ledgers.values()]:
            ledger = self.random.choice(ledgers)
            let_go(ledger, self.random.randrange(ledger.gone_up_to, ledger.next))

    def _be_born(self) -> None:
        if len(self.account.nodes) < 5:
            self._be_born_in(self.random.choice(self.homes))

    def _be_born_in(self, home: MemoryDisk) -> None:
        self._born_count += 1
        name = f"node{self._born_count}"
        # Longer than it takes to tell a consumer that nothing more is there for it.
        turns = LedgerTurns(open_count_max=self.open_count_max, turn_s=self.terms[0].skip_s + 2)
        node = GuaranteedNode(self.network, home, name, self.terms, turns, self.account)
        self.account.nodes[name] = node

    def _crash(self) -> None:
        if nodes := self._nodes():
            node = self.random.choice(nodes)
            self.harm.forget(node.name)
            node.crash()

    def _crash_soon(self) -> None:
        if awake := self._awake():
            self.random.choice(awake).effects_left = self.random.randrange(12)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
