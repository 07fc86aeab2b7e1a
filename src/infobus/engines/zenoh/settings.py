"""The settings of a Zenoh session, as plain values: nothing here opens anything.

By default a session uses loopback only and needs no server. Nodes find each other in three ways,
each of which suffices alone: a well-known port that follows from the bus name (the first node holds
it; after its death the next node that opens takes it, and the others connect to it), multicast on a
port of the bus's own, and the rendezvous folder of the host (see `rendezvous`). Gossip then
completes the mesh.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from infobus.errors import BadValue

# How long a receiver that takes nothing may hold up a sender: see `links`. Zenoh's own limit is the
# second line of defence. While a sender is held up, it sends nothing to other nodes either, so both
# limits must stay below the lease, or those nodes take the sender for dead. Never -1 ("for ever"):
# Zenoh panics.
STALL_PART_OF_LEASE = 0.25  # The system looks rarely: at 0.25 s it ends after 0.3 to 0.7 s.
BLOCK_PART_OF_LEASE = 0.75

# Below the ports that Linux (32768) and others (49152) assign by themselves, so that no outgoing
# connection of a stranger takes them; two ranges, so that the two never meet.
_WELL_KNOWN_PORTS = range(20_000, 30_000)
_MULTICAST_PORTS = range(10_000, 20_000)
# Appended to the endpoint of a neighbour: it is tried ever more rarely.
_FADING = "#retry_period_init_ms=250;retry_period_increase_factor=2;retry_period_max_ms=4000"


def namespace(bus: str) -> str:
    """Return `bus` as one key element; different names never share one.

    >>> namespace("floor 7/a*")
    'floor%207%2Fa%2A'
    """
    return quote(bus, safe="", errors="surrogatepass")


def well_known_port(bus: str) -> int:
    """Return the TCP port at which the nodes of `bus` on this host find each other."""
    return _pick(_WELL_KNOWN_PORTS, "tcp", bus)


def multicast_port(bus: str) -> int:
    """Return the UDP port on which the nodes of `bus` call for each other."""
    return _pick(_MULTICAST_PORTS, "multicast", bus)


def _pick(ports: range, purpose: str, bus: str) -> int:
    digest = hashlib.sha256(f"{purpose} {namespace(bus)}".encode()).digest()
    return ports[int.from_bytes(digest[:8], "big") % len(ports)]


def session_id(now_ns: int, noise: int) -> str:
    """Return an id that Zenoh considers greater than those made earlier.

    Of two nodes, only the one with the greater id connects. That is the later one, which also
    connects to the nodes in the rendezvous folder. When both connected, links that carried nothing
    (see `links`) occurred twice; one way they are single, but not fewer. Zenoh compares ids from
    their last byte to their first.
    """
    # The first digit must not be zero.
    return f"{noise % 2**63 | 2**63:016x}" + now_ns.to_bytes(8, "little").hex()


def session_settings(
    bus: str,
    *,
    zid: str,
    own_port: int,
    listen: Iterable[str],
    must_listen: bool,
    connect: Iterable[str],
    neighbours: Iterable[str],
    multicast: str,
    lease_ms: int,
    handshake_ms: int,
    shared_memory: bool,
) -> dict[str, Any]:
    """Return the configuration of one session.

    `neighbours` are endpoints of live nodes on this host. They are tried at once, and then
    ever more rarely: the port of a dead one may belong to a stranger by now.
    """
    well_known = f"tcp/127.0.0.1:{well_known_port(bus)}"
    return {
        "id": zid,
        "mode": "peer",
        "namespace": namespace(bus),
        "listen": {
            "endpoints": [
                well_known,
                f"tcp/127.0.0.1:{own_port}#exit_on_failure=true",
                *_open_to_network(multicast),
                *(
                    f"{endpoint}{_and(endpoint)}exit_on_failure={str(must_listen).lower()}"
                    for endpoint in listen
                ),
            ],
            # Only one node gets the well-known port. The others must not wait for it in the
            # background (a timeout of -1): such a session takes 10 s to close. After its holder
            # died, the next node that opens gets it.
            "exit_on_failure": False,
            "timeout_ms": 0,
        },
        "connect": {
            "endpoints": [well_known, *connect, *(endpoint + _FADING for endpoint in neighbours)],
            "exit_on_failure": False,
            # In the background and in parallel. Otherwise each frozen neighbour would
            # delay opening for the length of a handshake.
            "timeout_ms": -1,
            "retry": {"period_init_ms": 250, "period_max_ms": 2000, "period_increase_factor": 2},
        },
        "scouting": _scouting(bus, multicast),
        "transport": _transport(lease_ms, handshake_ms, shared_memory),
    }


def _open_to_network(multicast: str) -> list[str]:
    if multicast in ("loopback", "off"):
        return []
    return [f"tcp/0.0.0.0:0#iface={multicast};exit_on_failure=true"]


def _scouting(bus: str, multicast: str) -> dict[str, Any]:
    # Only the later of two nodes connects to the earlier, see `session_id`.
    one_way = {"peer": {"to_router": "always", "to_peer": "greater-zid"}}
    interface = "lo" if multicast == "loopback" else multicast
    return {
        "delay": 0,  # The engine itself knows better for whom to wait.
        "multicast": {
            "enabled": multicast != "off",
            "autoconnect_strategy": one_way,
            "address": f"224.0.0.224:{multicast_port(bus)}",
            **({"interface": interface} if multicast != "off" else {}),
        },
        "gossip": {"enabled": True, "autoconnect_strategy": one_way},
    }


def _transport(lease_ms: int, handshake_ms: int, shared_memory: bool) -> dict[str, Any]:
    block_us = int(lease_ms * BLOCK_PART_OF_LEASE * 1000)
    return {
        "unicast": {"open_timeout": handshake_ms, "accept_timeout": handshake_ms},
        "link": {
            "tx": {
                "lease": lease_ms,
                "keep_alive": 4,
                "queue": {"congestion_control": {"block": {"wait_before_close": block_us}}},
            }
        },
        "shared_memory": {"enabled": shared_memory},
    }


def _and(endpoint: str) -> str:
    return ";" if "#" in endpoint else "#"


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return `below` with the entries of `above` put over it, map by map.

    >>> merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4})
    {'a': {'x': 1, 'y': 3}, 'b': 4}
    """
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        both_maps = isinstance(under, Mapping) and isinstance(value, Mapping)
        result[name] = merged(under, value) if both_maps else value  # type: ignore[arg-type]
    return result


def extra_settings(config: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """Return the user's own Zenoh settings: a map, or the path of a JSON5 file."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    try:
        settings = from_json5(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadValue(f"zenoh settings file {str(config)!r}: {error}") from error
    if not isinstance(settings, dict):
        raise BadValue(
            f"zenoh settings file {str(config)!r}: expected a map, got {type(settings).__name__}"
        )
    return settings


_STRING = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_COMMENT_OR_NAME = re.compile(rf"({_STRING})|(//[^\n]*|/\*.*?\*/)|([A-Za-z_$][\w$]*)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)


def from_json5(text: str) -> Any:
    """Read the part of JSON5 that Zenoh's settings files use.

    That is JSON with comments, bare names, single quotes and trailing commas.

    >>> from_json5("{ mode: 'peer', /* two */ listen: [1, 2,], } // end")
    {'mode': 'peer', 'listen': [1, 2]}
    """

    def plain(match: re.Match[str]) -> str:
        string, comment, name = match.groups()
        if comment:
            return " "
        if name:
            return name if name in ("true", "false", "null") else json.dumps(name)
        if string.startswith("'"):
            return '"' + string[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        return str(string)

    return json.loads(
        _TRAILING_COMMA.sub(lambda m: m.group(1) or "", _COMMENT_OR_NAME.sub(plain, text))
    )
