"""Whole runs of routers over links that fail, each drawn from one seed.

`simulate(seed)` lets up to 12 routers, or more if you say so, put frames for each other, while
routers crash and join, links are cut one way or both, lose frames, or become slow. The machines are
those that ship; what carries their messages is a network of links in virtual time.

At any time, no router gets a frame twice, or one that it has not asked for. In runs in which
nothing fails, all that was put arrives, once and in order, however slow the links are. In the end
everything heals as far as the seed says, and after `SETTLE_S` every router has exactly the paths
that an oracle finds, every table and every token is known to whom it can reach, nothing is held,
and one more frame from everyone on every key reaches exactly those who declared it.

A seed that fails is replayed by `python -m infobus.testing.simulation.routing SEED`.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from infobus.keys import keys_intersect
from infobus.protocols.frames.routing import (
    CONTROL,
    DATA,
    DECLARED,
    TOKEN,
    Parcel,
    RoutingMessage,
    decode,
    encode,
)
from infobus.protocols.qos.classes import Marks
from infobus.protocols.routing.effects import Effect, ParcelArrived, TokenChanged
from infobus.protocols.routing.machine import RoutingMachine
from infobus.protocols.routing.paths import PATHS_COUNT_MAX
from infobus.protocols.routing.terms import RoutingTerms
from infobus.testing.simulation.reliable import replayable

SETTLE_S = 12.0
"""Virtual time after which healed routers are at rest, whatever had happened."""
TICK_S = 0.1
PATTERNS = ["c/a", "c/b", "c/*", "c/a/x", "**", "n/r"]
KEYS = ["c/a", "c/b", "c/a/x", "n/r"]
_RANKS = 3


class NotRouted(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class RoutedOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    routers_count: int
    put_count: int
    arrived_count: int
    carried_count: int
    held_count: int
    """How often a class was full somewhere, so that neighbours had to hold it."""
    dropped_count: int
    settled_after_s: float
    trace: tuple[tuple[object, ...], ...] = field(repr=False)


@dataclass
class _Line:
    """One direction of a link."""

    delay_s: float
    bytes_per_s: float
    is_cut: bool = False
    free_at_s: float = 0.0
    arrival_s: float = 0.0
    is_asked: bool = False


class _Place:
    """One router of a run, and what it has got."""

    def __init__(self, run: RoutingRun, name: str, session: int) -> None:
        self.name = name
        self.router = RoutingMachine(name, session, run.terms, name=name)
        self.patterns: list[str] = []
        self.ever: set[str] = set()
        self.tokens: set[str] = set()
        self.got: set[int] = set()
        self.last: dict[tuple[str, str, int], int] = {}
        self.seen_tokens: set[str] = set()

    def wants(self, key: str) -> bool:
        return any(keys_intersect(pattern, key) for pattern in self.patterns)


class RoutingRun:
    """One run."""

    def __init__(self, seed: int, routers_max: int = 12) -> None:
        self.random = draw = random.Random(seed)
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.is_calm = draw.random() < 0.3
        high = draw.choice([4_000, 20_000, 10_000_000])
        self.terms = RoutingTerms(
            marks=Marks(high=high, low=high // 2),
            window_bytes=draw.choice([1_000, 30_000, 1_000_000]),
        )
        self.loss = 0.0 if self.is_calm else draw.choice([0.0, 0.0, 0.02, 0.2])
        self.encodes = draw.random() < 0.1
        self.places: dict[str, _Place] = {}
        self.lines: dict[tuple[str, str], _Line] = {}
        self.trace: list[tuple[object, ...]] = []
        self.puts: dict[int, tuple[str, str]] = {}
        self.owed: Counter[tuple[int, str]] = Counter()
        self.counts = Counter[str]()
        self.settled_after_s = 0.0
        self._born_count = 0
        self._puts_count = 0
        for _ in range(draw.randint(2, routers_max)):
            self.join()
        for _ in range(draw.randint(0, len(self.places))):
            self.connect()
        for place in self.places.values():
            self._declare_some(place)

    # Time.

    def later(self, delay_s: float, function: Callable[[], None]) -> None:
        heappush(self._queue, (self.now_s + delay_s, next(self._numbers), function))

    def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            self.now_s, _, function = heappop(queue)
            function()
        self.now_s = until_s

    # The acts.

    def do_harm(self) -> None:
        """Let things happen."""
        self.advance(4.0 if self.is_calm else self.random.uniform(0.5, 2.0))
        actions = [self.put_some] * 8 + [self.congest, self.relieve]
        if not self.is_calm:
            actions += [self.crash, self.join, self.connect, self.cut, self.cut, self.mend]
            actions += [self.change_wishes] * 2
        for _ in range(self.random.randint(5, 20)):
            self.random.choice(actions)()
            self.advance(self.random.choice([0.0, 0.01, 0.1, 0.5]))

    def settle(self) -> None:
        """Heal what heals, and wait."""
        self.loss = 0.0
        heals_all = self.random.random() < 0.7
        for (one, other), line in list(self.lines.items()):
            line.bytes_per_s = float("inf")
            line.free_at_s = min(line.free_at_s, self.now_s)
            line.is_cut = not heals_all and (line.is_cut or self.lines[other, one].is_cut)
            self._look(one, other)
        healed_s = self.now_s
        while True:
            self.advance(0.5)
            try:
                self.check_tables()
                self.check_calm()
                self.check_paths()
            except NotRouted:
                if self.now_s - healed_s > SETTLE_S:
                    raise
            else:
                break
        self.settled_after_s = self.now_s - healed_s
        self.owed.clear()

    def put_on_everything(self) -> None:
        """One more frame from everyone, twice; it must reach exactly those who want it."""
        for _ in range(2):
            for place in list(self.places.values()):
                for key in KEYS:
                    reached = self.component(place.name)
                    rank, until_s = self.random.randrange(_RANKS), self.now_s + 3.0
                    number = self._put(place, key, DATA, rank, 50)
                    while number is None and self.now_s < until_s:  # a publisher would wait
                        self.advance(0.02)
                        number = self._put(place, key, DATA, rank, 50)
                    if number is None:
                        raise NotRouted(f"{place.name} has no room for {key!r}")
                    for name in reached - {place.name}:
                        if self.places[name].wants(key):
                            self.owed[number, name] += 1
        late_s = self.now_s + SETTLE_S  # windows may be small, and hubs busy
        while self.owed and self.now_s < late_s:
            self.advance(0.1)
        if self.owed:
            (number, name), _ = next(iter(self.owed.items()))
            raise NotRouted(f"{name} did not get {self.puts[number]}, put {number}")
        self.advance(0.5)
        self.check_calm()

    # What may happen.

    def join(self) -> None:
        if len(self.places) >= 60:
            return
        self._born_count += 1
        name = f"r{self._born_count}"
        place = _Place(self, name, self.random.getrandbits(32))
        others = list(self.places)
        self.places[name] = place
        for other in self.random.sample(others, min(len(others), self.random.choice([1, 1, 2]))):
            self._join_lines(name, other)
        if not self._born_count % 2:
            self._declare_some(place)
        self.later(self.random.uniform(0, TICK_S), lambda: self._tick(place))

    def connect(self) -> None:
        if len(self.places) > 1:
            one, other = self.random.sample(list(self.places), 2)
            if (one, other) not in self.lines:
                self._join_lines(one, other)

    def crash(self) -> None:
        if len(self.places) > 1:
            name = self.random.choice(list(self.places))
            del self.places[name]
            self.trace.append(("crash", name))
            for other in [b for a, b in self.lines if a == name]:
                del self.lines[name, other], self.lines[other, name]
                self._look(other, name)

    def cut(self) -> None:
        if self.lines:
            one, other = self.random.choice(list(self.lines))
            self.lines[one, other].is_cut = True
            if self.random.random() < 0.7:
                self.lines[other, one].is_cut = True
            self.trace.append(("cut", one, other))
            self._look(one, other)
            self._look(other, one)

    def mend(self) -> None:
        if cut := [ends for ends, line in self.lines.items() if line.is_cut]:
            one, other = self.random.choice(cut)
            self.lines[one, other].is_cut = self.lines[other, one].is_cut = False
            self._look(one, other)
            self._look(other, one)

    def congest(self) -> None:
        if self.lines:
            line = self.lines[self.random.choice(list(self.lines))]
            line.bytes_per_s = self.random.choice([10_000.0, 100_000.0])

    def relieve(self) -> None:
        if self.lines:
            self.lines[self.random.choice(list(self.lines))].bytes_per_s = float("inf")

    def change_wishes(self) -> None:
        place = self.random.choice(list(self.places.values()))
        if place.patterns and self.random.random() < 0.4:
            pattern = place.patterns.pop()
            if pattern not in place.patterns:
                place.router.remove_entry(DECLARED + pattern)
        else:
            self._declare_some(place)
        self._tell(place)

    def put_some(self) -> None:
        place = self.random.choice(list(self.places.values()))
        key, rank = self.random.choice(KEYS), self.random.randrange(_RANKS)
        kind = CONTROL if self.random.random() < 0.1 else DATA
        size = self.random.choice([10, 500, 3_000])
        for _ in range(self.random.choice([1, 3, 20])):
            number = self._put(place, key, kind, rank, size)
            if number is not None and self.is_calm:
                for name, other in self.places.items():
                    if other is not place and other.wants(key):
                        self.owed[number, name] += 1

    # What holds at any time.

    def _got(self, place: _Place, arrived: ParcelArrived) -> None:
        number = int.from_bytes(arrived.payload[:8], "big")
        source, key = self.puts[number]
        if number in place.got:
            raise NotRouted(f"{place.name} got put {number} of {source} twice")
        if source == place.name:
            raise NotRouted(f"{place.name} got its own frame")
        if not any(keys_intersect(pattern, key) for pattern in place.ever):
            raise NotRouted(f"{place.name} got {key!r}, which it never declared")
        place.got.add(number)
        self.counts["arrived"] += 1
        self.owed.pop((number, place.name), None)
        lane = (source, key, -1 if arrived.kind == CONTROL else arrived.rank)
        if self.is_calm and place.last.get(lane, 0) > number:
            raise NotRouted(f"{place.name} got put {number} of {source} on {key!r} too late")
        place.last[lane] = number
        self.trace.append((place.name, number))

    def check_calm(self) -> None:
        """Nothing waits, and nothing is held."""
        for place in self.places.values():
            for peer, link in place.router.links.items():
                if link.is_up and not link.is_idle:
                    raise NotRouted(f"{place.name} has something for {peer}")
                if link.is_up and (link.held or place.router.held_for(peer)):
                    raise NotRouted(f"between {place.name} and {peer} a class is held")
        if self.is_calm and self.owed and not self._dropped():
            (number, name), _ = next(iter(self.owed.items()))
            raise NotRouted(f"nothing failed, and {name} lacks put {number}: {self.puts[number]}")

    def check_paths(self) -> None:
        """All paths are those of the oracle."""
        links = self._links()
        for place in self.places.values():
            found = place.router.paths
            expected = oracle(links, place.name)
            if found.distances.keys() != expected.keys():
                raise NotRouted(f"{place.name} reaches {sorted(found.distances)}")
            for to, paths in expected.items():
                if to == place.name:
                    continue
                told = found.to(to)
                hops = {path[0] for path in paths}
                if set(found.hops[to]) != hops or len(set(told)) != len(told):
                    raise NotRouted(f"{place.name} goes to {to} by {found.hops[to]}")
                if len(paths) <= PATHS_COUNT_MAX:
                    if set(told) != paths:
                        raise NotRouted(f"{place.name} goes to {to} by {told}, not {paths}")
                elif not set(told) < paths or len(told) != PATHS_COUNT_MAX:
                    raise NotRouted(f"{place.name} goes to {to} by {told}, of {len(paths)} paths")
                elif len({path[0] for path in told}) != min(len(hops), PATHS_COUNT_MAX):
                    raise NotRouted(f"{place.name} does not tell all first hops to {to}")

    def check_tables(self) -> None:
        """Everyone knows what everyone whom he reaches says of himself."""
        for place in self.places.values():
            tables = place.router.tables
            reached = self.component(place.name)
            if tables.reached != reached:
                raise NotRouted(f"{place.name} uses tables of {sorted(tables.reached)}")
            for name in reached:
                mine = self.places[name].router.tables.mine
                told = tables.tables[name]
                if (told.version, told.entries, told.neighbours) != (
                    mine.version,
                    mine.entries,
                    mine.neighbours,
                ):
                    raise NotRouted(f"{place.name} has an old table of {name}")
            tokens = {t for name in reached - {place.name} for t in self.places[name].tokens}
            if place.seen_tokens != tokens or set(place.router.tokens()) != tokens:
                raise NotRouted(f"{place.name} sees {sorted(place.seen_tokens)}, not {tokens}")

    # The network.

    def _join_lines(self, one: str, other: str) -> None:
        for ends in ((one, other), (other, one)):
            delay_s = self.random.choice([0.0, 0.001, 0.03])
            self.lines[ends] = _Line(delay_s, float("inf"))
        self._look(one, other)
        self._look(other, one)

    def _look(self, holder: str, watcher: str) -> None:
        """Soon, `watcher` notices whether the token of `holder` can be seen; and the other way."""
        for one, other in ((holder, watcher), (watcher, holder)):
            delay_s = self.random.uniform(0.001, 0.3)
            self.later(delay_s, lambda one=one, other=other: self._notice(one, other))  # type: ignore[misc]

    def _notice(self, holder: str, watcher: str) -> None:
        place = self.places.get(watcher)
        if place is not None:
            line = self.lines.get((holder, watcher))
            is_shown = line is not None and not line.is_cut
            link = place.router.links.get(holder)
            if is_shown != (link is not None and link.is_shown):
                self._do(place, place.router.neighbour_shown(holder, is_shown, self.now_s))

    def _tick(self, place: _Place) -> None:
        if self.places.get(place.name) is place:
            self._do(place, place.router.tick(self.now_s))
            self.later(TICK_S, lambda: self._tick(place))

    def _tell(self, place: _Place) -> None:
        self._do(place, place.router.tell_changes(self.now_s))

    def _do(self, place: _Place, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ParcelArrived):
                self._got(place, effect)
                if effect.kind == DATA:
                    self._consume(place, effect)
            elif isinstance(effect, TokenChanged):
                if effect.alive == (effect.key in place.seen_tokens):
                    raise NotRouted(f"{place.name} is told of {effect.key} twice")
                (place.seen_tokens.add if effect.alive else place.seen_tokens.discard)(effect.key)
            else:
                raise NotRouted(f"{place.name} refuses: {effect}")
        woken, place.router.woken = place.router.woken, {}
        for peer in woken:
            self._send(place, peer)

    def _consume(self, place: _Place, arrived: ParcelArrived) -> None:
        def consume() -> None:
            place.router.consumed(arrived.rank, len(arrived.payload))
            self._do(place, [])

        self.later(self.random.choice([0.0, 0.05]), consume)

    def _send(self, place: _Place, peer: str) -> None:
        line = self.lines.get((place.name, peer))
        while line is not None and line.free_at_s <= self.now_s:
            message = place.router.next(peer, self.now_s)
            if message is None:
                return
            self._transmit(place.name, peer, line, message)
        if line is not None and not line.is_asked:
            line.is_asked = True

            def again() -> None:
                line.is_asked = False
                self._send(place, peer)

            self.later(line.free_at_s - self.now_s, again)

    def _transmit(self, sender: str, peer: str, line: _Line, message: RoutingMessage) -> None:
        if line.bytes_per_s != float("inf"):
            size = len(message.payload) + 100 if isinstance(message, Parcel) else 20
            line.free_at_s = self.now_s + size / line.bytes_per_s
        self.counts["messages"] += 1
        if line.is_cut or (self.loss and self.random.random() < self.loss):
            return
        line.arrival_s = max(line.arrival_s, max(line.free_at_s, self.now_s) + line.delay_s)
        if self.encodes:
            again = decode(encode(message))
            assert again is not None
            message = again
        delay_s = line.arrival_s - self.now_s
        self.later(max(delay_s, 1e-6), lambda: self._arrive(peer, line, message))

    def _arrive(self, peer: str, line: _Line, message: RoutingMessage) -> None:
        place = self.places.get(peer)
        if place is not None and not line.is_cut:
            self._do(place, place.router.take(message, self.now_s))
            if place.router.must_look:
                self._do(place, place.router.look(self.now_s))

    # Little things.

    def _declare_some(self, place: _Place) -> None:
        for _ in range(self.random.randint(0, 2)):
            pattern = self.random.choice(PATTERNS)
            if pattern not in place.patterns:
                place.router.add_entry(DECLARED + pattern)
            place.patterns.append(pattern)
            place.ever.add(pattern)
        if not place.tokens:
            place.tokens.add(f"l/{place.name}")
            place.router.add_entry(f"{TOKEN}l/{place.name}")
        self._tell(place)

    def _put(self, place: _Place, key: str, kind: int, rank: int, size: int) -> int | None:
        """Put a frame, unless a class is full, where a publisher would wait."""
        self._puts_count += 1
        number = self._puts_count
        self.puts[number] = (place.name, key)
        payload = number.to_bytes(8, "big") + bytes(size)
        parcel = place.router.parcel(key, payload, kind=kind, rank=rank)
        if parcel is not None and not place.router.put(parcel, self.now_s):
            return None
        self._do(place, [])
        return number

    def _dropped(self) -> int:
        return sum(
            number
            for place in self.places.values()
            for what, number in place.router.counts.items()
            if what.startswith("dropped")
        )

    def _links(self) -> dict[str, set[str]]:
        links: dict[str, set[str]] = {name: set() for name in self.places}
        for (one, other), line in self.lines.items():
            if not line.is_cut and not self.lines[other, one].is_cut:
                links[one].add(other)
        return links

    def component(self, name: str) -> set[str]:
        """Whom a router reaches, itself included."""
        links, found, todo = self._links(), {name}, [name]
        while todo:
            for other in links[todo.pop()] - found:
                found.add(other)
                todo.append(other)
        return found

    def outcome(self, seed: int) -> RoutedOutcome:
        counts = Counter[str]()
        for place in self.places.values():
            counts.update(place.router.counts)
        return RoutedOutcome(
            seed,
            len(self.places),
            self._puts_count,
            self.counts["arrived"],
            counts["carried"],
            counts["held"],
            self._dropped(),
            self.settled_after_s,
            tuple(self.trace),
        )


def oracle(links: dict[str, set[str]], own: str) -> dict[str, set[tuple[str, ...]]]:
    """All shortest paths from `own`, found by walking all of them."""
    found: dict[str, set[tuple[str, ...]]] = {own: {()}}
    layer: dict[str, set[tuple[str, ...]]] = {own: {()}}
    while layer:
        further: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for router, paths in layer.items():
            for other in links[router]:
                if other not in found:
                    further[other] |= {(*path, other) for path in paths}
        found |= further
        layer = further
    return found


def simulate(seed: int, routers_max: int = 12) -> RoutedOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = RoutingRun(seed, routers_max)
    with replayable("infobus.testing.simulation.routing", f"{seed} {routers_max}", run):
        run.do_harm()
        run.settle()
        run.put_on_everything()
    return run.outcome(seed)


if __name__ == "__main__":
    print(simulate(*map(int, sys.argv[1:])))
