"""Whole runs of daemons that agree on who is there, over a network that fails.

`simulate(seed)` lets daemons come, crash, start again from their disks, freeze and leave, while
links are cut, one way or both, and frames are lost, doubled, late and overtaken. Their heartbeat is
0.1 s. After every step it is checked that

- all members of a group have the same decision for each slot, and the same tables after it;
- a newcomer's table is that of the slot in which it was let in;
- no two members call different views stable at one time;
- applications are told each view, in order, none left out;
- where founders are named, at most one program takes itself for the primary of a service.

When everything is healed, all are members of one stable view within 3 s, and all operations have
been decided. `simulate_failure(seed)` lets one member fail in a calm group, and returns how many
heartbeats later the last of the others was told so. `simulate_lateness(seed, heartbeats)` has all
words of one member come late, and returns how the others fare.

A seed that fails is replayed by `python -m infobus.testing.simulation.membership SEED`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from infobus.engines.memory.engine import Faults, Network
from infobus.protocols.membership.effects import Installed
from infobus.protocols.membership.follower import ToldView
from infobus.protocols.membership.terms import MembershipTerms
from infobus.testing.simulation.accounts.membership import MembershipAccount
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.membership import (
    FollowingNode,
    MembershipNode,
    MemoryState,
)
from infobus.testing.simulation.reliable import replayable
from infobus.testing.simulation.world import quiet

HEARTBEAT_S = 0.1
SETTLE_S = 3.0
FAILURES = ("member crashes", "leader crashes", "member freezes", "leader freezes")


@dataclass(frozen=True)
class MembershipOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    views_count: int
    operations_count: int
    excluded_count: int
    crashes_count: int
    primaries_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> MembershipOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = MembershipRun(random.Random(seed))
    with replayable("infobus.testing.simulation.membership", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
    account = run.account
    return MembershipOutcome(
        seed,
        account.views_count,
        account.operations_count,
        account.excluded_count,
        run.crashes_count,
        account.primaries_count,
        settled_after_s,
        tuple(account.trace),
    )


def simulate_failure(seed: int, kind: str) -> float:
    """Let one member fail, and return after how many heartbeats all others were told."""
    draw = random.Random(seed)
    with quiet():
        run = MembershipRun(draw, is_calm=True)
        return run.fail(kind)


@dataclass(frozen=True)
class Lateness:
    """How a group fares with a member whose words all come late."""

    stable_share: float  # of the time in which all others call their view stable
    excluded_count: int
    let_in_count: int  # after that


def simulate_lateness(seed: int, heartbeats: float) -> Lateness:
    """Have all words of a member that is no leader come late by so much, in a calm group."""
    with quiet():
        return MembershipRun(random.Random(seed), is_calm=True).be_late(heartbeats)


class MembershipRun:
    """A world of daemons."""

    def __init__(self, draw: random.Random, is_calm: bool = False) -> None:
        self.random = draw
        is_on = [not is_calm and draw.random() < 0.5 for _ in range(7)]
        faults = Faults(
            loss=is_on[0] * draw.uniform(0, 0.2),
            duplicate=is_on[1] * 0.1,
            reorder=is_on[2] * draw.uniform(0, 0.5),
            delay_min_s=0.0003,
            delay_max_s=draw.choice([0.002, 0.005] if is_calm else [0.003, 0.02, 0.08]),
            detect_s=draw.uniform(0.01, 0.3),
            # Without tokens that go, heartbeats alone have to find out.
            lease_s=draw.choice([0.1, 0.3, 100.0]),
        )
        self.network = Network(draw.getrandbits(32), faults)
        self.account = MembershipAccount()
        count = 5 if is_calm else draw.choice([2, 3, 3, 4, 5])
        self.names = [f"d{i}" for i in range(count)]
        founders = tuple(self.names) if is_calm or draw.random() < 0.5 else ()
        self.terms = MembershipTerms(
            heartbeat_s=HEARTBEAT_S, founders=founders, alone_s=draw.choice([0.1, 1.0])
        )
        self.disks = {name: MemoryState() for name in self.names}
        self.nodes: dict[str, MembershipNode] = {}
        self.frozen: list[str] = []
        # Groups that have not met yet may each have a primary: only founders prevent that.
        programs_count = 2 * (not is_calm and bool(founders) and draw.random() < 0.5)
        self.programs: dict[str, FollowingNode] = {}
        self.crashes_count = self._born_count = self._stamp = 0
        self._check_again()
        for name in self.names:
            self._start(name)
        for number in range(programs_count):
            self._start_program(f"p{number}")
        harms = [[self._crash, self._start_one], [self._freeze, self._thaw]]
        harms += [[self._partition, self._heal], [self._cut, self._heal]]
        self._actions: list[Callable[[], None]] = [self._request] * 3 + [self._wait] * 2
        for on, actions in zip(is_on[3:], harms, strict=True):
            self._actions += actions * on

    # The witness.

    def stepped(self, node: MembershipNode) -> None:
        self.account.stepped(node)
        self._check()

    def told(self, node: MembershipNode, news: Any) -> None:
        self.account.told(node, news, self.network.now_s)

    def viewed(self, program: FollowingNode, view: ToldView) -> None:
        self.account.viewed(program, view)

    def failed(self, error: Exception) -> None:
        self.account.failed(error)

    # The acts.

    def do_harm(self) -> None:
        self._advance(self.random.uniform(0.0, 1.0))
        for _ in range(self.random.randint(5, 14)):
            self.random.choice(self._actions)()
            self._advance(self.random.choice([0.0, 0.02, 0.1, 0.3]))

    def settle(self) -> float:
        """In a healed world all agree soon; returns after how long."""
        network = self.network
        network.faults = Faults(delay_min_s=0.0003, delay_max_s=0.003, detect_s=0.05, lease_s=0.3)
        self._heal()
        for name in list(self.frozen):
            self._thaw_one(name)
        for name in self.names:
            if name not in self.nodes:
                self._start(name)
        begun_s = network.now_s
        while network.now_s < begun_s + SETTLE_S:
            self._advance(HEARTBEAT_S)
            if self._is_settled():
                return network.now_s - begun_s
        raise Uneven(f"not settled after {SETTLE_S} s: {self._in_words()}")

    def fail(self, kind: str) -> float:
        """One member fails in a calm group."""
        self._advance(1.0 + self.random.random() * HEARTBEAT_S)
        while not self._is_settled():
            self._advance(HEARTBEAT_S)
        leader = self.nodes[self.names[0]].member.seat.leader.partition("#")[0]
        others = [name for name in self.names if name != leader]
        victim = leader if kind.startswith("leader") else self.random.choice(others)
        lost, node, begun_s = self.nodes[victim].member.id, self.nodes[victim], self.network.now_s
        if kind.endswith("freezes"):
            self.frozen.append(victim)
            self.network.freeze(node.node)
        else:
            self.nodes.pop(victim).crash()
        self._advance(6 * HEARTBEAT_S)
        last_s = 0.0
        for name in self.names:
            if name != victim:
                told = self.account.told_s[self.nodes[name].node]
                views = [(s, one) for s, one in told if s > begun_s and isinstance(one, Installed)]
                heard = [s for s, one in views if lost not in one.members]
                last_s = max(last_s, heard[0] if heard else float("inf"))
        return (last_s - begun_s) / HEARTBEAT_S

    def be_late(self, heartbeats: float) -> Lateness:
        """One member's words come late, for a hundred heartbeats."""
        while not self._is_settled():
            self._advance(HEARTBEAT_S)
        leader = self.nodes[self.names[0]].member.seat.leader.partition("#")[0]
        late, *others = sorted(self.names, key=lambda name: name == leader)
        engine, begun_s, stable_count = self.nodes[late].runtime.engine, self.network.now_s, 0
        put = engine.put

        def put_later(*frame: Any, **how: Any) -> None:
            self.network.call_later(heartbeats * HEARTBEAT_S, lambda: put(*frame, **how))

        engine.put = put_later  # type: ignore[method-assign]
        for _ in range(100):
            self._advance(HEARTBEAT_S)
            now_s = self.network.now_s
            stable = [self.nodes[one].member.stable_left_s(now_s) > 0 for one in others]
            stable_count += all(stable)
        told = self.account.told_s[self.nodes[others[0]].node]
        views = [one.members for s, one in told if s > begun_s and isinstance(one, Installed)]
        there = [True, *(any(m.startswith(f"{late}#") for m in members) for members in views)]
        changes = [*pairwise(there)]
        return Lateness(
            stable_count / 100, changes.count((True, False)), changes.count((False, True))
        )

    def _is_settled(self) -> bool:
        now_s = self.network.now_s
        members = [node.member for node in self.nodes.values()]
        return (
            all(member.stable_left_s(now_s) > 0 for member in members)
            and len({(m.seat.sequence.group, m.seat.sequence.slot) for m in members}) == 1
            and len(members[0].seat.sequence.members) == len(self.names)
            and all(None not in node.asked.values() for node in self.nodes.values())
            and (not self.programs or any(one.is_primary for one in self.programs.values()))
        )

    def _in_words(self) -> list[object]:
        now_s = self.network.now_s
        told: list[object] = []
        for node in self.nodes.values():
            sequence, why = node.member.seat.sequence, node.member.why_unstable(now_s)
            told.append((node.node, node.member.id, sequence.slot, sequence.members, why))
        return told

    def _advance(self, seconds: float) -> None:
        self.network.advance(seconds)
        self._check()

    def _check(self) -> None:
        awake = [node for name, node in self.nodes.items() if name not in self.frozen]
        self.account.check(awake, self.network.now_s)
        programs = [one for name, one in self.programs.items() if name not in self.frozen]
        self.account.check_primaries(programs)

    def _check_again(self) -> None:
        try:
            self._check()
        except Exception as error:
            self.account.failed(error)
        self.network.call_later(HEARTBEAT_S / 7, self._check_again)

    # What may happen.

    def _start(self, name: str) -> None:
        self._born_count += 1
        self._stamp += 1
        node = f"{name}-{self._born_count}"
        disk = self.disks[name]
        self.nodes[name] = MembershipNode(
            self.network, node, name, self.terms, disk, self._stamp, self
        )

    def _start_one(self) -> None:
        if down := [name for name in self.names if name not in self.nodes]:
            self._start(self.random.choice(down))

    def _start_program(self, name: str) -> None:
        self._born_count += 1
        node = f"{name}-{self._born_count}"
        self.programs[name] = FollowingNode(self.network, node, self)

    def _node_of(self, name: str) -> str:
        return (self.nodes[name] if name in self.nodes else self.programs[name]).node

    def _awake(self) -> list[str]:
        return [name for name in self.nodes if name not in self.frozen]

    def _crash(self) -> None:
        if names := [*self.nodes, *self.programs]:
            name = self.random.choice(names)
            if name in self.frozen:
                self.frozen.remove(name)
            if name in self.programs:
                self.programs.pop(name).crash()
                self._start_program(name)
                return
            self.nodes.pop(name).crash()
            self.crashes_count += 1

    def _freeze(self) -> None:
        awake = self._awake() + [name for name in self.programs if name not in self.frozen]
        if awake:
            name = self.random.choice(awake)
            self.frozen.append(name)
            self.network.freeze(self._node_of(name))

    def _thaw(self) -> None:
        if self.frozen:
            self._thaw_one(self.random.choice(self.frozen))

    def _thaw_one(self, name: str) -> None:
        self.frozen.remove(name)
        self.network.thaw(self._node_of(name))

    def _partition(self) -> None:
        nodes = list(map(self._node_of, [*self.nodes, *self.programs]))
        self.random.shuffle(nodes)
        at = self.random.randint(0, len(nodes))
        self.network.partition(nodes[:at], nodes[at:])

    def _cut(self) -> None:
        if len(self.nodes) > 1:
            names = self.random.sample([*self.nodes, *self.programs], 2)
            self.network.cut(*map(self._node_of, names))

    def _heal(self) -> None:
        self.network.heal()

    def _request(self) -> None:
        if awake := self._awake():
            verb = self.random.choice(["create", "create", "delete"])
            self.nodes[self.random.choice(awake)].request(verb, f"n{self.random.randrange(3)}")

    def _wait(self) -> None:
        self._advance(self.random.choice([0.1, 0.5]))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
