"""Whole runs of discovery and invocation over a network that fails, each drawn from one seed.

`simulate(seed)` lets nodes serve, call, cancel, retire and take over while frames are lost,
doubled, late and overtaken, links are cut or clogged, and nodes crash in the middle of what they
run, freeze, and come back. After every step it is checked that

- no call runs twice, unless its operation is idempotent;
- each call has one end, in time: a result, an error, or word that it may have run;
- one that is said not to have run has not, and one that returned has run, with that result;
- the items of a stream come in order, each once, and all of them before it ends;
- when nothing is wrong but the loss of some frames, all calls return;
- a call that must run once, and is tried again until it is answered, has run exactly once.

A seed that fails is replayed by `python -m infobus.testing.simulation.invocation SEED`; in a run in
which frames go astray, it is `SEED:SHARE`.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from infobus.errors import CallMayHaveRun
from infobus.protocols.invocation.effects import GivenUp, Raised, Returned, Yielded
from infobus.services.failures import read_error
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.harm import Harm, drawn_network
from infobus.testing.simulation.nodes.invocation import TICK_S, InvocationNode, MemoryReplies
from infobus.testing.simulation.reliable import replayable

LATE_S = 2 * TICK_S
"""How much later than its time a call may end."""
_SUBJECTS = ["a", "b"]


@dataclass(frozen=True)
class InvocationOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    calls_count: int
    returned_count: int
    unsure_count: int
    moved_count: int
    once_count: int
    items_count: int
    crashes_count: int
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


@dataclass
class _Call:
    """What is known of a call."""

    node: str
    subject: str
    arguments: dict[str, Any]
    deadline_s: float
    once: str = ""
    is_again: bool = False  # one that must run once, and has no answer yet
    ended: str = ""
    items: int = 0


class CallAccount:
    """Holds the nodes to their promises."""

    def __init__(self) -> None:
        self.calls: dict[int, _Call] = {}
        self.executed: Counter[str] = Counter()
        self.places: dict[str, set[str]] = {}  # logical call -> nodes that ran it
        self.unanswered: list[tuple[_Call, str]] = []  # calls that must run once, and where
        self.trace: list[tuple[object, ...]] = []
        self.items_count = 0
        self._error: Exception | None = None

    def failed(self, error: Exception) -> None:
        """A node has raised."""
        self._error = self._error or error

    def check(self, nodes: dict[str, InvocationNode], frozen: list[str], now_s: float) -> None:
        """Raise whatever went wrong."""
        if self._error is not None:
            raise self._error
        for key, call in self.calls.items():
            if call.arguments["count"]:
                continue  # a stream may take its time, as long as it is under way
            is_there = call.node in nodes and call.node not in frozen
            if not call.ended and is_there and now_s > call.deadline_s + LATE_S:
                raise Uneven(f"call {key} has no end at {now_s}; its time was {call.deadline_s}")

    def executed_by(self, node: InvocationNode, arguments: dict[str, Any]) -> None:
        """An operation begins."""
        name = arguments["name"]
        self.executed[name] += 1
        self.places.setdefault(name, set()).add(node.name)
        self.trace.append(("ran", node.name, name))
        if self.executed[name] > 1 and not arguments["idempotent"]:
            raise Uneven(f"{name} ran twice, the second time at {node.name}")

    def answered(self, effect: Returned | Raised | GivenUp) -> None:
        """A call has come to its end."""
        call = self.calls[effect.key]
        if call.ended:
            raise Uneven(f"call {effect.key} ends as {effect}, after it had {call.ended}")
        call.ended = type(effect).__name__
        name, count = call.arguments["name"], self.executed[call.arguments["name"]]
        self.trace.append(("ended", effect.key, call.ended))
        match effect:
            case Returned(_, body):
                if not count or msgspec.msgpack.decode(body) != call.arguments["result"]:
                    raise Uneven(f"{name} returned {body!r}, having run {count} times")
                if call.items != call.arguments["count"]:
                    raise Uneven(f"{name} ended after {call.items} items")
            case Raised(_, error):
                is_interrupted = isinstance(read_error(error), CallMayHaveRun)
                if is_interrupted and not count:
                    raise Uneven(f"{name} is said to have been interrupted, but it never ran")
                call.ended = "interrupted" if is_interrupted else "stopped"
            case GivenUp(_, why, server, detail, store):
                call.ended = f"given up, {why}"
                if server is None and detail != "died" and count and not call.is_again:
                    raise Uneven(f"{name} is said not to have run ({why}), but it did")
                if store:
                    self.unanswered.append((call, store))

    def yielded(self, effect: Yielded) -> None:
        """A stream has items."""
        call = self.calls[effect.key]
        for body in effect.bodies:
            call.items += 1
            self.items_count += 1
            if msgspec.msgpack.decode(body) != call.items:
                raise Uneven(f"item {body!r} of {call.arguments['name']} comes as {call.items}")


def simulate(seed: int, stray: float = 0.0) -> InvocationOutcome:
    """Do the run that `seed` draws; so many of the frames for one node come to another one, too.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = _Run(seed)
    run.network.faults = replace(run.network.faults, stray=stray)
    again = f"{seed}:{stray}" if stray else seed
    with replayable("infobus.testing.simulation.invocation", again, run.network):
        run.do_harm()
        run.settle()
        run.ask_once_more()
    account = run.account
    ends = Counter(call.ended for call in account.calls.values())
    return InvocationOutcome(
        seed,
        len(account.calls),
        ends["Returned"],
        ends["given up, died"] + ends["given up, late"] + ends["interrupted"],
        sum(len(places) > 1 for places in account.places.values()),
        sum(bool(call.once) and call.ended == "Returned" for call in account.calls.values()),
        account.items_count,
        run.crashes_count,
        tuple(account.trace),
    )


class _Run:
    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        is_on = [draw.random() < 0.5 for _ in range(8)]
        self.network = drawn_network(draw, is_on)
        self.account = CallAccount()
        self.homes = [MemoryReplies(name) for name in "hi"]
        self.nodes: dict[str, InvocationNode] = {}
        self.harm = harm = Harm(draw, self.network, lambda: self.nodes)
        self.crashes_count = 0
        self._born_count = 0
        self._names = 0
        self._actions: list[Callable[[], None]] = [self._call] * 12 + [self._cancel, self._serve]
        faults = [
            [harm.partition, harm.heal],
            [harm.swizzle, harm.heal],
            [harm.freeze, harm.thaw],
            [self._crash, self._be_born],
            [self._retire, self._serve],
        ]
        # What makes nodes take each other for dead, rightly or not.
        self._may_interrupt = any(is_on[3:7])
        for on, actions in zip(is_on[3:], faults, strict=True):
            self._actions += actions * on
        for _ in range(draw.randint(2, 4)):
            self._be_born()
        self._serve()

    # The witness.

    def executed(self, node: InvocationNode, arguments: dict[str, Any]) -> None:
        self.account.executed_by(node, arguments)

    def answered(self, node: InvocationNode, effect: Returned | Raised | GivenUp) -> None:
        self.account.answered(effect)

    def yielded(self, node: InvocationNode, effect: Yielded) -> None:
        self.account.yielded(effect)

    def failed(self, error: Exception) -> None:
        self.account.failed(error)

    # The three acts.

    def do_harm(self) -> None:
        for _ in range(self.random.randint(20, 60)):
            self.random.choice(self._actions)()
            self._advance(self.random.choice([0.0, 0.01, 0.2, 0.6]))

    def settle(self) -> None:
        """In a healed world every call ends, and those that must run once are run once."""
        self._advance(5.0)  # what is clogged comes out
        self.harm.end()
        self._advance(6.0)
        for subject in _SUBJECTS:
            for home in self.homes:  # the answers of a home are known to its nodes alone
                self._be_born_in(home).serve(subject, self.random)
        self._advance(3.0)
        for call, store in list(self.account.unanswered):
            self._try_again(call, store)

    def ask_once_more(self) -> None:
        """While frames get lost, but nothing worse happens, all calls return."""
        self.network.faults = replace(
            self.network.faults, loss=0.1, duplicate=0.1, reorder=0.1, lease_s=5.0
        )
        first = len(self.account.calls) + 1
        for node in self.nodes.values():
            for count in (0, 70):
                self._names += 1
                arguments = {
                    "name": f"call{self._names}",
                    "result": self._names,
                    "count": count,
                    "idempotent": False,
                }
                self._start(node, arguments, "", 90.0, self.random.choice(_SUBJECTS))
        until_s = self.network.now_s + 91.0
        while self.network.now_s < until_s and self._under_way():
            self._advance(1.0)
        for key, call in self.account.calls.items():
            if not call.ended and call.node in self.nodes:
                raise Uneven(f"call {key} has no end")
            if key >= first and call.ended != "Returned":
                raise Uneven(f"call {key} has {call.ended}, with no reason to")

    def _under_way(self) -> bool:
        calls = self.account.calls.values()
        return any(not call.ended and call.node in self.nodes for call in calls)

    def _try_again(self, call: _Call, store: str) -> None:
        """A call that must run once is answered at last, and has run once."""
        name = call.arguments["name"]
        node = self.random.choice(list(self.nodes.values()))
        key = self._start(node, call.arguments, call.once, 20.0, call.subject, store)
        while not self.account.calls[key].ended:
            self._advance(0.5)
        ended, count = self.account.calls[key].ended, self.account.executed[name]
        is_whole = ended == "Returned" and count >= 1
        was_interrupted = ended == "interrupted" and count == 1 and self._may_interrupt
        if not is_whole and not was_interrupted:
            raise Uneven(f"{name} must run once; it ran {count} times and ended as {ended}")

    def _advance(self, seconds: float) -> None:
        self.network.advance(seconds)
        self.account.check(self.nodes, self.harm.frozen, self.network.now_s)

    # What may happen.

    def _awake(self) -> list[InvocationNode]:
        return [node for name, node in self.nodes.items() if name not in self.harm.frozen]

    def _call(self) -> None:
        if awake := self._awake():
            draw = self.random
            self._names += 1
            arguments = {
                "name": f"call{self._names}",
                "result": draw.randrange(1000),
                "count": draw.choice([0, 0, 0, 5, 70]),
                "idempotent": draw.random() < 0.3,
            }
            is_once = not arguments["count"] and draw.random() < 0.3
            once = f"once{self._names}" if is_once else ""
            time_s, subject = draw.choice([0.3, 2.0, 5.0]), draw.choice(_SUBJECTS)
            self._start(draw.choice(awake), arguments, once, time_s, subject)

    def _start(
        self,
        node: InvocationNode,
        arguments: dict[str, Any],
        once: str,
        time_s: float,
        subject: str,
        store: str = "",
    ) -> int:
        key = len(self.account.calls) + 1
        deadline_s = self.network.now_s + time_s
        call = _Call(node.name, subject, arguments, deadline_s, once, bool(store))
        self.account.calls[key] = call
        by_load = self.random.random() < 0.3
        options = {"deadline_s": deadline_s, "by_load": by_load, "once": once, "store": store}
        node.call(key, subject, arguments, **options)
        return key

    def _cancel(self) -> None:
        for node in self._awake():
            if node.caller.calls and self.random.random() < 0.5:
                node.cancel(self.random.choice(list(node.caller.calls)))

    def _serve(self) -> None:
        if awake := self._awake():
            self.random.choice(awake).serve(self.random.choice(_SUBJECTS), self.random)

    def _retire(self) -> None:
        if serving := [node for node in self._awake() if node.server.offers]:
            node = self.random.choice(serving)
            node.retire(self.random.choice(list(node.server.offers.values())))

    def _be_born(self) -> None:
        if len(self.nodes) < 5:
            self._be_born_in(self.random.choice(self.homes))

    def _be_born_in(self, home: MemoryReplies) -> InvocationNode:
        self._born_count += 1
        name = f"node{self._born_count}"
        self.nodes[name] = InvocationNode(self.network, name, home, self)
        return self.nodes[name]

    def _crash(self) -> None:
        if self.nodes:
            name = self.random.choice(list(self.nodes))
            self.harm.forget(name)
            self.nodes.pop(name).crash()
            self.crashes_count += 1


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        drawn, _, strays = argument.partition(":")
        print(simulate(int(drawn), float(strays or 0)))
