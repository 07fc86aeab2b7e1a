"""Rules by which the servers of one subject share the calls; callers can follow them, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal
from zlib import crc32

from infobus.protocols.frames.invocation import Presence

Rule = Literal["elected", "balanced", "primary"]
RULES = ("elected", "balanced", "primary")
"""`elected`: each call has its server, by lot; `balanced`: the least loaded has it; `primary`: the
server of the highest rank has all, and among equals the oldest; the others stand by."""

HOPS_MAX = 3
"""A call that was passed on so often stays where it is."""

Key = tuple[str, int]
"""A server: its node, and its id there."""


def ruled(
    rule: str, servers: Mapping[Key, Presence], lot: str, load: Callable[[Key], int]
) -> Key | None:
    """Return the server that a rule gives a call to; None if no server follows the rule.

    >>> old, new = (Presence(1, 0, "a", "server", t, rule="primary") for t in (1.0, 2.0))
    >>> ruled("primary", {("n", 1): new, ("m", 1): old}, "", lambda key: 0)
    ('m', 1)
    """
    group = [key for key, presence in servers.items() if presence.rule == rule]
    if not group:
        return None
    if rule == "elected":
        return max(group, key=lambda key: (crc32(f"{lot}/{key}".encode()), key))
    if rule == "balanced":
        return min(group, key=lambda key: (load(key), key))
    return min(group, key=lambda key: (-servers[key].rank, servers[key].since, key))
