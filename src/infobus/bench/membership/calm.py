"""`infobus bench calm`: whether members exclude each other although nobody fails.

Five members, each a process, while every processor has more to do than it can: what fails here is
the patience of the protocol, not a machine.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.rounds import OnStep, ignore_step, percentile
from infobus.bench.common.tables import table_of
from infobus.bench.membership.benchmark import MembersSite, site_of

HEARTBEAT_S = 1.0
COUNT = 5
QUICK_S, FULL_S = 30.0, 1800.0
_LOOK_S = 1.0


class Calm(Struct):
    """What happened to members that lived all the time."""

    seconds: float
    excluded: int
    """Members that were left out of a view."""
    looks: int
    unstable: int
    """Looks at which some member did not take its view for stable."""
    loads: list[float]
    """Processes that wanted a processor, one number for each look."""


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Watch members beside twice as many busy processes as there are processors."""
    seconds = QUICK_S if quick else FULL_S
    with busy_processes(2 * len(os.sched_getaffinity(0))):
        calm = measure_calm(seconds, on_step)
    minutes = f"{seconds / 60:g} minutes"
    row = (
        minutes,
        str(calm.excluded),
        f"{calm.unstable} of {calm.looks}",
        f"{percentile(calm.loads, 0.5):.0f}, {min(calm.loads):.0f} to {max(calm.loads):.0f}",
    )
    numbers = ("excluded", "looks that saw one unstable", "load")
    title = f"{COUNT} members, a heartbeat of {HEARTBEAT_S:g} s, nobody fails"
    return Findings(
        name="calm",
        tables=[table_of(title, ("watched for",), numbers, [row])],
        values={"calm": calm},
        bars=[
            Bar(
                what=f"members excluded in {minutes}",
                measured=calm.excluded,
                bar=0,
                at_least=False,
                unit="members",
            )
        ],
    )


def measure_calm(seconds: float, on_step: OnStep = ignore_step) -> Calm:
    """Watch members for so long."""
    with site_of(COUNT, HEARTBEAT_S) as site:
        calm = Calm(seconds, 0, 0, 0, [])
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            on_step("calm", calm.looks, round(seconds / _LOOK_S))
            time.sleep(_LOOK_S)
            calm.looks += 1
            calm.unstable += not all(worker.ask("now")[0] for worker in site.workers.values())
            calm.loads.append(os.getloadavg()[0])
        calm.excluded = excluded(site)
    return calm


def excluded(site: MembersSite) -> int:
    """How often a member of one view was none of the next, as the members were told."""
    told = max((worker.ask("told") for worker in site.workers.values()), key=len)
    views = [members for _, _, members in told]
    return sum(len({*before} - {*after}) for before, after in pairwise(views))


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    busy = [multiprocessing.get_context("spawn").Process(target=_compute) for _ in range(count)]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.join()


def _compute() -> None:
    while True:
        sum(range(10_000))
