"""Drawn runs of routers that reserve along paths: on all hops or on none, and nothing is left over.

The test command runs 40 seeds; `INFOBUS_SIM_SEEDS=10000 pytest tests/simulation` runs so many.
"""

import os

import pytest

from infobus.protocols.routing.reservations import Reservations
from infobus.protocols.routing.reserved import ReservedLink
from infobus.testing.simulation.reliable import SimulationFailed
from infobus.testing.simulation.routers.reservations import simulate

SEEDS_COUNT = min(int(os.environ.get("INFOBUS_SIM_SEEDS", "40")), 10_000)


@pytest.mark.timeout(600)
def test_what_is_reserved_is_kept_on_all_hops_or_on_none():
    outcomes = [simulate(seed) for seed in range(SEEDS_COUNT)]
    # A simulation in which nothing happens proves nothing.
    for what in ("admitted_count", "refused_count", "lost_count", "kept_at_end"):
        assert sum(getattr(outcome, what) for outcome in outcomes) > len(outcomes) // 5, what


def keep_where_others_refuse(monkeypatch):
    monkeypatch.setattr(Reservations, "_let_go", lambda self, key, hop, sender: None)


def keep_what_nobody_asks_for(monkeypatch):
    monkeypatch.setattr(Reservations, "link_down", lambda self, link, sender: None)
    monkeypatch.setattr("infobus.protocols.routing.terms._KEPT_ROUNDS", 1_000.0)


def promise_more_than_there_is(monkeypatch):
    monkeypatch.setattr(ReservedLink, "_each", lambda self, but: [])


def ask_no_more(monkeypatch):
    monkeypatch.setattr("infobus.protocols.routing.reservations.Reservations.tick", lambda *_: [])


def believe_each_hop_at_once(monkeypatch):
    renew = Reservations._renew

    def hurry(self, key, booking, now_s, sender):
        effects = renew(self, key, booking, now_s, sender)
        booking.silent = set()
        return effects or self._tell(key, booking, None, sender)

    monkeypatch.setattr(Reservations, "_renew", hurry)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutate",
    [
        keep_where_others_refuse,
        keep_what_nobody_asks_for,
        promise_more_than_there_is,
        ask_no_more,
        believe_each_hop_at_once,
    ],
)
def test_a_broken_machine_is_found_within_a_few_seeds(monkeypatch, mutate):
    mutate(monkeypatch)
    with pytest.raises(SimulationFailed):
        for seed in range(100):
            simulate(seed)
