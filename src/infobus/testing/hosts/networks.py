"""Hosts as network namespaces, each with a `/dev/shm` of its own, on one bridge. Needs root.

The hosts live in a PID namespace whose first process (`stage`) ends with this one, so the kernel
removes everything, also after `kill -9`. The machine's own network sees nothing of it: the bridge
stands in a namespace, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from infobus.errors import UsageError
from infobus.testing.hosts.host import AnyHost, HostGroup

PORT = 7447
_NEW_PIDS = 0x20000000
_TOOLS = ("ip", "nft", "nsenter", "unshare", "mount", "env")
_STAGE, _WIRE = (Path(__file__).with_name(name) for name in ("stage.py", "wire.py"))
_PACKAGES = "On Debian: apt-get install iproute2 nftables util-linux"
_IN_FULL = 1.0  # a cut is a loss of everything


def what_is_missing() -> str:
    """Why there can be no `Hosts` here; empty if there can.

    For `pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())`.
    """
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing:
        return f"network namespaces need {', '.join(missing)}. {_PACKAGES}"
    try:
        tried = subprocess.run(
            ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "nft", "list", "tables"],
            capture_output=True,
            text=True,
            timeout=20.0,
        )
    except subprocess.TimeoutExpired:
        return "network namespaces cannot be made here: `unshare` does not return"
    return f"network namespaces cannot be made here: {tried.stderr}" if tried.returncode else ""


class Traffic(NamedTuple):
    """What has gone through the network port of a host since it was made."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


class NetworkHost(AnyHost):
    """One of `Hosts`: a network namespace with a name, a `/dev/shm` and a home of its own."""

    def __init__(self, number: int, address: str, stage: int, holder: str, home: Path) -> None:
        name = f"h{number + 1}"
        super().__init__(
            name,
            address,
            PORT,
            {"INFOBUS_SOCKETS": "/dev/shm", "INFOBUS_HOME": str(home)},
        )
        self._stage = stage
        self._holder = holder
        self._network = os.readlink(f"{holder}/ns/net")
        self._hidden: set[int] = set()
        self._hidden = set(self.pids())  # what holds the host, which is no program of it

    def popen(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Start a program on this host; see `AnyHost.popen`."""
        enter = [f"--{kind}={self._holder}/ns/{short}" for kind, short in _KINDS.items()]
        # Entering another tree of mounts loses the working directory.
        there = ["env", f"--chdir={os.path.abspath(cwd or os.getcwd())}"]
        with _children_in(self._stage):
            program = subprocess.Popen(
                ["nsenter", *enter, "--", *there, *command],
                env=self.surroundings(env),
                **options,
            )
        return self.kept(program)

    def pids(self) -> list[int]:
        """The processes of this host."""
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{entry.name}/ns/net") == self._network:
                        found.append(int(entry.name))
        return [pid for pid in found if pid not in self._hidden]

    def outside(self, path: str | os.PathLike[str]) -> Path:
        """Where this process finds what programs of the host find under the absolute `path`."""
        return Path(self._holder, "root", *Path(path).parts[1:])

    def traffic(self) -> Traffic:
        """What has gone through the port so far; not what took a way with a delay."""
        told = json.loads(self.within("ip", "-json", "-stats", "link", "show", "eth0"))
        sent, received = (told[0]["stats64"][way] for way in ("tx", "rx"))
        return Traffic(sent["bytes"], received["bytes"], sent["packets"], received["packets"])

    def within(self, *command: str, told: str = "") -> str:
        """Run a tool in this host's network, and return what it printed."""
        return _run("nsenter", f"--net={self._holder}/ns/net", *command, told=told)

    @property
    def hardware_address(self) -> str:
        """That of its port."""
        link = json.loads(self.within("ip", "-json", "link", "show", "eth0"))
        return str(link[0]["address"])


_KINDS = {"net": "net", "mount": "mnt", "uts": "uts"}


class Hosts(HostGroup[NetworkHost]):
    """So many hosts on one network, with faults at will.

    Args:
        count: How many hosts.
        homes: A folder for their homes; else each has one in its `/dev/shm`, which goes with it.

    Raises `UsageError` if there can be none here; `what_is_missing` says so beforehand.
    """

    def __init__(self, count: int, homes: Path | None = None) -> None:
        super().__init__()
        if missing := what_is_missing():
            raise UsageError(missing)
        if not 1 <= count <= 1000:
            raise UsageError(f"Hosts({count}): expected 1 to 1000")
        self._losses: dict[tuple[str, str], float] = {}
        self._wires: dict[tuple[NetworkHost, NetworkHost], subprocess.Popen[str]] = {}
        self._stage = _start_stage(count)
        try:
            self._begin(homes)
        except BaseException:
            self.close()
            raise

    def _begin(self, homes: Path | None) -> None:
        assert self._stage.stdout is not None
        told = self._stage.stdout.readline()
        if not told:
            raise UsageError("the hosts could not be made; see what was written to stderr")
        for number, holder in enumerate(json.loads(told)):
            home = (homes or Path("/dev/shm")) / (f"home-h{number + 1}" if homes else "home")
            inside = os.path.join(f"/proc/{self._stage.pid}", "root", "proc", str(holder))
            address = _address_of(number)
            self.add(NetworkHost(number, address, self._stage.pid, inside, home))

    def cut(self, one: AnyHost, other: AnyHost | None = None, *, one_way: bool = False) -> None:
        """Let nothing pass between two hosts, or between one and all others.

        With `one_way`, only what `one` sends is lost. Connections stay open, and are silent.
        """
        self.lose(one, other, _IN_FULL, one_way=one_way)

    def lose(
        self, one: AnyHost, other: AnyHost | None, share: float, *, one_way: bool = False
    ) -> None:
        """Lose this share of all packets between them, at random; 0 heals.

        A packet of a connection that was made before may be large.
        """
        if not 0.0 <= share <= 1.0:
            raise UsageError(f"share={share!r}: expected a number from 0 to 1")
        others = [host for host in self if host is not one] if other is None else [other]
        changed = {host.name for host in others}
        if 0.0 < share < _IN_FULL:
            # Otherwise connections hand over some 64 KB at a time, and these count as one packet.
            for each in self:
                each.within("ip", "link", "set", "eth0", "gso_max_segs", "1")
        for host in others:
            self._losses[one.name, host.name] = share
            if not one_way:
                self._losses[host.name, one.name] = share
                changed.add(one.name)
        for host in self:
            if host.name in changed:
                self._filter(host)

    def unplug(self, host: NetworkHost) -> None:
        """Put the network port of a host down: it sees at once that it has no carrier."""
        self._at_switch("ip", "link", "set", host.name, "down")

    def plug(self, host: NetworkHost) -> None:
        """Put it up again."""
        self._at_switch("ip", "link", "set", host.name, "up")

    def delay(self, one: NetworkHost, other: NetworkHost, delay_s: float) -> None:
        """Let every frame between two hosts take so long, one way; 0 ends it.

        Connections that exist stay, and become slow. Such a way carries some ten thousand frames a
        second.
        """
        if not (math.isfinite(delay_s) and delay_s >= 0):
            raise UsageError(f"delay_s={delay_s!r}: expected a number from 0")
        pair = (one, other) if one.name < other.name else (other, one)
        if wire := self._wires.pop(pair, None):
            wire.kill()
            wire.communicate()
        if delay_s:
            self._wires[pair] = self._wire(pair, delay_s)
        rules = [
            f"iifname {near.name} oifname {far.name} drop\n"
            for ends in self._wires
            for near, far in (ends, ends[::-1])
        ]
        self._at_switch("nft", "-f", "-", told=_ruleset("bridge", "forward", rules))

    def _wire(self, pair: tuple[NetworkHost, NetworkHost], delay_s: float) -> subprocess.Popen[str]:
        ends = [text for host in pair for text in (host.name, host.hardware_address)]
        with _children_in(self._stage.pid):
            wire = subprocess.Popen(
                [
                    *("nsenter", f"--net=/proc/{self._stage.pid}/ns/net"),
                    *(sys.executable, "-I", "-S", str(_WIRE), str(delay_s), *ends),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert wire.stdout is not None
        if not wire.stdout.readline():
            raise UsageError("the delay could not be made; see what was written to stderr")
        return wire

    def heal(self) -> None:
        """Undo cuts, losses, unplugged ports and freezes. Delays stay."""
        self._losses.clear()
        for host in self:
            self._filter(host)
            self.plug(host)
            host.thaw()

    def close(self) -> None:
        """Kill everything, and let the kernel remove the networks. Idempotent."""
        self._stage.kill()
        for wire in self._wires.values():
            wire.communicate()
        self._wires.clear()
        for host in self:
            host.wait_for_end()
        self._stage.communicate()  # the first process of a namespace is the last to end

    def _filter(self, host: NetworkHost) -> None:
        """Have the kernel drop at a host what it must not get."""
        rules = []
        for sender in self:
            share = self._losses.get((sender.name, host.name), 0.0)
            if share:
                dice = f"numgen random mod 1000000 < {round(share * 1_000_000)} "
                rules.append(f"ip saddr {sender.address} {'' if share == _IN_FULL else dice}drop\n")
        host.within("nft", "-f", "-", told=_ruleset("ip", "input", rules))

    def _at_switch(self, *command: str, told: str = "") -> None:
        _run("nsenter", f"--net=/proc/{self._stage.pid}/ns/net", *command, told=told)


def _start_stage(count: int) -> subprocess.Popen[str]:
    life = os.pidfd_open(os.getpid())
    try:
        with _children_in(None):
            return subprocess.Popen(
                [
                    *("unshare", "--net", "--mount", "--uts", "--mount-proc", "--"),
                    *(sys.executable, "-I", "-S", str(_STAGE), str(count), str(life)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=(life,),
                start_new_session=True,  # Ctrl-C is for the test, which then closes
            )
    finally:
        os.close(life)


def _ruleset(family: str, hook: str, rules: Sequence[str]) -> str:
    """What `nft` is told so that these rules, and no others, hold."""
    table = f"table {family} infobus"
    chain = f"chain faults {{\ntype filter hook {hook} priority 0;\n{''.join(rules)}}}\n"
    return f"add {table}\ndelete {table}\n{table} {{\n{chain}}}\n"


def _address_of(number: int) -> str:
    return f"10.88.{number // 250}.{number % 250 + 1}"


def _run(*command: str, told: str = "") -> str:
    done = subprocess.run(command, input=told, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}\n{told}".strip())
    return done.stdout


@contextlib.contextmanager
def _children_in(stage: int | None) -> Iterator[None]:
    """Have the children of this thread start in the PID namespace of `stage`, or in a new one.

    They stay children of this process, with pids and signals as it knows them.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: Any, *arguments: int) -> None:
        if function(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"PID namespace: {os.strerror(number)}")

    with contextlib.ExitStack() as stack:
        here = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, here)
        if stage is None:
            call(libc.unshare, _NEW_PIDS)
        else:
            there = os.open(f"/proc/{stage}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, there)
            call(libc.setns, there, _NEW_PIDS)
        stack.callback(call, libc.setns, here, _NEW_PIDS)
        yield
