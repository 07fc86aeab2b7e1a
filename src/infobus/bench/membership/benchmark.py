"""`infobus bench members`: what membership costs a node, and how soon all know of a failure.

Each member is a process on this host. Costs are processor time and bytes of a member beside those
of the same process before it is one. Failures are real: `kill -9` and `SIGSTOP`, of the leader and
of others, and where hosts can be made, their ports go down (`ports`). The clock of all processes is
the host's monotonic one.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import Struct
from rich.table import Table

import infobus
from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings
from infobus.bench.common.processes import WorkerProcess
from infobus.bench.common.rounds import OnStep, ignore_step, percentile
from infobus.bench.common.tables import table_of
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.errors import EngineError
from infobus.patience import Patience
from infobus.testing.hosts import what_is_missing

HEARTBEATS_S = (1.0, 0.3, 0.1)
COUNTS = (3, 5)
FAILING_S = 0.3
"""The heartbeat while members fail."""
SETTLE_S_MAX = 60.0
_SURE = 0.99  # of the failures have to be known in time
_IN_TIME = 3.0  # heartbeats


class MembershipLoad(Struct):
    """What a process needs to know to be a member."""

    bus: str
    folder: str
    names: tuple[str, ...]
    heartbeat_s: float
    idle_s: float


class MembershipCost(Struct):
    """What membership costs one node, the leader or another one."""

    count: int
    heartbeat_s: float
    is_leader: bool
    processor: float
    """Part of one processor."""
    bytes_per_s: float
    """Sent, without what the link adds."""


class ToldFailure(Struct):
    """How long it took until all others had been told."""

    kind: str
    heartbeats: float


class _CountedEngine(ZenohEngine):
    """Counts the bytes that it is given."""

    sent_bytes = 0

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send, and count."""
        self.sent_bytes += len(payload)
        super().put(key, payload, control=control, urgency=urgency)


def member(pipe: Connection, what: MembershipLoad, name: str) -> None:
    """Be a member; answer orders about it."""
    engine = _CountedEngine(what.bus, patience=Patience(lease_s=1.0))
    told: list[tuple[float, int, tuple[str, ...]]] = []

    def note(view: object) -> None:
        if isinstance(view, infobus.MembersView):
            told.append((time.monotonic(), view.number, view.members))

    with infobus.connect(what.bus, engine=engine, home=what.folder) as bus:
        before = _idle(engine, what.idle_s)
        role = infobus.MembershipRole(
            bus,
            heartbeat_s=what.heartbeat_s,
            founders=what.names,
            state=Path(what.folder) / name,
            name=name,
        )
        if not what.idle_s:
            bus.on_members(note)
        pipe.send(os.getpid())
        while (order := pipe.recv()) is not None:
            match order:
                case ("told",):
                    pipe.send(told)
                case ("now",):
                    pipe.send((role.is_stable, role.members, role.id))
                case ("cost",):
                    after = _idle(engine, what.idle_s)
                    is_leader = role.members[:1] == (role.id,)
                    pipe.send((is_leader, after[0] - before[0], after[1] - before[1]))


def _idle(engine: _CountedEngine, seconds: float) -> tuple[float, float]:
    """Processor time and bytes per second, of this process."""
    begun, sent = time.process_time(), engine.sent_bytes
    time.sleep(seconds)
    spent = time.process_time() - begun
    return spent / max(seconds, 1e-9), (engine.sent_bytes - sent) / max(seconds, 1e-9)


class MembersSite:
    """Some members, each in a process."""

    def __init__(self, what: MembershipLoad) -> None:
        self._what = what
        self.workers: dict[str, WorkerProcess] = {}
        self.pids: dict[str, int] = {}
        for name in what.names:
            self._start(name)
        for name in what.names:
            self.pids[name] = self.workers[name].answer()

    def begin(self, name: str) -> None:
        """Start a member that is not there."""
        self._start(name)
        self.pids[name] = self.workers[name].answer()

    def kill(self, name: str) -> None:
        """End it as `kill -9` does."""
        worker = self.workers.pop(name)
        os.kill(self.pids.pop(name), signal.SIGKILL)
        worker.process.join()
        worker.pipe.close()

    def settle(self) -> None:
        """Wait until all are members of one stable view."""
        deadline_s = time.monotonic() + SETTLE_S_MAX
        while True:
            now = [worker.ask("now") for worker in self.workers.values()]
            views = {members for _, members, _ in now}
            if all(stable for stable, _, _ in now) and len(views) == 1:
                [view] = views
                if len(view) == len(self.workers) == len(self._what.names):
                    return
            if time.monotonic() > deadline_s:
                raise EngineError(f"the members do not agree in {SETTLE_S_MAX} s: {now}")
            time.sleep(0.02)

    def close(self) -> None:
        """End all of them."""
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()

    def _start(self, name: str) -> None:
        self.workers[name] = WorkerProcess(member, self._what, name)


@contextmanager
def site_of(count: int, heartbeat_s: float, idle_s: float = 0.0) -> Iterator[MembersSite]:
    """Members that agree already."""
    names = tuple(f"m{number}" for number in range(count))
    with tempfile.TemporaryDirectory(prefix="infobus-members-") as folder:
        bus = f"bench-{uuid.uuid4().hex[:12]}"
        site = MembersSite(MembershipLoad(bus, folder, names, heartbeat_s, idle_s))
        try:
            site.settle()
            yield site
        finally:
            site.close()


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure costs, then failures."""
    # Imported here because it measures with parts of this module.
    from infobus.bench.membership.ports import measure_ports

    idle_s, failures_count, ports_count = (3.0, 8, 2) if quick else (10.0, 80, 20)
    costs = []
    for done, (count, heartbeat_s) in enumerate((c, h) for c in COUNTS for h in HEARTBEATS_S):
        on_step(f"{count} members", done, len(COUNTS) * len(HEARTBEATS_S))
        costs += measure_cost(count, heartbeat_s, idle_s)
    failures = measure_failures(failures_count, on_step)
    missing = what_is_missing()
    failures += [] if missing else measure_ports(ports_count, on_step)
    times = sorted(one.heartbeats for one in failures)
    share = sum(one <= _IN_TIME for one in times) / len(times)
    what = f"failures known to all within {_IN_TIME:g} heartbeats of {FAILING_S:g} s"
    return Findings(
        name="members",
        tables=[cost_table(costs), failure_table(failures)],
        values={"costs": costs, "failures": failures},
        bars=[Bar(what=what, measured=share, bar=_SURE, unit="of all")],
        left_out={"ports that go down": missing} if missing else {},
        notes=[
            f"{len(times)} failures of 5 members, the slowest after {times[-1]:.2f} heartbeats."
        ],
    )


def measure_cost(count: int, heartbeat_s: float, idle_s: float) -> list[MembershipCost]:
    """What it costs to be the leader, and to be another member."""
    with site_of(count, heartbeat_s, idle_s) as site:
        for worker in site.workers.values():
            worker.order(("cost",))
        found = [worker.answer() for worker in site.workers.values()]
    return [
        MembershipCost(
            count,
            heartbeat_s,
            is_leader,
            sum(one[1] for one in alike) / len(alike),
            sum(one[2] for one in alike) / len(alike),
        )
        for is_leader in (True, False)
        if (alike := [one for one in found if one[0] is is_leader])
    ]


def measure_failures(count: int, on_step: OnStep = ignore_step) -> list[ToldFailure]:
    """Let members fail one after the other, and come back."""
    failures = []
    draw = random.Random(1)
    with site_of(5, FAILING_S) as site:
        for done in range(count):
            on_step("failures", done, count)
            leader = site.workers["m0"].ask("now")[1][0].partition("#")[0]
            others = [name for name in site.workers if name != leader]
            role, how = ("leader", "member")[done % 2], ("killed", "stopped")[done // 2 % 2]
            victim = leader if role == "leader" else draw.choice(others)
            time.sleep(draw.uniform(0, FAILING_S))
            heartbeats = _fail(site, victim, how)
            failures.append(ToldFailure(f"{role} {how}", heartbeats))
            site.settle()
    return failures


def _fail(site: MembersSite, victim: str, how: str) -> float:
    lost = site.workers[victim].ask("now")[2]
    begun_s = time.monotonic()
    if how == "killed":
        site.kill(victim)
    else:
        os.kill(site.pids[victim], signal.SIGSTOP)
    others = [worker for name, worker in site.workers.items() if name != victim]
    last_s = max(_told_s(worker, lost, begun_s) for worker in others)
    if how == "killed":
        site.begin(victim)
    else:
        os.kill(site.pids[victim], signal.SIGCONT)
    return (last_s - begun_s) / FAILING_S


def _told_s(worker: WorkerProcess, lost: str, begun_s: float) -> float:
    """When a member was told of a view without the lost one."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < deadline_s:
        for told_s, _, members in worker.ask("told"):
            if told_s > begun_s and lost not in members:
                return float(told_s)
        time.sleep(0.02)
    raise EngineError(f"a failure was not noticed in {SETTLE_S_MAX} s")


def cost_table(costs: list[MembershipCost]) -> Table:
    """Costs, by number of members and heartbeat."""
    rows = [
        (
            f"{one.count} members",
            "leader" if one.is_leader else "member",
            f"{one.heartbeat_s:g} s",
            f"{one.processor:.2%}",
            f"{one.bytes_per_s:,.0f}",
        )
        for one in costs
    ]
    numbers = ("heartbeat", "of one processor", "bytes/s sent")
    return table_of("What membership costs a node", ("of", "as"), numbers, rows, grouped=True)


def failure_table(failures: list[ToldFailure]) -> Table:
    """How soon failures were known to all, by kind."""
    rows = []
    for kind in sorted({one.kind for one in failures}):
        times = sorted(one.heartbeats for one in failures if one.kind == kind)
        median = f"{percentile(times, 0.5):.2f}"
        rows.append((kind, str(len(times)), median, f"{times[-1]:.2f}"))
    title = f"Heartbeats of {FAILING_S:g} s until all others were told"
    return table_of(title, ("what",), ("failures", "median", "slowest"), rows)
