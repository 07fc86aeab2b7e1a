"""Routers that hear each other at once, for tests in which nothing is late."""

from __future__ import annotations

from infobus.protocols.frames.routing import DATA, DECLARED
from infobus.protocols.routing.effects import Effect, ParcelArrived
from infobus.protocols.routing.machine import RoutingMachine
from infobus.protocols.routing.terms import RoutingTerms


class Routers:
    """Some routers and the links between them; `carry` lets all messages arrive."""

    def __init__(self, terms: RoutingTerms | None = None) -> None:
        self.terms = terms or RoutingTerms()
        self.routers: dict[str, RoutingMachine] = {}
        self.now_s = 10.0
        self.got: list[tuple[str, bytes]] = []
        self.others: list[Effect] = []
        self.mute: set[str] = set()
        """Routers whose messages wait."""
        self.messages_count = 0

    def __getitem__(self, name: str) -> RoutingMachine:
        if name not in self.routers:
            self.routers[name] = RoutingMachine(
                name, len(self.routers) * 1000, self.terms, name=name
            )
        return self.routers[name]

    def link(self, one: str, other: str) -> None:
        for a, b in ((one, other), (other, one)):
            self._note(a, self[a].neighbour_shown(b, True, self.now_s))
        self.carry()

    def unlink(self, one: str, other: str) -> None:
        for a, b in ((one, other), (other, one)):
            self._note(a, self[a].neighbour_shown(b, False, self.now_s))
        self.carry()

    def remove(self, name: str) -> None:
        del self.routers[name]
        for other, router in list(self.routers.items()):
            self._note(other, router.neighbour_shown(name, False, self.now_s))
        self.carry()

    def declare(self, name: str, pattern: str) -> None:
        self[name].add_entry(DECLARED + pattern)
        self._note(name, self[name].tell_changes(self.now_s))
        self.carry()

    def put(self, name: str, key: str, payload: bytes, *, kind: int = DATA, rank: int = 2) -> bool:
        parcel = self[name].parcel(key, payload, kind=kind, rank=rank)
        return parcel is None or self[name].put(parcel, self.now_s)

    def carry(self) -> None:
        """Let messages arrive until there are none."""
        while sum(self._carry_from(name) for name in list(self.routers)):
            pass

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in ticks."""
        for _ in range(round(seconds / 0.1)):
            self.now_s += 0.1
            for name, router in list(self.routers.items()):
                self._note(name, router.tick(self.now_s))
            self.carry()

    def _carry_from(self, name: str) -> bool:
        router, did = self.routers[name], False
        if name in self.mute:
            return False
        for peer in list(router.links):
            while (message := router.next(peer, self.now_s)) is not None:
                did = True
                self.messages_count += 1
                if peer in self.routers:
                    other = self.routers[peer]
                    self._note(peer, other.take(message, self.now_s))
                    self._note(peer, other.look(self.now_s))
        return did

    def _note(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ParcelArrived):
                self.got.append((name, effect.payload))
                if effect.kind == DATA:
                    self.routers[name].consumed(effect.rank, len(effect.payload))
            else:
                self.others.append(effect)
