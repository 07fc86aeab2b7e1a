"""Programs on several hosts that work together while hosts, cables, daemons and programs fail."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from infobus.testing.hosts import Hosts, NetworkHost
from tests.chaos import diary
from tests.chaos.arena import Arena, Program, end_quietly
from tests.chaos.checker import SETTLE_S, Apart, Verdict, check

CREWS = (
    ("publisher", "listener", "keeper", "consumer"),
    ("publisher", "listener", "keeper", "consumer"),
    ("publisher", "listener", "keeper", "consumer"),
    ("publisher", "listener", "consumer", "server"),
    ("publisher", "listener", "consumer", "caller"),
)
"""What runs on each host; further hosts begin at the front again."""

FAULT_S = (0.3, 8.0)
"""How long a host or a cable is out of order."""

LINKED_S_MAX = 60.0
"""When all is healed, daemons have so long to find each other."""

SERVANTS = ("daemon", "router")
"""Roles that join others, and keep no diaries."""

HARM = {
    "kill a program": 6,
    "stop a program": 4,
    "end a program": 2,
    "cut two hosts": 4,
    "cut one way": 3,
    "cut off a host": 3,
    "unplug a host": 2,
    "lose packets": 2,
    "freeze a host": 2,
    "kill a host": 1,
    "kill a daemon": 3,
    "freeze a daemon": 2,
}


class Trouble(Struct):
    """A fault of hosts or cables that lasts."""

    hosts: tuple[NetworkHost, ...]
    until_s: float
    undo: Callable[[], None]
    apart: list[frozenset[str]]  # who cannot reach whom
    since_s: float


class Site(Arena, kw_only=True):
    """Hosts, what runs on them, and what is wrong just now."""

    hosts: Hosts
    harms: dict[str, int] = field(default_factory=HARM.copy)  # and how often each comes
    servant: str = ""  # the role of what joins the hosts; one runs on each
    troubles: list[Trouble] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)
    unlinked: dict[tuple[str, str], float] = field(default_factory=dict)  # daemons, since when
    alone: dict[str, float] = field(default_factory=dict)  # lives without a daemon, since when
    heals: int = 0

    def join(self) -> None:
        """Prepare what joins the hosts, before anything runs."""

    def command(self, program: Program) -> list[str]:
        """What fills a place."""
        if program.role != "daemon":
            return Arena.command(self, program)
        assert program.host is not None
        joined = [f"--join={host.endpoint}" for host in self.hosts if host is not program.host]
        return [
            *(sys.executable, "-m", "infobus.cli", "daemon", "run"),
            *("--bus", f"chaos-{self.folder.name}", "--insecure"),
            *(f"--listen={program.host.endpoint}", *joined),
        ]

    def is_up(self, program: Program) -> bool:
        """Whether it has begun to work. Daemons and routers keep no diaries."""
        if program.role not in SERVANTS:
            return Arena.is_up(self, program)
        return program.process is not None and program.process.poll() is None

    def look_after(self, now_s: float) -> None:
        """Heal what was wrong for long enough; programs as in any arena."""
        for trouble in [one for one in self.troubles if one.until_s <= now_s]:
            self._heal(trouble)
        frozen = self._frozen_hosts()
        for program in self.programs:
            if program.host in frozen and program.frozen_until_s:
                program.frozen_until_s = now_s + 1.0  # it goes on with its host
        Arena.look_after(self, now_s)
        for program in self.programs:
            if program.role == "daemon" and program.host is not None:
                self._look_after_daemon(program, program.host.name, now_s)
            elif self.servant == "daemon":
                self._look_after_life(program, now_s)

    def _look_after_life(self, program: Program, now_s: float) -> None:
        """Note who has begun without the daemon, which did not answer, until it is attached."""
        life = program.name.partition(".")[2]
        said = (self.folder / "errors" / program.name).read_text(errors="replace")
        began, _, then = said.partition("; this node goes on without\n")
        if began != said and "by its daemon" not in then:
            self.alone.setdefault(life, now_s)
        elif life in self.alone:
            self.apart.append(Apart(frozenset((life,)), self.alone.pop(life), now_s))

    def _look_after_daemon(self, daemon: Program, host: str, now_s: float) -> None:
        """Note which hosts are out of reach because the daemon here is, or is not linked."""
        is_working = self.is_up(daemon) and not daemon.frozen_until_s
        said = (self.folder / "errors" / daemon.name).read_text(errors="replace")
        for other in self.hosts:
            last = said.rpartition(f" daemon {other.name}-")[2].partition("\n")[0]
            pair = host, other.name
            if is_working and (last.endswith(" is linked") or other.name == host):
                if pair in self.unlinked:
                    self.apart.append(Apart(frozenset(pair), self.unlinked.pop(pair), now_s))
            else:
                self.unlinked.setdefault(pair, now_s)

    def heal(self) -> None:
        """Let everything be as it should."""
        for trouble in list(self.troubles):
            self._heal(trouble)
        self.hosts.heal()
        Arena.heal(self)

    def harm(self, now_s: float) -> None:
        """Do one thing that machines and networks do; nothing if it is not possible just now."""
        names, weights = zip(*self.harms.items(), strict=True)
        name = self.luck.choices(names, weights)[0]
        if self.do(name, now_s, self.luck.uniform(*FAULT_S)):
            self.faults[name] += 1

    def do(self, name: str, now_s: float, for_s: float) -> bool:
        """Do that harm to somebody for so long; whether there was somebody to do it to."""
        what, _, kind = name.split(" ", 2)[0], None, name.rpartition(" ")[2]
        if kind in ("program", *SERVANTS):
            return self._harm_program(what, kind, now_s, for_s)
        busy = {host for trouble in self.troubles for host in trouble.hosts}
        free = [host for host in self.hosts if host not in busy]
        if name in ("cut two hosts", "cut one way", "lose packets"):
            if len(free) < 2:
                return False
            return self._harm_cable(name, *self.luck.sample(free, 2), now_s, for_s)
        return bool(free) and self._harm_host(name, self.luck.choice(free), now_s, for_s)

    def _harm_program(self, what: str, kind: str, now_s: float, for_s: float) -> bool:
        frozen = self._frozen_hosts()
        alive = [
            program
            for program in self.programs
            if (program.role if program.role in SERVANTS else "program") == kind
            and program.process is not None
            and program.process.poll() is None
            and not program.frozen_until_s
            and program.host not in frozen
        ]
        if not alive:
            return False
        program = self.luck.choice(alive)
        assert program.process is not None
        if what == "kill":
            program.process.kill()
        elif what == "end":
            program.process.terminate()
        else:
            program.process.send_signal(signal.SIGSTOP)
            program.frozen_until_s = now_s + min(for_s, 3.0)
        return True

    def _harm_cable(
        self, name: str, one: NetworkHost, other: NetworkHost, now_s: float, for_s: float
    ) -> bool:
        is_loss = name == "lose packets"
        share = self.luck.uniform(0.01, 0.2) if is_loss else 1.0
        self.hosts.lose(one, other, share, one_way=name == "cut one way")
        self.troubles.append(
            Trouble(
                (one, other),
                now_s + for_s,
                lambda: self.hosts.lose(one, other, 0.0),
                [] if is_loss else [frozenset((one.name, other.name))],
                now_s,
            )
        )
        return True

    def _harm_host(self, name: str, host: NetworkHost, now_s: float, for_s: float) -> bool:
        if name == "kill a host":
            host.kill()
            return True
        begin, undo = {
            "cut off a host": (self.hosts.cut, lambda: self.hosts.lose(host, None, 0.0)),
            "unplug a host": (self.hosts.unplug, lambda: self.hosts.plug(host)),
            "freeze a host": (NetworkHost.freeze, host.thaw),
        }[name]
        begin(host)
        pairs = [frozenset((host.name, other.name)) for other in self.hosts]
        # Everybody on a host that stands still is out of reach, also for each other.
        apart = [pair for pair in pairs if len(pair) == 2 or name == "freeze a host"]
        self.troubles.append(Trouble((host,), now_s + for_s, undo, apart, now_s))
        if name == "freeze a host":
            for program in self.programs:
                if program.host is host and not program.frozen_until_s:
                    program.frozen_until_s = now_s + for_s
        return True

    def _heal(self, trouble: Trouble) -> None:
        trouble.undo()
        self.troubles.remove(trouble)
        self.heals += 1
        now_s = time.monotonic()
        for hosts in trouble.apart:
            self.apart.append(Apart(hosts, trouble.since_s, now_s))
        for program in self.programs:
            if program.host in trouble.hosts and program.frozen_until_s:
                program.frozen_until_s = min(program.frozen_until_s, now_s)

    def _frozen_hosts(self) -> set[NetworkHost | None]:
        freezes = [one for one in self.troubles if any(len(pair) == 1 for pair in one.apart)]
        return {host for trouble in freezes for host in trouble.hosts}


SETTINGS = {
    "mesh": 'multicast = "eth0"\ninsecure = true\n',
    "daemons": "",
    "routers": "",
}
"""What the settings file of all programs says, by how the hosts are joined."""

_SERVANTS_OF = {"daemons": "daemon", "routers": "router"}


@contextlib.contextmanager
def site(
    folder: Path,
    seed: int,
    count: int,
    kind: str = "mesh",
    crews: tuple[tuple[str, ...], ...] = CREWS,
    made_of: type[Site] = Site,
) -> Iterator[Site]:
    """So many hosts with everything running on them."""
    for name in ("diaries", "errors"):
        (folder / name).mkdir(parents=True)
    settings = folder / "infobus.toml"
    settings.write_text(SETTINGS[kind])
    with Hosts(count) as hosts:
        made = made_of(
            folder,
            random.Random(seed),
            hosts=hosts,
            servant=_SERVANTS_OF.get(kind, ""),
            settings={"INFOBUS_SETTINGS": str(settings)},
        )
        made.join()
        for host, crew in zip(hosts, itertools.cycle(crews)):
            roles = filter(None, (made.servant, *crew))
            made.programs += [Program(role, f"{host.name}{role[:3]}", host) for role in roles]
        for program in made.programs:
            made.start(program)
        yield made


def judged(made: Site) -> Verdict:
    """Let everything come to rest, and judge it."""
    made.heal()
    begun_s = time.monotonic()
    while (took_s := time.monotonic() - begun_s) < SETTLE_S or made.unlinked:
        made.look_after(time.monotonic())  # what was started last has work to do
        time.sleep(0.1)
        if took_s > LINKED_S_MAX:
            made.crashes.append(f"not linked again after {took_s:.0f} s: {[*made.unlinked]}")
            break
    end_quietly(made)
    made.apart += [Apart(frozenset((life,)), at, math.inf) for life, at in made.alone.items()]
    apart = sorted(made.apart, key=lambda one: one.since)
    (made.folder / "apart.json").write_bytes(msgspec.json.encode(apart))  # to judge it again
    verdict = check(made.folder / "diaries", apart)
    verdict.violations += made.crashes
    verdict.figures["heals"] = made.heals
    pairs = [one for one in made.apart if len(one.hosts) == 2]
    longest_s = max((one.until - one.since for one in pairs), default=0.0)
    verdict.figures["seconds that two hosts were apart, at most"] = round(longest_s)
    return verdict


def fight(
    folder: Path,
    seed: int,
    count: int,
    kind: str,
    fault_count: int,
    made_of: type[Site] = Site,
) -> tuple[Verdict, Counter[str]]:
    """Let the programs work until so many faults have been done, then heal and judge."""
    with site(folder, seed, count, kind, made_of=made_of) as made:
        made.heal()
        while made.faults.total() < fault_count:
            now_s = time.monotonic()
            made.look_after(now_s)
            if made.luck.random() < 0.15:
                made.harm(now_s)
            time.sleep(0.1)
        return judged(made), made.faults


def silences_s(made: Site) -> dict[str, float]:
    """For each two programs that were apart: how long after the end of it the one heard the other.

    Only of programs that lived through it.
    """
    lives: dict[str, dict[str, list[dict[str, Any]]]] = {"listener": {}, "publisher": {}}
    for path in (made.folder / "diaries").iterdir():
        role, _, life = path.name.partition(".")
        if role in lives and (lines := [*diary.read(path)]):
            lives[role][life] = lines
    found = {}
    for one in made.apart:
        for listener, heard in lives["listener"].items():
            for publisher, said in lives["publisher"].items():
                hosts = {heard[0]["host"], said[0]["host"]}
                was_there = max(heard[0]["at"], said[0]["at"]) < one.since - SETTLE_S / 2
                if hosts != one.hosts or len(hosts) == 1 or not was_there:
                    continue
                got = (
                    line["at"] - one.until
                    for line in heard
                    if line["what"] == "got" and line["by"] == publisher and line["at"] > one.until
                )
                silence_s = next(got, math.inf)
                # Who was killed soon after may not have heard any more.
                if min(heard[-1]["at"], said[-1]["at"]) > one.until + min(silence_s, SETTLE_S):
                    found[f"{listener} of {publisher} at {one.since:.0f}"] = silence_s
    return found
