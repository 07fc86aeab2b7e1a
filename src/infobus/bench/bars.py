"""The bars: what was promised about speed, set against what was measured.

They are taken with the object as it is (not padded) and without batching, unless the bar says
otherwise, and always from runs of the same repetition.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from infobus.bench.model import INFOBUS, INFOBUS_BATCHED, MANY, NATS, ZENOH, Bar, Run, Scenario
from infobus.bench.statistics import middle, ratios

EXTRA_THREADS_MAX = 16
"""Room for a pool that grows under load; a thread per subscription would be 10,000."""


def judge(runs: Sequence[Run], import_s: float) -> list[Bar]:
    """Every bar, in the order of the design."""
    one = Scenario(engine=INFOBUS)
    batched = Scenario(engine=INFOBUS_BATCHED)
    fan_out = Scenario(engine=INFOBUS, consumers=14)
    round_trip = Scenario(engine=INFOBUS, kind="round trip")
    subjects = Scenario(engine=INFOBUS, subjects=MANY)
    subscriptions = Scenario(engine=INFOBUS, subjects=MANY, subscriptions=MANY)

    def rate(what: str, over: Scenario, under: Scenario, bar: float) -> Bar:
        return _ratio_bar(what, ratios(runs, over, under, lambda run: run.events_per_s), bar)

    trips = ratios(runs, round_trip, _by(ZENOH, round_trip), lambda run: run.p50_s)
    return [
        rate("1 to 1, rate to nats", one, _by(NATS, one), 1.5),
        rate("1 to 1, rate to raw zenoh", one, _by(ZENOH, one), 0.5),
        rate("1 to 1 batched, rate to nats", batched, _by(NATS, one), 5.0),
        rate("1 to 1 batched, rate to raw zenoh", batched, _by(ZENOH, one), 1.0),
        rate("1 to 14, rate to nats, each consumer", fan_out, _by(NATS, fan_out), 3.0),
        _ratio_bar("round trip p50 to raw zenoh", trips, 1.5, at_least=False),
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


def _ratio_bar(what: str, found: list[float], bar: float, *, at_least: bool = True) -> Bar:
    return Bar(
        what=what,
        measured=median(found) if found else None,
        bar=bar,
        at_least=at_least,
        spread=(min(found), max(found)) if found else None,
    )


def _by(engine: str, scenario: Scenario) -> Scenario:
    """The same work done by another engine."""
    return Scenario(engine=engine, kind=scenario.kind, consumers=scenario.consumers)


def _extra_threads(runs: Sequence[Run], many: Scenario, one: Scenario) -> float | None:
    more = middle(runs, many, lambda run: run.threads)
    less = middle(runs, one, lambda run: run.threads)
    return None if more is None or less is None else more - less


def _own_runs(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.scenario.engine in (INFOBUS, INFOBUS_BATCHED)]


def _delivered(runs: Sequence[Run]) -> float | None:
    """A run that broke off delivered nothing, which the bar must not pass over."""
    return min((run.delivered_share * 100 for run in _own_runs(runs)), default=None)


def _misordered(runs: Sequence[Run]) -> float | None:
    own = _own_runs(runs)
    return sum(run.misordered for run in own) if own else None
