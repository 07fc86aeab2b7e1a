"""Routers whose links carry less than is put, in virtual time: every class moves, the highest waits
for nobody, and routers in a circle do not hold each other for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

import pytest

from infobus.protocols.frames.routing import DECLARED, encode
from infobus.protocols.routing.effects import Effect, ParcelArrived
from infobus.protocols.routing.machine import RoutingMachine
from infobus.protocols.routing.terms import RoutingTerms

BYTES_PER_S = 60_000.0
SIZE = 1_000
STEP_S = 0.005
TICK_S = 0.05
BEGIN_S, DEATH_S, END_S = 10.5, 14.0, 25.0
CHAIN = ["at", "tb"]
RING = ["ab", "bc", "cd", "de", "ef", "fa"]
WHEEL = [*RING, "ax", "cx", "ex"]
DOUBLE_RING = ["ab", "bc", "cd", "da", "ef", "fg", "gh", "he", "ae", "bf", "cg", "dh"]
EMERGENCY, BUSINESS, REGULAR = 0, 1, 2


class Overload:
    """Everybody puts three times what a link carries, in each of two classes, and emergencies."""

    def __init__(self, links: list[str], dies: str = "") -> None:
        self.now_s = 10.0
        self.dies = dies  # at `DEATH_S`; empty: nobody
        self.names = sorted({name for pair in links for name in pair})
        self.routers = {
            name: RoutingMachine(name, at * 1_000, RoutingTerms(), rate_of=lambda _: BYTES_PER_S)
            for at, name in enumerate(self.names)
        }
        self.wire: deque[tuple[float, str, object]] = deque()
        self.sent = Counter[tuple[str, str]]()
        self.size: dict[tuple[str, str], int] = {}
        self.due_s = defaultdict[tuple[str, int], float](lambda: BEGIN_S)
        self.got: dict[tuple[str, int, int], list[float]] = defaultdict(list)
        self.seen_s = defaultdict[tuple[str, int, int], float](lambda: BEGIN_S)
        self.pause_s = Counter[int]()  # the longest, of any that one router gets of another
        self.slowest_s = 0.0  # of emergencies
        for pair in links:
            for one, other in (pair, pair[::-1]):
                self.note(one, self.routers[one].neighbour_shown(other, True, self.now_s))
        for name, router in self.routers.items():
            router.add_entry(DECLARED + "c/**")
            self.note(name, router.tell_changes(self.now_s))

    def run(self) -> None:
        tick_s = self.now_s
        while self.now_s < END_S:
            self.now_s += STEP_S
            while self.wire and self.wire[0][0] <= self.now_s:
                _, name, message = self.wire.popleft()
                if name in self.routers:
                    self.note(name, self.routers[name].take(message, self.now_s))
                    self.note(name, self.routers[name].look(self.now_s))
            if self.now_s >= tick_s:
                tick_s += TICK_S
                for name, router in self.routers.items():
                    self.note(name, router.tick(self.now_s))
            if self.dies in self.routers and self.now_s > DEATH_S:
                self.bury(self.dies)
            if self.now_s > BEGIN_S:
                self.put()
            self.carry()
        for key, seen_s in self.seen_s.items():
            self.pause_s[key[2]] = max(self.pause_s[key[2]], END_S - seen_s)

    def bury(self, name: str) -> None:
        del self.routers[name]
        for other, router in self.routers.items():
            if name in router.links:
                self.note(other, router.neighbour_shown(name, False, self.now_s))

    def put(self) -> None:
        for name, router in self.routers.items():
            for rank in (EMERGENCY, BUSINESS, REGULAR):
                period_s = 0.2 if rank == EMERGENCY else SIZE / BYTES_PER_S / 3
                while self.due_s[name, rank] <= self.now_s:
                    filler = bytes(SIZE if rank else 150)
                    payload = b"%012.3f" % self.now_s + filler
                    parcel = router.parcel(f"c/{name}", payload, rank=rank)
                    if parcel is not None and not router.put(parcel, self.now_s):
                        break
                    self.due_s[name, rank] += period_s

    def carry(self) -> None:
        for name, router in self.routers.items():
            for peer in router.links:
                pair = (name, peer)
                while message := router.next(peer, self.now_s, self.size.pop(pair, 0)):
                    self.size[pair] = len(encode(message))
                    self.sent[pair] += self.size[pair]
                    if peer in self.routers:
                        self.wire.append((self.now_s + 0.003, peer, message))

    def note(self, name: str, effects: list[Effect]) -> None:
        for one in effects:
            if isinstance(one, ParcelArrived):
                key = (name, one.source, one.rank)
                put_s = float(one.payload[:12])
                self.got[key].append(put_s)
                self.pause_s[one.rank] = max(self.pause_s[one.rank], self.now_s - self.seen_s[key])
                self.seen_s[key] = self.now_s
                if one.rank == EMERGENCY:
                    self.slowest_s = max(self.slowest_s, self.now_s - put_s)
                self.routers[name].consumed(one.rank, len(one.payload))


@pytest.fixture(scope="module", params=[CHAIN, RING, WHEEL], ids=["chain", "ring", "wheel"])
def overload(request: pytest.FixtureRequest) -> Overload:
    made = Overload(request.param)
    made.run()
    return made


def test_emergencies_wait_for_no_more_than_the_frame_that_leaves_at_each_hop(overload):
    hops_count = 4
    assert 0 < overload.slowest_s < hops_count * 3 * SIZE / BYTES_PER_S + 0.1


def test_a_link_carries_its_rate_and_no_more(overload):
    for sent in overload.sent.values():
        assert sent <= BYTES_PER_S * (END_S - BEGIN_S + 1) * 1.02
    assert max(overload.sent.values()) > BYTES_PER_S * (END_S - BEGIN_S) * 0.9


def test_what_everybody_gets_of_everybody_moves_in_every_class_in_order(overload):
    pairs_count = len(overload.names) * (len(overload.names) - 1)
    for rank in (EMERGENCY, BUSINESS, REGULAR):
        found = [puts for key, puts in overload.got.items() if key[2] == rank]
        assert len(found) == pairs_count
        assert all(puts == sorted(puts) for puts in found)
    assert overload.pause_s[EMERGENCY] < 0.5
    assert overload.pause_s[BUSINESS] < (END_S - BEGIN_S) * 0.75


def test_routers_in_a_circle_do_not_stand_still(overload):
    """The class below the highest carries what the links can, though each holds the one before."""
    assert sum(router.counts["dropped: stuck"] for router in overload.routers.values()) == 0
    arrived = sum(len(puts) for key, puts in overload.got.items() if key[2] == BUSINESS)
    assert arrived * SIZE > BYTES_PER_S * (END_S - BEGIN_S) * len(overload.names) * 0.5


@pytest.mark.parametrize(("links", "dies"), [(WHEEL, "a"), (DOUBLE_RING, "c")])
def test_nothing_is_dropped_as_stuck_because_a_router_has_died(links, dies):
    """Others get its load at once. What waits long is held for good reason, and blocks nobody."""
    overload = Overload(links, dies)
    overload.run()
    assert sum(router.counts["dropped: stuck"] for router in overload.routers.values()) == 0
    arrived = sum(len(puts) for key, puts in overload.got.items() if key[2] == BUSINESS)
    assert arrived * SIZE > BYTES_PER_S * (END_S - BEGIN_S) * len(overload.names) * 0.5


def test_every_hold_is_released_when_the_load_ends(overload):
    links = [link for router in overload.routers.values() for link in router.links.values()]
    until_s = overload.now_s + 60.0
    while any(len(link.queues) for link in links):
        assert overload.now_s < until_s
        overload.now_s += TICK_S
        while overload.wire:
            _, name, message = overload.wire.popleft()
            overload.note(name, overload.routers[name].take(message, overload.now_s))
        for name, router in overload.routers.items():
            overload.note(name, router.tick(overload.now_s))
        overload.carry()
    assert not any(link.crowded for link in links)
