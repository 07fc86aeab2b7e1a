"""All shortest paths from one router to all others (paper 002, section 4.1).

Every router says who its neighbours are; a link counts only if both of its ends report it. So no
router can invent a link to another, and nobody uses a link in which only one end still believes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

PATHS_COUNT_MAX = 8
"""Shortest paths to one router that are told; all of their first hops are used."""

Path = tuple[str, ...]


def links_of(told: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    """Return the links that both ends tell of.

    >>> links_of({"a": ["b", "c"], "b": ["a"], "c": []})["a"]
    frozenset({'b'})
    """
    none: frozenset[str] = frozenset()
    sets = {router: frozenset(neighbours) for router, neighbours in told.items()}
    return {
        router: frozenset(n for n in neighbours if router in sets.get(n, none))
        for router, neighbours in sets.items()
    }


class Paths:
    """The shortest paths from `own` along `links`, none of which leads through `avoid`.

    >>> ring = {1: "24", 2: "13", 3: "24", 4: "13"}
    >>> paths = Paths("1", links_of({str(router): n for router, n in ring.items()}))
    >>> paths.hops["3"], paths.to("3"), paths.distances["3"]
    (('2', '4'), [('2', '3'), ('4', '3')], 2)
    """

    def __init__(
        self, own: str, links: Mapping[str, Collection[str]], avoid: Collection[str] = ()
    ) -> None:
        self.own = own
        self.distances: dict[str, int] = {own: 0}
        self.hops: dict[str, tuple[str, ...]] = {}
        """For each router that can be reached: the first hops of all shortest paths, sorted."""
        self._before: dict[str, list[str]] = {own: []}
        firsts: dict[str, set[str]] = {}
        layer = [own]
        while layer:
            further: list[str] = []
            for router in layer:
                distance = self.distances[router] + 1
                for neighbour in links.get(router, ()):
                    known = self.distances.get(neighbour)
                    if known is None:
                        if neighbour in avoid:
                            continue
                        self.distances[neighbour] = known = distance
                        self._before[neighbour] = []
                        firsts[neighbour] = set()
                        further.append(neighbour)
                    if known == distance:
                        self._before[neighbour].append(router)
                        firsts[neighbour] |= firsts[router] if router != own else {neighbour}
            layer = further
        self.hops = {router: tuple(sorted(found)) for router, found in firsts.items()}

    def to(self, router: str, count_max: int = PATHS_COUNT_MAX) -> list[Path]:
        """Return the shortest paths to `router`, without the first end: at most `count_max`.

        If there are more, these are one by each first hop before a second by any, and then in
        alphabetical order.
        """
        if router not in self.hops:
            return []
        after = self._after(router)
        turns = [self._walk(hop, router, after) for hop in self.hops[router]]
        found: list[Path] = []
        while turns and len(found) < count_max:
            for walk in list(turns):
                path = next(walk, None)
                if path is None:
                    turns.remove(walk)
                elif len(found) < count_max:
                    found.append(path)
        return found

    def _after(self, last: str) -> dict[str, list[str]]:
        """For each router on a shortest path to `last`: those that may come next."""
        after: dict[str, list[str]] = {last: []}
        layer = [last]
        while layer:
            nearer: list[str] = []
            for router in layer:
                for before in self._before[router]:
                    if before not in after:
                        after[before] = []
                        nearer.append(before)
                    after[before].append(router)
            layer = nearer
        return {router: sorted(found) for router, found in after.items()}

    def _walk(self, router: str, last: str, after: Mapping[str, list[str]]) -> Iterator[Path]:
        if router == last:
            yield (last,)
        for further in after[router]:
            for path in self._walk(further, last, after):
                yield (router, *path)
