"""Connects nodes within one process: for the simulator, and for tests of programs on the bus.

A `MemoryEngine` is a node of a `Network`: either of a simulated one, with seeded faults and a
virtual clock (see `network`), or of the live network that all nodes of this process share under the
name of their bus, without faults, driven by one daemon thread in real time.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from infobus.engines.base import (
    DECLARATIONS_COUNT_MAX,
    Guarded,
    Links,
    abandon_in_forked_child,
    closed_error,
    log,
)
from infobus.engines.memory.network import Faults, Network, Timer
from infobus.errors import UsageError
from infobus.patience import DEFAULT_PATIENCE, Patience

__all__ = ["Faults", "LiveNetwork", "MemoryEngine", "Network", "Timer", "live_network"]

_ROOM_S = 1.0
_WAITING_MAX = 10_000


@dataclass(eq=False)
class Declared:
    """A registration of an engine for frames, queries or tokens."""

    engine: MemoryEngine
    key: str
    call: Callable[[Any], None]
    is_active: bool = True

    def undeclare(self) -> None:
        """Withdraw the declaration."""
        self.is_active = False
        self.engine.remove(self)


@dataclass(eq=False)
class TokenWatch(Declared):
    """A registration for tokens, and what was reported to it so far."""

    view: dict[str, MemoryEngine] = field(default_factory=dict)

    def saw(self, holder: MemoryEngine, visible: list[str]) -> None:
        """Note which tokens of `holder` are visible now; report the differences."""
        if not self.is_active:
            return
        gone = [t for t, held_by in self.view.items() if held_by is holder and t not in visible]
        new = [t for t in visible if self.view.get(t) is not holder]
        for token in gone:
            del self.view[token]
            self.call((token, False))
        for token in new:
            self.view[token] = holder
            self.call((token, True))


@dataclass(eq=False)
class _Token:
    engine: MemoryEngine
    key: str

    def undeclare(self) -> None:
        if self.key in self.engine.tokens:
            del self.engine.tokens[self.key]
            self.engine.network.show(self.engine)


class MemoryEngine:
    """One node of a `Network`; see `Engine` for the promises."""

    declarations_count_max = DECLARATIONS_COUNT_MAX

    def __init__(self, network: Network, patience: Patience = DEFAULT_PATIENCE) -> None:
        self.network = network
        self._patience = patience
        self.node = ""
        self.is_open = False
        # Dicts as ordered sets: the order of an ordinary set differs from run to run.
        self.frames: dict[Declared, None] = {}
        self.answers: dict[Declared, None] = {}
        self.watches: dict[TokenWatch, None] = {}
        self.tokens: dict[str, None] = {}
        self._is_forked = False

    def open(self, node: str) -> None:
        """Join the network as `node`."""
        if self.node:
            raise UsageError(f"the engine of {self.node!r} was opened before: make a new one")
        self.node = node
        self.network.join(self)
        self.is_open = True

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` on `key`; it arrives when the network says so, never within `put`."""
        if not self.is_open:
            raise self._closed()
        self.network.send(self.node, key, payload, control)

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declared:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        return self._add(self.frames, key, on_frame)

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declared:
        """Answer queries on `key`."""

        def reply(question: tuple[bytes, Callable[[bytes], None]]) -> None:
            payload, give = question
            give(handler(payload))

        return self._add(self.answers, key, reply)

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask every other node that answers on `key`."""
        if not self.is_open:
            raise self._closed()
        answers: list[bytes] = []
        self.network.call_and_wait(
            lambda: answers.extend(self.network.ask(self.node, key, payload)), timeout_s
        )
        return list(answers)

    def announce(self, key: str) -> _Token:
        """Show a token on `key`."""
        if not self.is_open:
            raise self._closed()
        self.tokens[key] = None
        self.network.show(self)
        return _Token(self, key)

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> TokenWatch:
        """Report tokens of other nodes on `key`, those that are visible now at once."""
        if not self.is_open:
            raise self._closed()

        def changed(change: tuple[str, bool]) -> None:
            on_change(*change)

        watch = TokenWatch(self, key, Guarded(key).wrap(changed))
        self.watches[watch] = None
        self.network.call_and_wait(
            lambda: self.network.look_around(watch), self._patience.handshake_s
        )
        return watch

    def endpoints(self) -> dict[str, str]:
        """It needs none."""
        return {}

    def links(self) -> Links:
        """Each node of the network can be reached."""
        others = self.network.nodes() - {self.node}
        return Links("peer", self.node, tuple(sorted(others)))

    def close(self) -> None:
        """Leave the network; frames that were put before still arrive."""
        if self.is_open:
            self.die()
            self.network.leave(self)

    def die(self) -> None:
        """Disappear at once, as after a crash."""
        self.is_open = False
        for declared in (*self.frames, *self.answers, *self.watches):
            declared.is_active = False
        self.tokens = {}

    def remove(self, declared: Declared) -> None:
        """Forget one declaration; for `Declaration.undeclare`."""
        if isinstance(declared, TokenWatch):
            self.watches.pop(declared, None)
        self.frames.pop(declared, None)
        self.answers.pop(declared, None)
        self.network.forget_routes()

    def abandon(self) -> None:
        """In a forked child: the network's thread stayed in the parent."""
        self.die()
        self._is_forked = True

    def _add(
        self, held_in: dict[Declared, None], key: str, call: Callable[[Any], None]
    ) -> Declared:
        if not self.is_open:
            raise self._closed()
        declared = Declared(self, key, Guarded(key).wrap(call))
        held_in[declared] = None
        self.network.forget_routes()
        return declared

    def _closed(self) -> Exception:
        return closed_error(forked=self._is_forked, opened=bool(self.node))


class LiveNetwork(Network):
    """A network without faults that runs by itself, on one thread."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._waiting: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(
            target=self._run, name=f"infobus-memory-{name}", daemon=True
        )
        self._thread.start()

    def send(self, sender: str, key: str, payload: bytes, control: bool) -> None:
        """Send one frame; data waits up to 1 s while receivers are far behind."""
        if self._waiting.qsize() > _WAITING_MAX and not control:
            self._wait_for_room()
        super().send(sender, key, payload, control)

    def join(self, engine: MemoryEngine) -> None:
        """Connect `engine`, for this process only: the thread does not survive a fork."""
        super().join(engine)
        abandon_in_forked_child(engine)

    def call_and_wait(self, function: Callable[[], None], timeout_s: float) -> None:
        """Run `function` on the network's thread, and wait for it at most `timeout_s`."""
        if threading.current_thread() is self._thread:
            return function()
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._schedule(0.0, True, run)
        done.wait(timeout_s)

    def _wait_for_room(self) -> None:
        if threading.current_thread() is self._thread:
            return
        deadline_s = time.monotonic() + _ROOM_S
        while self._waiting.qsize() > _WAITING_MAX and time.monotonic() < deadline_s:
            time.sleep(0.001)

    def _schedule(
        self, delay_s: float, in_flight: bool, function: Callable[..., None], *arguments: Any
    ) -> None:
        assert delay_s == 0.0, "a live network has no clock of its own"
        self._waiting.put((function, arguments))

    def _run(self) -> None:
        while True:
            function, arguments = self._waiting.get()
            try:
                function(*arguments)
            except Exception:
                log.exception("the live network goes on after an error of its own")


_live_networks: dict[str, LiveNetwork] = {}
_live_networks_lock = threading.Lock()


def live_network(bus_name: str) -> LiveNetwork:
    """Return the network that the nodes of this process share under `bus_name`."""
    with _live_networks_lock:
        if bus_name not in _live_networks:
            _live_networks[bus_name] = LiveNetwork(bus_name)
        return _live_networks[bus_name]


def _after_fork_in_child() -> None:
    global _live_networks_lock
    _live_networks_lock = threading.Lock()
    _live_networks.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
