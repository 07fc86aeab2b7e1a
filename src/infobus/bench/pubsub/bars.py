"""The bars of publish and subscribe.

Unless a bar says otherwise, objects are not padded and events are not batched. Ratios are always
taken between runs of the same repetition.
"""

from __future__ import annotations

from collections.abc import Sequence

from infobus.bench.common.bar import Bar
from infobus.bench.common.engines import INFOBUS, INFOBUS_BATCHED, NATS, ZENOH
from infobus.bench.pubsub.scenario import MANY, BenchRun, Scenario, middle, run_ratios

EXTRA_THREADS_MAX = 16
"""Room for a pool that grows under load. A thread per subscription would make 10,000."""


def pubsub_bars(runs: Sequence[BenchRun], import_s: float) -> list[Bar]:
    """Every bar, in the order of the design."""
    one = Scenario(engine=INFOBUS)
    batched = Scenario(engine=INFOBUS_BATCHED)
    fan_out = Scenario(engine=INFOBUS, consumers=14)
    round_trip = Scenario(engine=INFOBUS, kind="round trip")
    subjects = Scenario(engine=INFOBUS, subjects=MANY)
    subscriptions = Scenario(engine=INFOBUS, subjects=MANY, subscriptions=MANY)

    def rate(what: str, over: Scenario, under: Scenario, bar: float) -> Bar:
        found = run_ratios(runs, over, under, lambda run: run.events_per_s)
        return Bar.over_rounds(what, found, bar)

    trips = run_ratios(runs, round_trip, _by(ZENOH, round_trip), lambda run: run.p50_s)
    return [
        rate("1 to 1, rate to nats", one, _by(NATS, one), 1.5),
        rate("1 to 1, rate to raw zenoh", one, _by(ZENOH, one), 0.5),
        rate("1 to 1 batched, rate to nats", batched, _by(NATS, one), 5.0),
        rate("1 to 1 batched, rate to raw zenoh", batched, _by(ZENOH, one), 1.0),
        rate("1 to 14, rate to nats, each consumer", fan_out, _by(NATS, fan_out), 3.0),
        Bar.over_rounds("round trip p50 to raw zenoh", trips, 1.5, at_least=False),
        rate("10,000 subjects, rate to one", subjects, one, 0.7),
        rate("10,000 subscriptions, rate to one", subscriptions, one, 0.5),
        Bar(
            what="10,000 subscriptions, declared in",
            measured=middle(runs, subscriptions, lambda run: run.declared_s),
            bar=2.0,
            at_least=False,
            unit="s",
        ),
        Bar(
            what="10,000 subscriptions, more threads than one",
            measured=_extra_threads(runs, subscriptions, one),
            bar=EXTRA_THREADS_MAX,
            at_least=False,
            unit="threads",
        ),
        Bar(what="import infobus", measured=import_s * 1e3, bar=150, at_least=False, unit="ms"),
        Bar(what="delivered, at the worst", measured=_delivered(runs), bar=100, unit="%"),
        Bar(
            what="events out of order",
            measured=_misordered(runs),
            bar=0,
            at_least=False,
            unit="events",
        ),
    ]


def _by(engine: str, scenario: Scenario) -> Scenario:
    """The same work done by another engine."""
    return Scenario(engine=engine, kind=scenario.kind, consumers=scenario.consumers)


def _extra_threads(runs: Sequence[BenchRun], many: Scenario, one: Scenario) -> float | None:
    more = middle(runs, many, lambda run: run.threads)
    less = middle(runs, one, lambda run: run.threads)
    return None if more is None or less is None else more - less


def _own_runs(runs: Sequence[BenchRun]) -> list[BenchRun]:
    return [run for run in runs if run.scenario.engine in (INFOBUS, INFOBUS_BATCHED)]


def _delivered(runs: Sequence[BenchRun]) -> float | None:
    """The worst of our runs. A run that broke off counts: it delivered nothing."""
    return min((run.delivered_share * 100 for run in _own_runs(runs)), default=None)


def _misordered(runs: Sequence[BenchRun]) -> float | None:
    own = _own_runs(runs)
    return sum(run.misordered for run in own) if own else None
