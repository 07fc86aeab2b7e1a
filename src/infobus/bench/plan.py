"""Which scenarios are measured, in which order, and the whole run from start to report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from statistics import median

from infobus.bench.bars import judge
from infobus.bench.harness import measure
from infobus.bench.model import (
    INFOBUS,
    INFOBUS_BATCHED,
    MANY,
    NATS,
    PEERS,
    ZENOH,
    Report,
    Run,
    Scenario,
)
from infobus.bench.peers import missing

SIZES = (16, 256, 1024, 4096, 16_384, 65_536)
FAN_OUTS = (1, 4, 14)
_SERIES = (INFOBUS, INFOBUS_BATCHED, *PEERS)


def quick_scenarios() -> list[Scenario]:
    """What the bars need. Scenarios that are compared stand next to each other."""
    return [
        *(Scenario(engine=engine) for engine in (NATS, INFOBUS, ZENOH, INFOBUS_BATCHED)),
        Scenario(engine=INFOBUS, subjects=MANY),
        Scenario(engine=INFOBUS, subjects=MANY, subscriptions=MANY),
        *(Scenario(engine=engine, kind="round trip") for engine in (INFOBUS, ZENOH)),
        *(Scenario(engine=engine, consumers=14) for engine in (INFOBUS, NATS)),
    ]


def full_scenarios() -> list[Scenario]:
    """The paper's figures 5 to 8 for every engine, and what the bars need besides.

    Raw zenoh is spared the 10,000 subscriptions: it starts a thread for each of them.
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


def run_all(
    scenarios: list[Scenario],
    *,
    repeat: int = 3,
    seconds: float = 1.0,
    on_run: Callable[[Run], None] = lambda run: None,
) -> Report:
    """Measure all scenarios `repeat` times and judge what came out.

    The repetition is the outer loop, so that a minute in which the machine is busy with
    something else spoils one value in each place, and the medians pass over it.
    """
    # Looked at first: afterwards it would show this program's own work.
    facts = machine()
    left_out = {peer: reason for peer in PEERS if (reason := missing(peer))}
    wanted = [scenario for scenario in scenarios if scenario.engine not in left_out]
    runs = []
    for scenario, repetition in in_order(wanted, repeat):
        runs.append(measure(scenario, repetition, seconds))
        on_run(runs[-1])
    import_s = import_seconds()
    return Report(
        machine=facts,
        runs=runs,
        import_s=import_s,
        bars=judge(runs, import_s),
        left_out=left_out,
    )


def in_order(scenarios: list[Scenario], repeat: int) -> Iterator[tuple[Scenario, int]]:
    """Each scenario with the number of its repetition, in the order of measuring."""
    for repetition in range(repeat):
        for scenario in scenarios:
            yield scenario, repetition


def import_seconds(samples: int = 9) -> float:
    """How much longer Python takes to start when it imports infobus: a difference of medians.

    Measured with compiled modules, as an installed package has them, also where the environment
    forbids Python to write any; the first start of each kind compiles them and is not counted.
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


def machine() -> dict[str, str]:
    """What a reader has to know about the machine to make sense of the numbers."""
    facts = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
    }
    for name in ("information-bus", "eclipse-zenoh", "msgspec", "nats-py", "pyzmq"):
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts
