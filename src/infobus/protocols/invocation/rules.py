"""Rules by which the servers of one subject share the calls; callers can follow them, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Literal

from infobus.protocols.frames.invocation import Presence

Rule = Literal["elected", "balanced", "primary"]
BALANCED: Rule = "balanced"
RULES = ("elected", BALANCED, "primary")
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
        # A checksum will not do: it is linear, so the same server would win most lots.
        return max(group, key=lambda key: (_draw(f"{lot}/{key}"), key))
    if rule == BALANCED:
        return min(group, key=lambda key: (load(key), key))
    return min(group, key=lambda key: (-servers[key].rank, servers[key].since, key))


def _draw(text: str) -> bytes:
    """The same at every node."""
    return blake2b(text.encode(), digest_size=8).digest()
