"""Some hosts with programs and, if asked for, a daemon on each; and what they use up."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from infobus.errors import EngineError
from infobus.testing.hosts import Hosts, NetworkHost

MESH, DAEMONS = KINDS = ("mesh", "daemons")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SETTINGS = {MESH: 'multicast = "eth0"\ninsecure = true\n', DAEMONS: ""}
_DAEMON_S = 30.0


class HostProgram:
    """Our end of a worker."""

    def __init__(self, host: NetworkHost, bus: str, environment: dict[str, str]) -> None:
        self._process = host.popen(
            [sys.executable, "-m", "infobus.bench.hosts.worker", bus],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def order(self, *order: Any) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the next answer; the first is the name of its node."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"a program of the benchmark ended with {self._process.wait()}")
        return json.loads(line)

    def ask(self, *order: Any) -> Any:
        """Give an order and wait for its answer."""
        self.order(*order)
        return self.answer()

    def end(self) -> None:
        """Have it leave the bus, and wait until it has."""
        self._process.communicate()


class SiteUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a host used in a while."""

    cpu_s: float
    """Processor time of its programs and its daemon."""
    sent_bytes: int
    """Through its network port."""
    wall_s: float


class HostSite:
    """Hosts of a benchmark."""

    def __init__(self, hosts: Hosts, kind: str, folder: Path) -> None:
        self.hosts = hosts
        self._bus = f"bench-{uuid.uuid4().hex}"
        settings = folder / "infobus.toml"
        settings.write_text(_SETTINGS[kind])
        ours = {k: v for k, v in os.environ.items() if not k.startswith("INFOBUS_")}
        self._environment = ours | {"INFOBUS_SETTINGS": str(settings)}

    def start_daemons(self, *options: str) -> None:
        """Start a daemon on each host, and wait until each shows itself."""
        for host in self.hosts:
            joined = [f"--join={other.endpoint}" for other in self.hosts if other is not host]
            host.popen(
                [
                    *(sys.executable, "-m", "infobus.cli", "daemon", "run", "--bus", self._bus),
                    *("--insecure", f"--listen={host.endpoint}", *joined, *options),
                ],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        for host in self.hosts:
            self._wait_for_daemon(host)

    def _wait_for_daemon(self, host: NetworkHost) -> None:
        deadline_s = time.monotonic() + _DAEMON_S
        status = [sys.executable, "-m", "infobus.cli", "daemon", "status", "--bus", self._bus]
        while host.run(status, env=self._environment).returncode:
            if time.monotonic() > deadline_s:
                raise EngineError(f"{host.name} has no daemon after {_DAEMON_S:g} s")
            time.sleep(0.2)

    def start(self, host: NetworkHost, count: int) -> list[HostProgram]:
        """Start so many programs on a host; returning means that they are on the bus."""
        programs = [HostProgram(host, self._bus, self._environment) for _ in range(count)]
        for program in programs:
            program.answer()
        return programs

    @contextlib.contextmanager
    def measured(self, into: list[SiteUse], hosts: Sequence[NetworkHost]) -> Iterator[None]:
        """Add what each of these hosts uses within it."""
        before = [(_cpu_s(host), host.traffic().sent_bytes) for host in hosts]
        begun_s = time.monotonic()
        yield
        wall_s = time.monotonic() - begun_s
        for host, (cpu_s, sent) in zip(hosts, before, strict=True):
            used = SiteUse(
                cpu_s=_cpu_s(host) - cpu_s,
                sent_bytes=host.traffic().sent_bytes - sent,
                wall_s=wall_s,
            )
            into.append(used)


@contextlib.contextmanager
def host_site(count: int, kind: str, *options: str) -> Iterator[HostSite]:
    """So many hosts, of one kind; with daemons, each has one, which gets these options."""
    with TemporaryDirectory(prefix="infobus-bench-") as folder, Hosts(count) as hosts:
        site = HostSite(hosts, kind, Path(folder))
        if kind == DAEMONS:
            site.start_daemons(*options)
        yield site


def _cpu_s(host: NetworkHost) -> float:
    return sum(map(cpu_s_of, host.pids()))


def cpu_s_of(pid: int) -> float:
    """Processor time of a process until now; 0 if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return 0.0
