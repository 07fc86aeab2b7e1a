"""How long emergencies take from `publish` to the handler, without and with a flood beside them.

Every round starts processes of its own, and measures first without the flood, then with it. In
between it measures with the cores as busy as the flood makes them, but without the flood: what that
costs is the machine's doing, and no bus could help it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import msgspec

from infobus.bench.harness import Worker, company_of
from infobus.bench.model import Bar
from infobus.bench.qos_workers import PAUSE_S, Load, Times, consume, spin, supply
from infobus.bench.statistics import percentile

SPINNING_COUNT = 2
"""A flood keeps two processes busy: its supplier, and a consumer that is quick."""

LOADS = [Load(together=together, slow=slow) for slow in (False, True) for together in (False, True)]

TIMES_MAX = 3.0
ENOUGH_S = 0.020
"""The bar: under flood at most so many times the calm p99, or so long, whichever is more."""

SETTLE_S = 1.0  # until queues and windows are as full as they get
_PATIENCE_S = 5.0  # for the last emergencies


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one round; times in seconds."""

    load: Load
    calm_s: list[float]
    busy_s: list[float]
    """With busy cores, and a calm bus; empty where the flood leaves the cores alone."""
    flood_s: list[float]
    regular_s: list[float]
    """A sample of the flood's own times."""
    regular_per_s: float
    missing: int
    """Emergencies that did not arrive."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one call of `infobus bench qos` found out."""

    machine: dict[str, str]
    found: list[Found]
    bars: list[Bar]


def measure(load: Load, *, seconds: float) -> Found:
    """Measure one load: so many seconds without the flood, and as many with it."""
    spinning = 0 if load.slow else SPINNING_COUNT
    roles = [consume, *[supply] * (1 if load.together else 2), *[spin] * spinning]
    with company_of(roles, load, f"bench-{uuid.uuid4().hex}") as company:
        for worker in company:
            worker.answer()
        consumer, caller = company[:2]
        flooder = company[1 if load.together else 2]
        spinners = company[len(company) - spinning :]
        _call(caller, consumer, 20 * PAUSE_S)  # warms up
        calm, missing = _call(caller, consumer, seconds)
        for spinner in spinners:
            ask(spinner, "spin")
        busy = _call(caller, consumer, seconds)[0].emergency_s if spinners else []
        for spinner in spinners:
            ask(spinner, "rest")
        ask(flooder, "flood")
        time.sleep(SETTLE_S)
        ask(consumer, "times")
        flood, more_missing = _call(caller, consumer, seconds)
    return Found(
        load=load,
        calm_s=calm.emergency_s,
        busy_s=busy,
        flood_s=flood.emergency_s,
        regular_s=flood.regular_s,
        regular_per_s=flood.regular_count / seconds,
        missing=missing + more_missing,
    )


def _call(caller: Worker, consumer: Worker, seconds: float) -> tuple[Times, int]:
    """Have emergencies published; what the consumer saw meanwhile, and how many it did not."""
    sent: int = ask(caller, "emergencies", seconds)
    times: Times = ask(consumer, "times")
    deadline_s = time.monotonic() + _PATIENCE_S
    while len(times.emergency_s) < sent and time.monotonic() < deadline_s:
        time.sleep(0.01)
        times.emergency_s += ask(consumer, "times").emergency_s
    return times, sent - len(times.emergency_s)


def ask(worker: Worker, *order: object) -> Any:
    """Give an order, and await what comes of it."""
    worker.order(order)
    return worker.answer()


def rounds_of(found: Sequence[Found], load: Load) -> list[Found]:
    """What came of a load, round by round."""
    return [one for one in found if one.load == load]


def p99_s(rounds: Sequence[Found], times: Callable[[Found], list[float]]) -> list[float]:
    """The longest time but for the slowest hundredth, in each round that has any."""
    return [percentile(times(one), 0.99) for one in rounds if times(one)]


def judge(found: Sequence[Found]) -> list[Bar]:
    """The bars: of each load, the median of the rounds' p99 under flood; and that none is lost."""
    bars = []
    for load in dict.fromkeys(one.load for one in found):
        rounds = rounds_of(found, load)
        calm_s = p99_s(rounds, lambda one: one.calm_s)
        flood_s = p99_s(rounds, lambda one: one.flood_s)
        limit_s = max(TIMES_MAX * median(calm_s), ENOUGH_S) if calm_s else ENOUGH_S
        bars.append(
            Bar(
                what=f"flood p99, {load.name}",
                measured=median(flood_s) * 1e3 if flood_s else None,
                bar=round(limit_s * 1e3, 1),
                at_least=False,
                unit="ms",
                spread=(min(flood_s) * 1e3, max(flood_s) * 1e3) if flood_s else None,
            )
        )
    missing = sum(one.missing for one in found)
    what = "emergencies that did not arrive"
    return [*bars, Bar(what=what, measured=missing, bar=0, at_least=False, unit="events")]
