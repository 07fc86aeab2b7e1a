"""Where the machines of a node run: each registration is a strand, on which its steps come in turn.

A step is a question to a machine: a message came, time passed, a consumer settled an event. What
the machine wants done is done on the same strand, before the next step begins. There are two kinds
of strands here: `Locked` steps run on the calling thread, under the runtime's lock, and must never
wait; `Background` steps run on a worker, and may read and write files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from infobus.bus.runtime.outbox import Mail
from infobus.errors import PeerError, StoreError
from infobus.protocols.machine import Machine

if TYPE_CHECKING:
    from infobus.bus.runtime.runtime import Runtime
    from infobus.bus.threads import Job

Step = Callable[[float], Sequence[Any]]
"""Asks a machine something, at a time; what it answers with is carried out."""

Do = Callable[[Any], Sequence[Any] | None]
"""Carries out an effect that only one machine knows; may return further ones, done next."""

Heard = list[Any] | deque[Any]
"""What a node says to itself."""

Decode = Callable[[bytes], Any]
"""Reads a frame; None if nobody needs it. Raises `PeerError` if it cannot be read."""


class Strand(Protocol):
    """What the runtime tells every registration of."""

    def on_frame(self, payload: bytes) -> None:
        """A frame with one of its tags has come, on an engine's thread."""

    def on_peer(self, name: str, alive: bool) -> None:
        """A peer came or went."""

    def on_tick(self) -> None:
        """Time has passed."""


class Locked:
    """Steps of one machine on the calling thread, under the runtime's lock."""

    def __init__(self, runtime: Runtime, machine: Machine[Any], do: Do, decode: Decode) -> None:
        self.runtime = runtime
        self._now_s = runtime.clock.now_s
        self._machine = machine
        self._do = do
        self._decode = decode

    def step(self, step: Step) -> None:
        """Ask the machine something, and do what it says."""
        runtime, mail = self.runtime, Mail()
        with runtime.lock:
            runtime.carry_out(self._do, step(self._now_s()), mail, is_locked=True)
            runtime.changed.notify_all()
        runtime.send(mail)

    def on_frame(self, payload: bytes) -> None:
        """Take a frame in."""
        try:
            message = self._decode(payload)
        except PeerError as error:
            self.runtime.on_bad_frame(error)
            return
        if message is not None and self.runtime.is_for_us(message):
            self.step(lambda now_s: self._machine.take(message, now_s))

    def on_peer(self, name: str, alive: bool) -> None:
        """A peer came or went."""
        notice = self._machine.peer_up if alive else self._machine.peer_down
        self.step(lambda now_s: notice(name, now_s))

    def on_tick(self) -> None:
        """Time has passed."""
        self.step(self._machine.tick)


class Part:
    """A machine on a strand that it shares with others."""

    def __init__(self, name: str, machine: Machine[Any], do: Do) -> None:
        self.name = name
        self.machine = machine
        self.do = do
        self.waiting: deque[Any] = deque()  # effects that could not be carried out yet


class Background:
    """Steps of some machines that hear the same messages, on a worker of their own.

    What one of them says to its own node is heard by all of them, before the next step. If an
    effect cannot be carried out for lack of room on a disk, it waits for the next tick, with those
    after it; meanwhile messages for its machine are as good as lost, which it can bear.
    """

    def __init__(
        self, runtime: Runtime, name: str, decode: Decode, after: Callable[[], object]
    ) -> None:
        self.runtime = runtime
        self._now_s = runtime.clock.now_s
        self._decode = decode
        self._after = after  # each job, and each message of the node to itself
        self._worker = runtime.threads.worker(name)
        self._heard: deque[Any] = deque()  # what the node says to itself
        self.parts: dict[Part, None] = {}

    def do(self, job: Job) -> None:
        """Have something done on the strand; returns at once."""
        self._worker.do(lambda: self._work(job))

    def call(self, job: Job, timeout_s: float) -> None:
        """Have something done on the strand, and wait for it."""
        self._worker.call(lambda: self._work(job), timeout_s)

    def step(self, part: Part, step: Step) -> None:
        """Ask a machine something, and do what it says; returns at once."""
        self.do(lambda: self.step_now(part, step))

    def step_now(self, part: Part, step: Step) -> None:
        """The same at once, for what runs on the strand already."""
        part.waiting += step(self._now_s())
        self._carry_out(part)

    def stop(self, timeout_s: float) -> None:
        """Take no more steps; those before this are done."""
        self._worker.stop(timeout_s)

    def on_frame(self, payload: bytes) -> None:
        """Take a frame in."""
        try:
            message = self._decode(payload)
        except PeerError as error:
            self.runtime.on_bad_frame(error)
            return
        if message is not None and self.runtime.is_for_us(message):
            self.do(lambda: self._take(message))

    def on_peer(self, name: str, alive: bool) -> None:
        """A peer came or went."""

        def notice() -> None:
            for part in list(self.parts):
                see = part.machine.peer_up if alive else part.machine.peer_down
                part.waiting += see(name, self._now_s())
                self._carry_out(part)

        self.do(notice)

    def on_tick(self) -> None:
        """Time has passed."""

        def tick() -> None:
            for part in list(self.parts):
                if not part.waiting:
                    part.waiting += part.machine.tick(self._now_s())
                self._carry_out(part)

        self.do(tick)

    def _work(self, job: Job) -> None:
        job()
        self._after()
        while self._heard:
            self._take(self._heard.popleft())
            self._after()

    def _take(self, message: Any) -> None:
        for part in list(self.parts):
            if not part.waiting:
                part.waiting += part.machine.take(message, self._now_s())
                self._carry_out(part)

    def _carry_out(self, part: Part) -> None:
        if not part.waiting:
            return
        mail: Mail = []
        doing: list[Any] = []
        try:
            effects = _taken(part.waiting, doing)
            self.runtime.carry_out(part.do, effects, mail, heard=self._heard, hears_all=True)
        except StoreError as error:
            part.waiting.appendleft(doing[0])
            self.runtime.counters.complain(part.name, str(error))
        self.runtime.send(mail)


def _taken(waiting: deque[Any], doing: list[Any]) -> Iterator[Any]:
    """Effects one by one; the one that is being carried out is in `doing`."""
    while waiting:
        doing[:] = [waiting.popleft()]
        yield doing[0]
