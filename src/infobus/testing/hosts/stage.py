"""Runs as the first process of a PID namespace: makes the network of some hosts, and holds it.

Run as `stage.py COUNT PIDFD`. When the process behind PIDFD ends, however it ends, this one ends
too; then the kernel kills every process of the namespace, and the networks and disks go with them.
Nothing has a name outside, so nothing can be left behind.

It is run by its path and uses the standard library only, because it must start quickly.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys

BRIDGE = "infobus0"
PREFIX = "10.88"
NEW_MOUNTS, NEW_NAME, NEW_NETWORK = 0x00020000, 0x04000000, 0x40000000


def hold(name: str, number: int, ready: int, told: int) -> None:
    """In a child: become a host, and wait until the kernel ends it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS | NEW_NAME | NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(name)
    # Shared memory must not cross from host to host.
    run("mount", "-t", "tmpfs", "-o", "mode=1777", "infobus", "/dev/shm")
    run("ip", "link", "set", "lo", "up")
    os.write(ready, b"!")
    os.read(told, 1)  # until the network has a cable to this host
    run("ip", "link", "set", "eth0", "addrgenmode", "none", "up")
    run("ip", "address", "add", f"{address_of(number)}/16", "dev", "eth0")
    run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
    os.write(ready, b"!")
    while True:
        signal.pause()


def address_of(number: int) -> str:
    """The address of a host."""
    return f"{PREFIX}.{number // 250}.{number % 250 + 1}"


def run(*command: str) -> None:
    """Run a tool that must succeed."""
    subprocess.run(command, check=True)


def main() -> None:
    """Make the hosts, say by which processes they are held, and wait for the end."""
    count, life = int(sys.argv[1]), int(sys.argv[2])
    # Programs of hosts whose parents have died become children of this one: nobody waits for them.
    ready, told = os.pipe(), os.pipe()
    run("ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0")
    run("ip", "link", "set", BRIDGE, "up")
    holders = []
    for number in range(count):
        holder = os.fork()
        if not holder:
            hold(f"h{number + 1}", number, ready[1], told[0])
        holders.append(holder)
        os.read(ready[0], 1)
        port = f"h{number + 1}"
        run(
            *("ip", "link", "add", port, "type", "veth"),
            *("peer", "name", "eth0", "netns", str(holder)),
        )
        run("ip", "link", "set", port, "master", BRIDGE, "up")
        os.write(told[1], b"!")
        os.read(ready[0], 1)
    print(json.dumps(holders), flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    select.select([life], [], [])


if __name__ == "__main__":
    main()
