"""Runs of routers that reserve along paths, over links that fail, each drawn from one seed.

All that `infobus.testing.simulation.routing` does happens here, too; and routers reserve, change
and give back, on links of limited rates.

At any time, no link has promised more than can be reserved of it. When all has healed, each
reservation is kept on links that lead to all its destinations, or on none at all, and its source
knows which; what was given back, or whose source has crashed, is kept nowhere; and one that is left
alone is admitted.

A seed that fails is replayed by `python -m infobus.testing.simulation.routers.reservations SEED`.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from infobus.protocols.frames.routing import id_of
from infobus.protocols.routing.effects import Effect, ReservationTold
from infobus.protocols.routing.reserved import RESERVABLE_PART, LinkClaim, Refusal
from infobus.testing.simulation.reliable import replayable
from infobus.testing.simulation.routing import SETTLE_S, NotRouted, RoutingRun

_MODULE = "infobus.testing.simulation.routers.reservations"
_LINK_BYTES_PER_S = 100_000.0
_CLAIM = LinkClaim(1_000.0, 10.0)


@dataclass
class _Wanted:
    claim: LinkClaim
    to: tuple[str, ...]
    told: Refusal | str | None = "nothing yet"


@dataclass(frozen=True)
class ReservationsOutcome:
    """What happened in a run that kept all promises."""

    seed: int
    asked_count: int
    admitted_count: int
    refused_count: int
    lost_count: int
    """How often one that was admitted was refused later, because of what failed."""
    kept_at_end: int


class ReservationsRun(RoutingRun):
    """One run."""

    def __init__(self, seed: int, routers_max: int = 12) -> None:
        self.wanted: dict[tuple[str, int], _Wanted] = {}
        self.tally = Counter[str]()
        super().__init__(seed, routers_max)

    def put_some(self) -> None:
        """As before; and something happens to reservations."""
        super().put_some()
        for _ in range(2):
            self.random.choice([self._reserve, self._reserve, self._change, self._give_back])()
            self._check_room()

    def join(self) -> None:
        """As before, with links of which not everything can be promised."""
        before = set(self.places)
        super().join()
        for name in self.places.keys() - before:
            self.places[name].router.rate_of = lambda name: _LINK_BYTES_PER_S

    def _reserve(self) -> None:
        name = self.random.choice(list(self.places))
        others = [one for one in self.places if one != name]
        count = min(len(others), self.random.choice([1, 1, 2, 4]))
        self.tally["asked"] += 1
        key = (name, self.tally["asked"])
        self._ask(key, _Wanted(self._claim(), tuple(self.random.sample(others, count))))

    def _change(self) -> None:
        if self.wanted:
            key = self.random.choice(list(self.wanted))
            self.wanted[key].claim = self._claim()
            self._ask(key, self.wanted[key])

    def _give_back(self) -> None:
        if self.wanted:
            self._give(self.random.choice(list(self.wanted)))

    def _claim(self) -> LinkClaim:
        return LinkClaim(self.random.choice([10_000.0, 30_000.0, 60_000.0, 90_000.0]), 100.0)

    def _ask(self, key: tuple[str, int], wanted: _Wanted) -> None:
        self.wanted[key] = wanted
        place, to = self.places[key[0]], [id_of(one) for one in wanted.to]
        self._do(place, place.router.reserve(key[1], wanted.claim, to, self.now_s))

    def _give(self, key: tuple[str, int]) -> None:
        del self.wanted[key]
        self.places[key[0]].router.give_back(key[1])
        self._do(self.places[key[0]], [])

    def crash(self) -> None:
        """As before; what it had reserved is nobody's."""
        super().crash()
        self.wanted = {key: one for key, one in self.wanted.items() if key[0] in self.places}

    def _do(self, place, effects: list[Effect]) -> None:  # type: ignore[no-untyped-def]
        for told in [one for one in effects if isinstance(one, ReservationTold)]:
            wanted = self.wanted.get((place.name, told.number))
            if wanted is not None:
                was_kept, wanted.told = wanted.told is None, told.refusal
                self.tally["admitted" if told.refusal is None else "refused"] += 1
                self.tally["lost"] += was_kept and told.refusal is not None
                self.trace.append((place.name, told.number, told.refusal))
        super()._do(place, [one for one in effects if not isinstance(one, ReservationTold)])

    # What holds.

    def _check_room(self) -> None:
        for place in self.places.values():
            for peer, link in place.router.links.items():
                kept = link.reserved.of_sources().values()
                total = sum(claim.bytes_per_s for claim in kept)
                if total > _LINK_BYTES_PER_S * RESERVABLE_PART * 1.001:
                    raise NotRouted(f"{place.name} has promised {total} bytes/s to {peer}")

    def check_reservations(self) -> None:
        """Wait until each is kept on all hops or on none, as its source knows."""
        self._wait_until_right()
        if self.wanted:
            kept = self.random.choice(list(self.wanted))
            for key in [key for key in self.wanted if key != kept]:
                self._give(key)
            self.wanted[kept].claim = _CLAIM
            self._ask(kept, self.wanted[kept])
            self._wait_until_right(alone=kept)

    def _wait_until_right(self, alone: tuple[str, int] | None = None) -> None:
        until_s = self.now_s + SETTLE_S
        while True:
            self._check_room()
            wrong = self._what_is_wrong()
            if not wrong and alone is not None:
                reached = self.component(alone[0]) & set(self.wanted[alone].to)
                if reached and self.wanted[alone].told is not None:
                    wrong = f"{alone} is alone, and refused: {self.wanted[alone].told}"
            if not wrong:
                return
            if self.now_s > until_s:
                raise NotRouted(wrong)
            self.advance(0.05)

    def _what_is_wrong(self) -> str:
        kept: dict[tuple[int, int], dict[str, set[str]]] = {}
        for place in self.places.values():
            for peer, link in place.router.links.items():
                for source, number, _ in link.reserved.held:
                    hops = kept.setdefault((source, number), {})
                    hops.setdefault(place.name, set()).add(peer)
        for (name, number), wanted in self.wanted.items():
            hops = kept.pop((id_of(name), number), {})
            if wanted.told is not None:
                if hops or wanted.told == "nothing yet":
                    return f"{name} has {number} refused, and it is kept at {sorted(hops)}"
                continue
            found, todo = {name}, [name]
            while todo:
                for peer in hops.get(todo.pop(), set()) - found:
                    found.add(peer)
                    todo.append(peer)
            lacking = (set(wanted.to) & self.component(name)) - found
            if lacking or hops.keys() - found:
                return f"{name} has {number} kept, but not to {lacking}: {hops}"
        return f"nobody wants {kept}" if kept else ""


def simulate(seed: int, routers_max: int = 12) -> ReservationsOutcome:
    """Do the run that `seed` draws.

    Raises:
        SimulationFailed: A promise was broken; the message says how to see it again.
    """
    run = ReservationsRun(seed, routers_max)
    with replayable(
        "infobus.testing.simulation.routers.reservations", f"{seed} {routers_max}", run
    ):
        run.do_harm()
        run.settle()
        run.check_reservations()
    tally = run.tally
    kept = sum(one.told is None for one in run.wanted.values())
    return ReservationsOutcome(
        seed, tally["asked"], tally["admitted"], tally["refused"], tally["lost"], kept
    )


if __name__ == "__main__":
    print(simulate(*map(int, sys.argv[1:])))
