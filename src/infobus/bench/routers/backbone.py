"""A backbone in virtual time: the shipped machines of routers, on links with a delay and no faults.

Every message is encoded to count its bytes, and handed over as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from infobus.protocols.frames.routing import DECLARED, TOKEN, Hello, encode
from infobus.protocols.routing.router import Router
from infobus.protocols.routing.terms import RoutingTerms

Links = set[tuple[int, int]]

REGION_COUNT = 10
"""Sites of one region."""
DELAY_S = 0.01
"""Of a link, one way."""
LOCAL_COUNT, SHARED_COUNT = 10, 2
"""Channels that only one site wants, and channels that all want."""
_TICK_S = 0.05


def tree_of_regions(sites: int) -> Links:
    """The first site of each region is its head; heads are a tree, too, each with ten below it."""
    heads = range(0, sites, REGION_COUNT)
    links = {(site - site % REGION_COUNT, site) for site in range(sites) if site % REGION_COUNT}
    links |= {(heads[(at - 1) // REGION_COUNT], head) for at, head in enumerate(heads) if at}
    return links


def ring_of_regions(sites: int) -> Links:
    """The sites of a region are a ring, and so are the heads of all regions."""
    links = set()
    heads = list(range(0, sites, REGION_COUNT))
    for head in heads:
        region = list(range(head, min(head + REGION_COUNT, sites)))
        links |= set(zip(region, [*region[1:], head], strict=True))
    links |= set(zip(heads, [*heads[1:], heads[0]], strict=True))
    return {(min(one), max(one)) for one in links if one[0] != one[1]}


def random_of_degree_4(sites: int) -> Links:
    """A ring of all sites and as many links again, drawn."""
    draw = random.Random(sites)
    links = {(site, site + 1) for site in range(sites - 1)} | {(0, sites - 1)}
    while len(links) < 2 * sites:
        one, other = sorted(draw.sample(range(sites), 2))
        links.add((one, other))
    return links


TOPOLOGIES: dict[str, Callable[[int], Links]] = {
    "tree of regions": tree_of_regions,
    "ring of regions": ring_of_regions,
    "random, degree 4": random_of_degree_4,
}


class Backbone:
    """The routers of some sites; counts what they say to each other."""

    def __init__(self, sites: int, links: Links) -> None:
        self.now_s = 0.0
        self.messages = self.bytes = 0
        """Of tables; what is said regularly is counted apart."""
        self.greetings = self.greeting_bytes = 0
        self.routers = {
            f"site{site}": Router(f"site{site}", site, RoutingTerms()) for site in range(sites)
        }
        self.links = {(f"site{one}", f"site{other}") for one, other in links}
        self._hands_out = False  # tables, so nothing that is said of them has to arrive
        self._looking: set[str] = set()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        draw = random.Random(sites)
        for name, router in self.routers.items():
            for number in range(LOCAL_COUNT):
                router.add_entry(f"{DECLARED}c/{name}/channel{number}")
            for number in range(SHARED_COUNT):
                router.add_entry(f"{DECLARED}c/shared{number}")
            router.add_entry(f"{TOKEN}l/{name}")
            router.tell_changes(0.0)
            self._later(draw.uniform(0, _TICK_S), lambda name=name: self._tick(name))  # type: ignore[misc]

    def begin(self) -> None:
        """Let all neighbours see each other."""
        for one, other in sorted(self.links):
            self.show(one, other, is_shown=True)

    def begin_at_rest(self) -> None:
        """Let all neighbours see each other, and all routers know the tables of all others."""
        self._hands_out = True
        self.begin()
        self.advance(1.0)
        tables = {name: router.tables.mine for name, router in self.routers.items()}
        for name, router in self.routers.items():
            neighbour = next(iter(router.links))
            for origin, told in tables.items():
                router.take(told.as_frame(neighbour, origin), self.now_s)
            router.look(self.now_s)
            self._send(name)
        self._hands_out = False

    def show(self, one: str, other: str, *, is_shown: bool) -> None:
        """Two neighbours see each other, or do not any more."""
        for a, b in ((one, other), (other, one)):
            if a in self.routers:
                self.routers[a].neighbour_shown(b, is_shown, self.now_s)
                self._send(a)

    def declare(self, name: str, channel: str) -> None:
        """A site wants one more channel."""
        self.routers[name].add_entry(f"{DECLARED}c/{channel}")
        self.routers[name].tell_changes(self.now_s)
        self._send(name)

    def cut(self, one: str, other: str) -> None:
        """A link breaks."""
        self.links.discard((one, other))
        self.show(one, other, is_shown=False)

    def remove(self, name: str) -> None:
        """A router dies, and its neighbours see it."""
        del self.routers[name]
        for one, other in [ends for ends in self.links if name in ends]:
            self.cut(one, other)

    def settle(self, seconds_max: float = 60.0) -> float:
        """Wait until all use the same tables, those of everyone there is; how long that took."""
        began_s = changed_s = self.now_s
        while not self.is_settled():
            if self.now_s - began_s > seconds_max:
                raise TimeoutError(f"the backbone did not settle in {seconds_max} s")
            self.advance(0.005)
            changed_s = self.now_s
        return changed_s - began_s

    def is_settled(self) -> bool:
        """Whether all routers reach each other and know what each of them says."""
        hashes = {router.tables.hash for router in self.routers.values()}
        reached = {len(router.tables.reached) for router in self.routers.values()}
        return len(hashes) == 1 and reached == {len(self.routers)}

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until_s = self.now_s + seconds
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, function = heappop(self._queue)
            function()
        self.now_s = until_s

    def _later(self, delay_s: float, function: Callable[[], None]) -> None:
        heappush(self._queue, (self.now_s + delay_s, next(self._numbers), function))

    def _tick(self, name: str) -> None:
        if name in self.routers:
            self.routers[name].tick(self.now_s)
            self._send(name)
            self._later(_TICK_S, lambda: self._tick(name))

    def _send(self, name: str) -> None:
        router = self.routers[name]
        woken, router.woken = router.woken, {}
        for peer in woken:
            while (message := router.next(peer, self.now_s)) is not None:
                size = 0 if self._hands_out else len(encode(message))
                if isinstance(message, Hello):
                    self.greetings += 1
                    self.greeting_bytes += size
                elif self._hands_out:
                    continue
                else:
                    self.messages += 1
                    self.bytes += size
                self._later(DELAY_S, lambda peer=peer, message=message: self._arrive(peer, message))  # type: ignore[misc]

    def _arrive(self, peer: str, message: object) -> None:
        router = self.routers.get(peer)
        if router is not None:
            router.take(message, self.now_s)  # type: ignore[arg-type]
            if router.must_look and peer not in self._looking:
                self._looking.add(peer)
                self._later(router.terms.gather_s, lambda: self._look(peer))
            self._send(peer)

    def _look(self, name: str) -> None:
        self._looking.discard(name)
        if name in self.routers:
            self.routers[name].look(self.now_s)
