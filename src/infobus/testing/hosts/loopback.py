"""Hosts side by side on loopback: no root and no cuts, but own folders, ports and programs."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infobus.errors import UsageError
from infobus.testing.hosts.guardian import end_all, marked
from infobus.testing.hosts.host import AnyHost, HostGroup

_GUARDIAN = Path(__file__).with_name("guardian.py")
_MARK = "INFOBUS_TEST_HOST"


class LoopbackHost(AnyHost):
    """One of `LoopbackHosts`: its programs share sockets and a home, and no others find them."""

    def __init__(self, name: str, port: int, mark: str, folder: Path) -> None:
        self._mark = f"{_MARK}={mark}-{name};"
        super().__init__(
            name,
            "127.0.0.1",
            port,
            {
                "INFOBUS_SOCKETS": str(folder / name),
                "INFOBUS_HOME": str(folder / name / "home"),
                _MARK: f"{mark}-{name};",
            },
        )

    def popen(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a program on this host; see `AnyHost.popen`."""
        marked = {**self.surroundings(env), _MARK: self.environment[_MARK]}
        return self.kept(subprocess.Popen(command, env=marked, **options))

    def pids(self) -> list[int]:
        """The processes of this host; one that clears its environment is not found."""
        return marked(self._mark)


class LoopbackHosts(HostGroup[LoopbackHost]):
    """So many hosts that share the loopback interface of this machine, on Linux, for any user.

    They have everything of `Hosts` but networks: `cut`, `delay` and the like are missing.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        if not sys.platform.startswith("linux"):
            raise UsageError("LoopbackHosts needs Linux: it looks for programs in /proc")
        self._mark = secrets.token_hex(8)
        # A short path: sockets are in it.
        self._folder = Path(tempfile.mkdtemp(prefix="ibh-"))
        for number, port in enumerate(_free_ports(count)):
            name = f"h{number + 1}"
            (self._folder / name).mkdir()
            self.add(LoopbackHost(name, port, self._mark, self._folder))
        life = os.pidfd_open(os.getpid())
        self._guardian = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(_GUARDIAN)),
                *(str(life), f"{_MARK}={self._mark}-", str(self._folder)),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(life,),
            start_new_session=True,
        )
        os.close(life)

    def close(self) -> None:
        """Kill the programs of all hosts, and remove their folders. Idempotent."""
        end_all(f"{_MARK}={self._mark}-")
        for host in self:
            host.wait_for_end()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._guardian.kill()
        self._guardian.wait()


def _free_ports(count: int) -> list[int]:
    held = []
    try:
        for _ in range(count):
            held.append(socket.create_server(("127.0.0.1", 0)))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
