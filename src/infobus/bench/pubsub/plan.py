"""Which scenarios are measured, and in which order."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median

from infobus.bench.common.engines import INFOBUS, INFOBUS_BATCHED, NATS, ZENOH
from infobus.bench.pubsub.scenario import MANY, PEERS, Scenario

SIZES = (16, 256, 1024, 4096, 16_384, 65_536)
FAN_OUTS = (1, 4, 14)
_SERIES = (INFOBUS, INFOBUS_BATCHED, *PEERS)


def quick_scenarios() -> list[Scenario]:
    """What the bars need. Scenarios that are compared follow each other."""
    return [
        *(Scenario(engine=engine) for engine in (NATS, INFOBUS, ZENOH, INFOBUS_BATCHED)),
        Scenario(engine=INFOBUS, subjects=MANY),
        Scenario(engine=INFOBUS, subjects=MANY, subscriptions=MANY),
        *(Scenario(engine=engine, kind="round trip") for engine in (INFOBUS, ZENOH)),
        *(Scenario(engine=engine, consumers=14) for engine in (INFOBUS, NATS)),
    ]


def full_scenarios() -> list[Scenario]:
    """The paper's figures 5 to 8 for every engine, and what else the bars need.

    Raw zenoh has no scenario with 10,000 subscriptions: it would start a thread for each.
    """
    rates = [
        Scenario(engine=engine, size=size, consumers=consumers)
        for consumers in FAN_OUTS
        for size in SIZES
        for engine in _SERIES
    ]
    many_subjects = [
        Scenario(engine=engine, size=size, consumers=14, subjects=MANY)
        for size in SIZES
        for engine in _SERIES
    ]
    many_subscriptions = [
        Scenario(engine=engine, subjects=MANY, subscriptions=subscriptions)
        for subscriptions in (1, MANY)
        for engine in _SERIES
        if engine != ZENOH or subscriptions == 1
    ]
    round_trips = [
        Scenario(engine=engine, kind="round trip", size=size, consumers=consumers)
        for consumers in (1, 14)
        for size in SIZES
        for engine in (INFOBUS, *PEERS)
    ]
    everything = rates + many_subscriptions + round_trips + many_subjects + quick_scenarios()
    return list(dict.fromkeys(everything))


def in_order(scenarios: list[Scenario], repeat: int) -> Iterator[tuple[Scenario, int]]:
    """Each scenario with the number of its repetition, in the order of measuring.

    The repetition is the outer loop. A minute in which the machine is busy then spoils one value
    of many scenarios, not all values of one, and the medians pass over it.
    """
    for repetition in range(repeat):
        for scenario in scenarios:
            yield scenario, repetition


def import_seconds(samples: int = 9) -> float:
    """How much longer Python takes to start when it imports infobus: a difference of medians.

    Modules are compiled, as in an installed package, even where the environment forbids Python to
    write them. The first start of each kind compiles them and does not count.
    """
    took_s: dict[str, list[float]] = {"pass": [], "import infobus": []}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(1 + samples):
            for code, times_s in took_s.items():
                began_s = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, env=environment)
                times_s.append(time.perf_counter() - began_s)
    return median(took_s["import infobus"][1:]) - median(took_s["pass"][1:])
