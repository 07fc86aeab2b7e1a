"""The status of a daemon, and how to ask all daemons of a bus for it."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec
from msgspec import Struct, field

from infobus.engines.base import Engine
from infobus.engines.zenoh.engine import ZenohEngine

TOKEN = "d"
"""The first element of a daemon's token and of the key at which it answers; its node follows."""


class DaemonStatus(Struct, frozen=True, kw_only=True):
    """What a daemon is doing. Newer versions may add fields."""

    node: str
    host: str
    pid: int
    bus: str
    version: str
    """Of infobus."""
    wire: tuple[int, int]
    since: float
    """Wall clock of its start."""
    endpoints: dict[str, str]
    """Those it was given, and what became of each: `listening`, `linked`, or why not."""
    homes: tuple[str, ...]
    ledgers: tuple[str, ...]
    """Those it serves at the moment, because somebody lacks something in them."""
    programs: tuple[str, ...]
    """The nodes of this host and user."""
    peers: tuple[str, ...]
    """All nodes that it sees on the bus."""
    daemons: tuple[str, ...]
    """The other daemons among them."""
    member: str
    """What it is called among the members of the bus."""
    members: tuple[str, ...]
    """The view that it is in, the most senior first."""
    unstable: str
    """Why this view is not stable; empty if it is."""
    types: int
    """How many types of others it has on disk."""
    sent_events: int = 0
    sent_bytes: int = 0
    received_events: int = 0
    received_bytes: int = 0
    lost: int = 0
    complaints: dict[str, str] = field(default_factory=dict)


def ask_daemons(
    bus: str, *, connect: Iterable[str] = (), timeout_s: float = 1.0
) -> list[DaemonStatus]:
    """Ask all daemons of a bus what they are doing; those that do not answer in time are missing.

    Raises:
        EngineError: No session could be opened.
    """
    engine = ZenohEngine(bus, connect=connect)
    engine.open(f"ask-{os.getpid()}-{os.urandom(6).hex()}")
    try:
        return query_daemons(engine, timeout_s)
    finally:
        engine.close()


def query_daemons(engine: Engine, timeout_s: float) -> list[DaemonStatus]:
    """Ask all daemons by an engine that is open; an answer that cannot be read is left out."""
    found: list[DaemonStatus] = []
    for answer in engine.query(f"{TOKEN}/*", b"", timeout_s):
        try:
            found.append(msgspec.json.decode(answer, type=DaemonStatus))
        except msgspec.DecodeError:  # of a version that tells something else
            continue
    return sorted(found, key=lambda one: (one.since, one.node))
