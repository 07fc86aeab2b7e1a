"""How soon all know of a host whose network port is down: daemons on hosts of their own.

A port that is down ends no process and no connection: nobody is told of it, so heartbeats alone
have to find out. Told are programs, one on each of the other hosts.
"""

from __future__ import annotations

import random
import time

from infobus.bench.common.rounds import OnStep, ignore_step
from infobus.bench.hosts.site import DAEMONS, HostProgram, HostSite, host_site
from infobus.bench.membership.benchmark import FAILING_S, SETTLE_S_MAX, ToldFailure
from infobus.errors import EngineError

_COUNT = 5


def measure_ports(count: int, on_step: OnStep = ignore_step) -> list[ToldFailure]:
    """Put the ports of hosts down, one after the other, and up again. Needs root."""
    draw = random.Random(1)
    names = [f"h{number + 1}" for number in range(_COUNT)]
    options = [f"--heartbeat={FAILING_S}", *(f"--founder={name}" for name in names)]
    failures = []
    with host_site(_COUNT, DAEMONS, *options) as site:
        programs = {host.name: site.start(host, 1)[0] for host in site.hosts}
        for program in programs.values():
            program.ask("follow")
        _settle(programs)
        for done in range(count):
            on_step("ports", done, count)
            leader = _names(programs["h1"].ask("views")[-1][1])[0]
            others = [name for name in names if name != leader]
            victim = leader if done % 2 == 0 else draw.choice(others)
            time.sleep(draw.uniform(0, FAILING_S))
            heartbeats = _fail(site, programs, victim)
            role = "leader" if victim == leader else "member"
            failures.append(ToldFailure(f"{role} without port", heartbeats))
            _settle(programs)
    return failures


def _fail(site: HostSite, programs: dict[str, HostProgram], victim: str) -> float:
    host = next(one for one in site.hosts if one.name == victim)
    begun_s = time.monotonic()
    site.hosts.unplug(host)
    try:
        told = [
            _told_s(program, victim, begun_s)
            for name, program in programs.items()
            if name != victim
        ]
    finally:
        site.hosts.plug(host)
    return (max(told) - begun_s) / FAILING_S


def _told_s(program: HostProgram, victim: str, begun_s: float) -> float:
    """When a program was told of a view without that host."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < deadline_s:
        for told_s, members in program.ask("views"):
            if told_s > begun_s and victim not in _names(members):
                return float(told_s)
        time.sleep(0.02)
    raise EngineError(f"{victim} was not missed in {SETTLE_S_MAX} s")


def _settle(programs: dict[str, HostProgram]) -> None:
    """Wait until all were told of the same view of all hosts, and it lasts."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    same_since_s = time.monotonic()
    while time.monotonic() - same_since_s < 10 * FAILING_S:
        views = [program.ask("views")[-1:] for program in programs.values()]
        members = {tuple(view[0][1]) if view else () for view in views}
        if len(members) > 1 or len(next(iter(members))) < len(programs):
            same_since_s = time.monotonic()
        if time.monotonic() > deadline_s:
            raise EngineError(f"the hosts do not agree in {SETTLE_S_MAX} s: {members}")
        time.sleep(0.05)


def _names(members: list[str]) -> list[str]:
    return [member.partition("#")[0] for member in members]
