"""A simulated network of nodes within one process, which fails as its seed says.

A `Network` has a virtual clock and a queue of future calls; nothing happens until you call
`advance` or `run_until_idle`, and then everything happens on your thread. One `Random(seed)`
decides on loss, doubling, delay and reordering of every frame, and on when each node notices that
another is gone. So the same seed and the same calls give the same run. You switch lasting faults
(cuts, clogs, frozen nodes) on and off by the methods of `Network`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from infobus.errors import UsageError
from infobus.keys import keys_intersect

if TYPE_CHECKING:
    from infobus.engines.memory.engine import Declared, MemoryEngine, TokenWatch

_INBOX = "n/"
_STRAYS_FOR_S = 4.0


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults of single frames, and the speed of the network.

    Probabilities are per frame and receiver. Without reordering, frames of one node to another
    arrive in order, whatever their delays. What strays comes to another node's inbox as well, up
    to 4 s late. A token is seen to disappear `detect_s` after its node crashed, or `lease_s` after
    its node became silent, in both cases up to half as much later, at a different time for each
    watcher.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    stray: float = 0.0
    reorder: float = 0.0
    delay_min_s: float = 0.0
    delay_max_s: float = 0.0
    detect_s: float = 0.01
    lease_s: float = 1.0


@dataclass(eq=False)
class Timer:
    """A call that will happen later, unless it is cancelled first."""

    function: Callable[[], None]
    node: str | None
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Prevent the call, if it has not happened yet."""
        self.is_cancelled = True


class Network:
    """A simulated network; see the module's header. A node's name is the one it `open`s with."""

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.now_s = 0.0
        self._engines: dict[str, MemoryEngine] = {}
        self._queue: list[tuple[float, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._order_of_released = itertools.count(-(2**62))
        self._in_flight_count = 0
        self._routes: dict[str, tuple[tuple[MemoryEngine, tuple[Declared, ...]], ...]] = {}
        self._cut: set[tuple[str, str]] = set()
        # Frames held back by a clogged link, or by a frozen receiver, in order.
        self._clogged: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        self._frozen: dict[str, list[tuple[Any, ...]]] = {}
        self._frozen_timers: dict[str, list[Timer]] = {}
        self._last_arrival_s: dict[tuple[str, str], float] = {}
        self._dark_since_s: dict[tuple[str, str], float] = {}

    # Time

    def call_later(
        self, delay_s: float, function: Callable[[], None], *, node: str | None = None
    ) -> Timer:
        """Call `function` after `delay_s`. With `node`, never if that node has crashed or
        closed by then, and only after it thaws if it is frozen.
        """
        timer = Timer(function, node)
        self._schedule(delay_s, False, self._fire, timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, with everything that happens in them."""
        until_s = self.now_s + seconds
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            self._step()
        self.now_s = until_s

    def run_until_idle(self, seconds_max: float = 60.0) -> bool:
        """Run until no frame and no change of a token is under way.

        Timers run when they are due, but this does not wait for them: a heartbeat has no end.
        Returns whether the network is idle; it may not be after `seconds_max`.
        """
        until_s = self.now_s + seconds_max
        while self._in_flight_count and self._queue[0][0] <= until_s:
            self._step()
        return not self._in_flight_count

    def _schedule(
        self, delay_s: float, in_flight: bool, function: Callable[..., None], *arguments: Any
    ) -> None:
        if in_flight:
            self._in_flight_count += 1
        entry = (self.now_s + delay_s, next(self._order), in_flight, function, arguments)
        heappush(self._queue, entry)

    def _step(self) -> None:
        self.now_s, _, in_flight, function, arguments = heappop(self._queue)
        if in_flight:
            self._in_flight_count -= 1
        function(*arguments)

    def _fire(self, timer: Timer) -> None:
        if timer.is_cancelled or (timer.node is not None and timer.node not in self._engines):
            return
        if timer.node in self._frozen_timers:
            self._frozen_timers[timer.node].append(timer)
        else:
            timer.function()

    # Lasting faults

    def cut(self, sender: str, receiver: str) -> None:
        """Lose everything from `sender` to `receiver`, even frames under way; one way only."""
        self._cut.add((sender, receiver))
        self._paths_changed()

    def partition(self, *sides: Iterable[str]) -> None:
        """Cut every link between nodes of different `sides`, both ways."""
        groups = [sorted(side) for side in sides]
        for one, other in itertools.permutations(groups, 2):
            self._cut.update(itertools.product(one, other))
        self._paths_changed()

    def clog(self, sender: str, receiver: str) -> None:
        """Hold back everything from `sender` to `receiver` until it is unclogged."""
        self._clogged.setdefault((sender, receiver), [])
        self._paths_changed()

    def unclog(self, sender: str, receiver: str) -> None:
        """Free a link; frames that were held back arrive in order."""
        for frame in self._clogged.pop((sender, receiver), ()):
            self._release(frame)
        self._paths_changed()

    def swizzle(self, nodes: Iterable[str], over_s: float) -> None:
        """Clog the links between `nodes` one by one, then free them in another order."""
        links = list(itertools.permutations(sorted(nodes), 2))
        moments = sorted(self.random.uniform(0, over_s / 2) for _ in links)
        for clog in (True, False):
            self.random.shuffle(links)
            for moment_s, (sender, receiver) in zip(moments, links, strict=True):
                change = self.clog if clog else self.unclog
                start_s = moment_s if clog else moment_s + over_s / 2
                self._schedule(start_s, False, change, sender, receiver)

    def heal(self) -> None:
        """Undo all cuts and clogs. Frozen nodes stay frozen."""
        self._cut.clear()
        for sender, receiver in list(self._clogged):
            self.unclog(sender, receiver)
        self._paths_changed()

    def crash(self, node: str) -> None:
        """Kill `node`: its engine is dead at once. Frames that it had sent may still arrive."""
        engine = self._engines.pop(node)
        engine.die()
        self._tokens_changed(engine, lambda: self._drawn(self.faults.detect_s))
        self._forget(node)

    def freeze(self, node: str) -> None:
        """Stop `node` as SIGSTOP does: it gets nothing, sends nothing, and its timers wait."""
        self._frozen.setdefault(node, [])
        self._frozen_timers.setdefault(node, [])
        self._paths_changed()

    def thaw(self, node: str) -> None:
        """Let `node` continue. The seed decides for each link what is lost and what is late.

        After more than a lease the others have closed their links, so the node, too, sees all of
        them disappear and come back.
        """
        frames, timers = self._frozen.pop(node, []), self._frozen_timers.pop(node, [])
        survives: dict[str, bool] = {}
        for frame in frames:
            sender = frame[0]
            if sender not in survives:
                survives[sender] = self.random.random() < 0.5
            if survives[sender]:
                self._release(frame)
        for timer in timers:
            self._schedule(0.0, False, self._fire, timer)
        for watch in list(self._engines[node].watches):
            for holder in dict.fromkeys(watch.view.values()):
                silent_since_s = self._dark_since_s.get((holder.node, node), self.now_s)
                if self.now_s - silent_since_s >= self.faults.lease_s or not holder.is_open:
                    self._schedule(0.0, True, watch.saw, holder, [])
        self._paths_changed()

    # Frames

    def send(self, sender: str, key: str, payload: bytes, control: bool) -> None:
        """Send one frame to every other node that declared `key`.

        Links of a simulation are never full, so control frames are like all others.
        """
        if sender in self._frozen:
            return
        route = self._routes.get(key)
        if route is None:
            route = self._route(key)
        faults, draw = self.faults, self.random.random
        for receiver, declared in route:
            if receiver.node == sender:
                continue
            if faults.loss and draw() < faults.loss:
                continue
            self._transmit(sender, receiver, declared, payload)
            if faults.duplicate and draw() < faults.duplicate:
                self._transmit(sender, receiver, declared, payload)
        if faults.stray and key.startswith(_INBOX) and draw() < faults.stray:
            self._stray(sender, key, payload)

    def _stray(self, sender: str, key: str, payload: bytes) -> None:
        """Deliver a frame late, and into another node's inbox."""
        others = [
            (engine, tuple(d for d in engine.frames if d.key.startswith(_INBOX)))
            for engine in self._engines.values()
            if engine.node != sender and f"{_INBOX}{engine.node}" != key
        ]
        if others:
            receiver, declared = self.random.choice(others)
            delay_s = self.random.uniform(0, _STRAYS_FOR_S)
            self._schedule(delay_s, True, self._arrive, sender, receiver, declared, payload)

    def _route(self, key: str) -> tuple[tuple[MemoryEngine, tuple[Declared, ...]], ...]:
        # A declaration made meanwhile replaces the whole dict, so this entry cannot outlive it.
        routes, route = self._routes, []
        for engine in list(self._engines.values()):
            declared = tuple(d for d in list(engine.frames) if keys_intersect(d.key, key))
            if declared:
                route.append((engine, declared))
        routes[key] = tuple(route)
        return routes[key]

    def _transmit(
        self,
        sender: str,
        receiver: MemoryEngine,
        declared: tuple[Declared, ...],
        payload: bytes,
    ) -> None:
        faults = self.faults
        delay_s = faults.delay_min_s
        if faults.delay_max_s > delay_s:
            delay_s += self.random.random() * (faults.delay_max_s - delay_s)
        if faults.delay_max_s and not (faults.reorder and self.random.random() < faults.reorder):
            link = (sender, receiver.node)
            arrival_s = max(self.now_s + delay_s, self._last_arrival_s.get(link, 0.0))
            self._last_arrival_s[link] = arrival_s
            delay_s = arrival_s - self.now_s
        self._schedule(delay_s, True, self._arrive, sender, receiver, declared, payload)

    def _release(self, frame: tuple[Any, ...]) -> None:
        """Deliver a frame that was held back, before those that were sent after it."""
        self._in_flight_count += 1
        number = next(self._order_of_released)
        heappush(self._queue, (self.now_s, number, True, self._arrive, frame))

    def _arrive(
        self,
        sender: str,
        receiver: MemoryEngine,
        declared: tuple[Declared, ...],
        payload: bytes,
    ) -> None:
        if not receiver.is_open:
            return
        if self._cut or self._clogged or self._frozen:
            link = (sender, receiver.node)
            frame = (sender, receiver, declared, payload)
            if link in self._cut:
                return
            if link in self._clogged:
                self._clogged[link].append(frame)
                return
            if receiver.node in self._frozen:
                self._frozen[receiver.node].append(frame)
                return
        for declaration in declared:
            if declaration.is_active:
                declaration.call(payload)

    def ask(self, sender: str, key: str, payload: bytes) -> list[bytes]:
        """Return the answers of every other node on `key`; takes no time in a simulation.

        Question and answer each cross the network: if one is lost, there is one answer less.
        """
        answers: list[bytes] = []
        for engine in list(self._engines.values()):
            if engine.node == sender or not self._both_ways_open(sender, engine.node):
                continue
            for declared in list(engine.answers):
                if keys_intersect(declared.key, key):
                    arrived = not self._is_lost() and not self._is_lost()
                    if arrived:
                        declared.call((payload, answers.append))
        return answers

    def _is_lost(self) -> bool:
        return bool(self.faults.loss) and self.random.random() < self.faults.loss

    # Nodes and their tokens

    def join(self, engine: MemoryEngine) -> None:
        """Connect `engine` under the name it opened with."""
        if engine.node in self._engines:
            raise UsageError(f"a node called {engine.node!r} is on this network already")
        self._engines[engine.node] = engine
        self._paths_changed()  # some may be silent already: to frozen nodes, or by a partition

    def leave(self, engine: MemoryEngine) -> None:
        """Disconnect `engine`; others notice as soon as a frame could reach them."""
        if self._engines.pop(engine.node, None) is not None:
            self._tokens_changed(engine, self._link_delay_s)
            self._forget(engine.node)

    def nodes(self) -> set[str]:
        """Who is connected."""
        return set(self._engines)

    def forget_routes(self) -> None:
        """Forget cached routes, because declarations changed."""
        self._routes = {}

    def show(self, holder: MemoryEngine) -> None:
        """Notify the watchers that the tokens of `holder` changed."""
        self._tokens_changed(holder, self._link_delay_s)

    def look_around(self, watch: TokenWatch) -> None:
        """Report every token that `watch` can see now."""
        for holder in list(self._engines.values()):
            if holder is not watch.engine and self._is_open(holder.node, watch.engine.node):
                self._look(watch, holder)

    def call_and_wait(self, function: Callable[[], None], timeout_s: float) -> None:
        """Run `function` where callbacks run; a simulation has only one thread."""
        function()

    def _forget(self, node: str) -> None:
        self._frozen.pop(node, None)
        self._frozen_timers.pop(node, None)
        for path in [path for path in self._dark_since_s if node in path]:
            del self._dark_since_s[path]
        self.forget_routes()

    def _is_open(self, sender: str, receiver: str) -> bool:
        link = (sender, receiver)
        return not (
            link in self._cut
            or link in self._clogged
            or sender in self._frozen
            or receiver in self._frozen
        )

    def _both_ways_open(self, one: str, other: str) -> bool:
        return self._is_open(one, other) and self._is_open(other, one)

    def _drawn(self, at_least_s: float) -> float:
        return at_least_s * (1 + self.random.random() / 2)

    def _link_delay_s(self) -> float:
        return self.random.uniform(self.faults.delay_min_s, self.faults.delay_max_s)

    def _tokens_changed(self, holder: MemoryEngine, delay_s: Callable[[], float]) -> None:
        for receiver, engine in list(self._engines.items()):
            # A silent path reports nothing: the lease or the healing will.
            if engine is not holder and (holder.node, receiver) not in self._dark_since_s:
                for watch in list(engine.watches):
                    self._schedule(delay_s(), True, self._look, watch, holder)

    def _paths_changed(self) -> None:
        """Note which paths became silent or came back; each watcher notices in its own time."""
        for sender, holder in self._engines.items():
            for receiver, engine in self._engines.items():
                if sender == receiver:
                    continue
                path = (sender, receiver)
                is_dark = not self._is_open(*path)
                if is_dark == (path in self._dark_since_s):
                    continue
                if is_dark:
                    self._dark_since_s[path] = self.now_s
                else:
                    del self._dark_since_s[path]
                for watch in engine.watches:
                    after_s = self._drawn(self.faults.lease_s) if is_dark else self._link_delay_s()
                    self._schedule(after_s, not is_dark, self._look, watch, holder)

    def _look(self, watch: TokenWatch, holder: MemoryEngine) -> None:
        """Report what `watch` now sees of the tokens of `holder`, if that has changed."""
        path = (holder.node, watch.engine.node)
        if not watch.is_active or watch.engine.node in self._frozen:
            return
        if holder.is_open and path in self._dark_since_s:
            if self.now_s - self._dark_since_s[path] < self.faults.lease_s * (1 - 1e-9):
                return
            visible: list[str] = []
        else:
            visible = [t for t in list(holder.tokens) if keys_intersect(watch.key, t)]
        watch.saw(holder, visible)
