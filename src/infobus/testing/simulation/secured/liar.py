"""Whole runs of a secured bus on which one member lies, each drawn from one seed.

`simulate(seed)` is a run of the reliable simulation over sealed frames, in which one more member
hears everything and puts whatever it likes: what others have put, again, elsewhere, or changed;
frames in the names of others, sealed by itself or not at all; messages of handshakes. The honest
nodes must keep every promise among themselves, and nothing counts that the liar has said in
another's name.

A seed that fails is replayed by `python -m infobus.testing.simulation.secured.liar SEED`.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field

from infobus.engines.memory.engine import MemoryEngine
from infobus.engines.sealed.engine import SealedEngine
from infobus.protocols.frames import wire
from infobus.protocols.frames.items import Items
from infobus.protocols.frames.security import (
    Greeting,
    GreetingBack,
    GreetingDone,
    GreetingHeard,
    Posture,
    encode,
)
from infobus.protocols.frames.wire import Item
from infobus.protocols.security.seals import sealed_for_many, sealed_for_one
from infobus.testing.simulation.nodes.reliable import SimulatedNode
from infobus.testing.simulation.nodes.sealed import Plant, SealedNode
from infobus.testing.simulation.reliable import SUBJECTS, SimulationRun, replayable

LIAR = "liar"
_HEARD_COUNT_MAX = 500


@dataclass(frozen=True)
class LiarOutcome:
    """What happened in a run in which no lie was believed."""

    seed: int
    lies_count: int
    delivered_count: int
    lost_count: int
    forged_count: int
    """Frames in another's name, sealed by the liar, that were dropped."""
    unopened_count: int
    repeated_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


def simulate(seed: int) -> LiarOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = LiarRun(seed)
    with replayable("infobus.testing.simulation.secured.liar", seed, run.network):
        run.do_harm()
        settled_after_s = run.settle()
        run.say_one_more_thing()
    counts = [engine.counts for engine in run.engines]
    return LiarOutcome(
        seed,
        run.lies_count,
        run.account.delivered_count,
        run.account.lost_count,
        sum(one.forged for one in counts),
        sum(one.unopened for one in counts),
        sum(one.repeated for one in counts),
        settled_after_s,
        tuple(run.account.trace),
    )


class LiarRun(SimulationRun):
    """One run with a liar, drawn from a seed."""

    _member: SealedEngine
    """A member like any other, which has the keys of its own seals."""
    _raw: MemoryEngine
    """Another ear and mouth of it."""

    def __init__(self, seed: int) -> None:
        self.lies_count = 0
        self.engines: list[SealedEngine] = []
        self._plant: Plant | None = None
        super().__init__(seed)
        self._heard: deque[tuple[str, bytes]] = deque(maxlen=_HEARD_COUNT_MAX)
        assert self._plant is not None
        self._member = self._plant.engine(LIAR, self.account.failed)
        self._member.open(LIAR)
        self._raw = MemoryEngine(self.network)
        self._raw.open(f"{LIAR}-raw")
        for key in ("all", "c/**", "q/**", "n/*", "k/*"):
            self._raw.declare(key, lambda frame, key=key: self._heard.append((key, frame)))
        self.actions += [self.lie] * len(self.actions)

    def _node(self, name: str) -> SimulatedNode:
        if self._plant is None:
            self._plant = Plant(self.network)
        kind = type("SealedNode", (SealedNode,), {"plant": self._plant})
        node: SimulatedNode = kind(self.network, name, self.terms, self.account, self.batch)
        engine = node.runtime.engine
        assert isinstance(engine, SealedEngine)
        self.engines.append(engine)
        return node

    def lie(self) -> None:
        """Put something that is not true."""
        draw = self.random
        honest = list(self.account.nodes)
        if not honest:
            return
        for _ in range(draw.choice([1, 3, 10])):
            whom, victim = draw.choice(honest), draw.choice(honest)
            key = draw.choice(["all", f"n/{whom}", f"k/{whom}", "c/a", "c/b", "c/a/x"])
            lie = draw.choice(
                [self._repeated, self._changed, self._forged, self._plain, self._shaken]
            )
            if (frame := lie(key, whom, victim)) is not None:
                self._raw.put(key, frame, control=draw.random() < 0.5)
                self.lies_count += 1

    def _repeated(self, key: str, whom: str, victim: str) -> bytes | None:
        return self.random.choice(self._heard)[1] if self._heard else None

    def _changed(self, key: str, whom: str, victim: str) -> bytes | None:
        if not self._heard:
            return None
        frame = bytearray(self.random.choice(self._heard)[1])
        for _ in range(self.random.choice([1, 1, 8])):
            frame[self.random.randrange(len(frame))] ^= self.random.randint(1, 255)
        return bytes(frame[: self.random.choice([len(frame), self.random.randrange(len(frame))])])

    def _forged(self, key: str, whom: str, victim: str) -> bytes | None:
        """A frame in another's name, sealed by the liar for those who can open its frames."""
        handshakes = self._member.handshakes
        seals = handshakes.sealed_with()
        if not seals:
            return None
        number = self.random.choice([1, 2**62, 2**48 * 7 + self.random.randint(1, 2**40)])
        # As a member it may also say in the frame that another one has sealed it.
        sender = self.random.choice([LIAR, LIAR, victim])
        plain = self._said(victim, whom)
        if self.random.random() < 0.5:
            return sealed_for_one(sender, self.random.choice(seals), number, key, plain)
        return sealed_for_many(sender, seals, number, key, plain, self.random.randbytes(16))

    def _plain(self, key: str, whom: str, victim: str) -> bytes:
        """A frame that is not sealed at all."""
        return self._said(victim, whom)

    def _said(self, victim: str, whom: str) -> bytes:
        draw = self.random
        many = draw.choice([0, 1, 2**40, 2**62])
        subject = draw.choice(SUBJECTS)
        item = Item(subject, many, 1.0, 0, b"\x81\xa1n\x01")
        version = (wire.WIRE_MAJOR, wire.WIRE_MINOR)
        frames = [
            wire.Bye(victim),
            wire.Data(victim, subject.partition(".")[0], many, Items.of([item])),
            wire.Interest(victim, version, self.terms.depth, 0, many, [], to=whom),
            wire.Ack(victim, {"a": many, "b": many}, to=whom),
            wire.Known(victim, many, many, {"a": many}, to=whom),
            wire.Gone(victim, "a", 1, many, to=whom),
            wire.Beat(victim, version, many, {"a": many}),
            wire.Died(victim, whom),
        ]
        return wire.encode(draw.choice(frames))

    def _shaken(self, key: str, whom: str, victim: str) -> bytes:
        draw = self.random
        noise, attempt = draw.randbytes(draw.choice([0, 32, 200])), draw.randbytes(16)
        frames = [
            Greeting(victim, noise),
            GreetingBack(victim, attempt, noise),
            GreetingDone(victim, attempt, noise),
            GreetingHeard(victim, attempt, attempt),
            Posture(victim),
        ]
        return encode(draw.choice(frames))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate(int(argument)))
