"""What every host of a test can do: start programs, and freeze, thaw or kill all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

_SIGNAL_S = 10.0


class AnyHost(ABC):
    """One host of a test.

    Programs find the bus's sockets and home of their host in `environment`, so nodes of different
    hosts meet by the network alone.
    """

    def __init__(self, name: str, address: str, port: int, environment: Mapping[str, str]) -> None:
        self.name = name
        self.address = address
        self.port = port
        """A port that is free on this host."""
        self.environment = dict(environment)
        self._programs: list[subprocess.Popen[Any]] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.address}>"

    @property
    def endpoint(self) -> str:
        """Where other hosts reach a node of this one that listens there."""
        return f"tcp/{self.address}:{self.port}"

    @abstractmethod
    def popen(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a program on this host, and return it; `options` are those of `subprocess.Popen`.

        What `env` (or else this process's environment) says comes after `environment`: a variable
        that you give there counts.
        """

    @abstractmethod
    def pids(self) -> list[int]:
        """The processes that run on this host now, with those that its programs have started."""

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        check: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program on this host until it ends; like `subprocess.run`.

        Unless `options` say otherwise, its output is returned as text.
        """
        if not {"stdout", "stderr"} & set(options):
            options = {
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                **options,
            }
        with self.popen(command, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(command, process.returncode, out, err)
        if check and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, out, err)
        return done

    def freeze(self) -> None:
        """Stop all programs of this host, as if its processors stood still."""
        self._signal_until(signal.SIGSTOP, lambda: all(map(_is_stopped, self.pids())))

    def thaw(self) -> None:
        """Let them go on."""
        self._signal_until(signal.SIGCONT, lambda: not any(map(_is_stopped, self.pids())))

    def kill(self) -> None:
        """Kill all programs of this host with SIGKILL; returning means that none runs any more."""
        self._signal_until(signal.SIGKILL, lambda: not self.pids())

    def _signal_until(self, number: signal.Signals, is_done: Callable[[], bool]) -> None:
        """Again and again: a program may be starting another one just now."""
        deadline_s = time.monotonic() + _SIGNAL_S
        while True:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if is_done():
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.name}: {number.name} has no effect on {self.pids()}")
            time.sleep(0.005)

    def kept(self, program: subprocess.Popen[Any]) -> subprocess.Popen[Any]:
        """Remember a program that was just started, so that its end can be waited for."""
        self._programs = [one for one in self._programs if one.returncode is None]
        self._programs.append(program)
        return program

    def wait_for_end(self) -> None:
        """Wait until the programs that were started here have ended."""
        for program in self._programs:
            program.wait()

    def surroundings(self, env: Mapping[str, str] | None) -> dict[str, str]:
        """The environment of a program."""
        if env is None:
            return {**os.environ, **self.environment}
        return {**self.environment, **env}


Kind = TypeVar("Kind", bound=AnyHost)


class HostGroup(Generic[Kind]):
    """Hosts in a row. Use it as a context manager, so that nothing is left behind."""

    def __init__(self) -> None:
        self._hosts: list[Kind] = []

    def add(self, host: Kind) -> None:
        """Count a host in."""
        self._hosts.append(host)

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._hosts)

    @overload
    def __getitem__(self, index: int) -> Kind: ...
    @overload
    def __getitem__(self, index: slice) -> list[Kind]: ...
    def __getitem__(self, index: int | slice) -> Kind | list[Kind]:
        return self._hosts[index]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all programs of all hosts, and remove the hosts. Idempotent."""
        raise NotImplementedError


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2].startswith(("T", "t"))
    except OSError:  # it has ended
        return False
