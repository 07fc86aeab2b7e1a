"""Sites on hosts of their own, joined by routers; and what the routers use up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infobus.bench.hosts.site import HostProgram, cpu_s_of
from infobus.errors import EngineError
from infobus.testing.hosts import HostRouters, Hosts

_AGREEMENT = "[[agreement]]\n"
_LINKED_S = 60.0


class RoutedSites:
    """Hosts with a bus and a router each; without links, one host without a router."""

    def __init__(self, hosts: Hosts, links: Sequence[tuple[int, int]], folder: Path, said: str):
        (folder / "infobus.toml").write_text("")
        ours = {k: v for k, v in os.environ.items() if not k.startswith("INFOBUS_")}
        self._environment = ours | {"INFOBUS_SETTINGS": str(folder / "infobus.toml")}
        self._hosts = hosts
        self._routers = HostRouters(
            f"bench-{uuid.uuid4().hex[:8]}",
            [(hosts[one], hosts[other]) for one, other in links],
            folder,
            said + _AGREEMENT,
            self._environment,
        )
        self._processes: dict[int, subprocess.Popen[Any]] = {}
        if links:
            for number in range(len(hosts)):
                self._start(number)
            self._wait_until_linked()

    def program(self, at: int) -> HostProgram:
        """Start a program at a site; returning means that it is on the bus there."""
        host = self._hosts[at]
        program = HostProgram(host, self._routers.bus(host), self._environment)
        program.answer()
        return program

    def sent(self, at: int) -> dict[str, int]:
        """How many bytes of events the router of a site has sent to each neighbour."""
        links = self._routers.ask(self._hosts[at], "status")["neighbours"]
        return {link["name"]: link["sent_bytes"] for link in links}

    def number_of(self, router: str) -> int:
        """The site of a router."""
        return next(at for at, host in enumerate(self._hosts) if router.endswith(host.name))

    def routers_cpu_s(self) -> float:
        """Processor time of all routers until now."""
        return sum(cpu_s_of(process.pid) for process in self._processes.values())

    def kill(self, at: int) -> None:
        """End the router of a site as `kill -9` does."""
        self._processes[at].send_signal(signal.SIGKILL)
        self._processes[at].wait()

    def freeze(self, at: int) -> None:
        """Stop the router of a site: its links stay open, and are silent."""
        self._processes[at].send_signal(signal.SIGSTOP)

    def mend(self, at: int) -> None:
        """Let a router that was killed or frozen go on, and wait until it is linked."""
        if self._processes[at].poll() is None:
            self._processes[at].send_signal(signal.SIGCONT)
        else:
            self._start(at)
        self._wait_until_linked()

    def _start(self, at: int) -> None:
        self._processes[at] = self._routers.start(
            self._hosts[at], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _wait_until_linked(self) -> None:
        deadline_s = time.monotonic() + _LINKED_S
        for host in self._hosts:
            while not self._is_linked(self._routers.ask(host, "status")):
                if time.monotonic() > deadline_s:
                    raise EngineError(f"the router of {host.name} has not found all others")
                time.sleep(0.2)

    def _is_linked(self, status: Any) -> bool:
        return status is not None and (
            len(status["routers"]) == len(self._hosts) - 1
            and all(one["is_up"] for one in status["neighbours"])
        )


@contextlib.contextmanager
def routed_sites(
    count: int, links: Sequence[tuple[int, int]], settings: str = ""
) -> Iterator[RoutedSites]:
    """So many sites, numbered from 0, of which those of a pair are linked."""
    with TemporaryDirectory(prefix="infobus-bench-") as folder, Hosts(count) as hosts:
        yield RoutedSites(hosts, links, Path(folder), settings)
