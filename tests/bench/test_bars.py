"""Bars: what passes, what does not, and what cannot be said."""

import msgspec

from infobus.bench.common.bar import Bar
from infobus.bench.common.engines import INFOBUS, NATS
from infobus.bench.pubsub.bars import pubsub_bars
from infobus.bench.pubsub.plan import full_scenarios, in_order, quick_scenarios
from infobus.bench.pubsub.scenario import Scenario
from tests.bench.canned import canned_findings, canned_run, canned_runs


def bars_by_name(runs, import_s=0.1):
    return {bar.what: bar for bar in pubsub_bars(runs, import_s)}


def test_a_quick_run_measures_every_bar():
    assert all(bar.measured is not None for bar in canned_findings(quick=True).bars)


def test_a_full_run_measures_everything_that_a_quick_run_does():
    assert set(quick_scenarios()) <= set(full_scenarios())


def test_a_bar_is_passed_at_its_limit_from_either_side():
    assert Bar(what="", measured=1.5, bar=1.5).ok
    assert not Bar(what="", measured=1.49, bar=1.5).ok
    assert Bar(what="", measured=1.5, bar=1.5, at_least=False).ok
    assert not Bar(what="", measured=1.51, bar=1.5, at_least=False).ok


def test_a_bar_on_which_repetitions_disagree_says_so():
    ours, theirs = Scenario(engine=INFOBUS), Scenario(engine=NATS)
    steady = [canned_run(ours), canned_run(theirs)]
    slower = msgspec.structs.replace(canned_run(ours, 1), events_per_s=1000.0)
    name = "1 to 1, rate to nats"
    assert bars_by_name(steady)[name].is_sure
    noisy = bars_by_name([*steady, slower, canned_run(theirs, 1)])[name]
    assert noisy.spread == (0.25, 1.75)
    assert not noisy.is_sure


def test_a_bar_without_its_peer_is_neither_passed_nor_failed():
    runs = [canned_run(scenario) for scenario in quick_scenarios() if scenario.engine != NATS]
    assert bars_by_name(runs)["1 to 1, rate to nats"].ok is None
    assert bars_by_name(runs)["1 to 1, rate to raw zenoh"].ok is True


def test_a_ratio_is_taken_to_the_peer_at_the_same_work():
    bars = bars_by_name(canned_runs(quick=True))
    assert bars["1 to 1, rate to nats"].measured == len("infobus") / len("nats")
    assert bars["round trip p50 to raw zenoh"].measured == len("zenoh") / len("infobus")


def test_a_lost_event_a_broken_run_or_a_wrong_order_fails_its_bar():
    run = canned_run(Scenario(engine=INFOBUS))
    lossy = msgspec.structs.replace(run, delivered_share=0.999)
    broken = msgspec.structs.replace(run, delivered_share=0.0, failure="it broke")
    misordered = msgspec.structs.replace(run, misordered=1)
    assert bars_by_name([run])["delivered, at the worst"].ok is True
    assert bars_by_name([run, lossy])["delivered, at the worst"].ok is False
    assert bars_by_name([run, broken])["delivered, at the worst"].ok is False
    assert bars_by_name([run, misordered])["events out of order"].ok is False


def test_a_peers_losses_are_not_ours():
    lossy = msgspec.structs.replace(canned_run(Scenario(engine=NATS)), delivered_share=0.5)
    bars = bars_by_name([canned_run(Scenario(engine=INFOBUS)), lossy])
    assert bars["delivered, at the worst"].ok is True


def test_engines_are_interleaved_within_each_repetition():
    scenarios = quick_scenarios()
    assert list(in_order(scenarios, 2)) == [(s, 0) for s in scenarios] + [(s, 1) for s in scenarios]
