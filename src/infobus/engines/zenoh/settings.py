"""The settings of a Zenoh session, as plain values: nothing here opens anything.

By default a session uses Unix sockets only and needs no server: nodes find each other in the
rendezvous folder of the host (see `rendezvous`). Who asks for TCP on loopback gets two further
ways, each of which suffices alone: a well-known port that follows from the bus name (the first node
holds it; after its death the next node that opens takes it, and the others connect to it), and
multicast on a port of the bus's own. Gossip then completes the mesh.

Where TLS is set up, nothing listens without it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from infobus.engines.zenoh.endpoints import UNIX, address_of, is_on_network, protocol_of
from infobus.errors import BadValue

PEER, CLIENT, ROUTER = ROLES = ("peer", "client", "router")

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
_GROUP = "224.0.0.224"
_RETRY = {"period_init_ms": 250, "period_max_ms": 2000, "period_increase_factor": 2}
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


def scouts_at(bus: str) -> tuple[str, int]:
    """Return the group and port at which the nodes of `bus` call for each other."""
    return _GROUP, multicast_port(bus)


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
    role: str,
    zid: str,
    own: str,
    on_loopback: bool,
    is_secured: bool,
    listen: Iterable[str],
    connect: Iterable[str],
    neighbours: Iterable[str],
    multicast: str,
    lease_ms: int,
    handshake_ms: int,
    reach_ms: int,
    shared_memory: bool,
) -> dict[str, Any]:
    """Return the configuration of one session.

    `own` is where the nodes of this host reach it. `on_loopback` adds the port at which they find
    it without the rendezvous, and `is_secured` leaves out whatever is open without a certificate.
    `neighbours` are endpoints of live nodes on this host. They are tried at once, and then
    ever more rarely: a dead one's may belong to a stranger by now. A client has nothing but
    `connect`: the first of these routers that it can link within `reach_ms` carries its frames, and
    when that is lost, the next.
    """
    transport = _transport(lease_ms, handshake_ms, shared_memory)
    common = {"id": zid, "mode": role, "namespace": namespace(bus), "transport": transport}
    if role == CLIENT:
        return {**common, **_of_client(connect, reach_ms)}
    well_known = [f"tcp/127.0.0.1:{well_known_port(bus)}"] if on_loopback and not is_secured else []
    return {
        **common,
        "listen": {
            "endpoints": [
                *well_known,
                f"{own}#exit_on_failure=true",
                *_open_to_others(own, multicast, is_secured),
                *listen,
            ],
            # Only one node gets the well-known port. The others must not wait for it in the
            # background (a timeout of -1): such a session takes 10 s to close. After its holder
            # died, the next node that opens gets it.
            "exit_on_failure": False,
            "timeout_ms": 0,
        },
        "connect": {
            "endpoints": [*well_known, *connect, *(endpoint + _FADING for endpoint in neighbours)],
            "exit_on_failure": False,
            # In the background and in parallel. Otherwise each frozen neighbour would
            # delay opening for the length of a handshake.
            "timeout_ms": -1,
            "retry": _RETRY,
        },
        "scouting": _scouting(bus, multicast),
    }


def listeners(listen: Iterable[str], free: Container[str], *, must_listen: bool) -> list[str]:
    """Where to listen, if `listen` is wanted and these are `free`.

    Of the nodes of a host, one gets a given port. So that nodes of other hosts can link with each,
    whoever is open to a network has a port of its own there, too.

    >>> listeners(["tcp/0.0.0.0:7500", "tcp/127.0.0.1:7500"], (), must_listen=False)
    ['tcp/0.0.0.0:0']
    """
    found: dict[str, None] = {}
    for endpoint in listen:
        if endpoint in free:
            found[f"{endpoint}{_and(endpoint)}exit_on_failure={str(must_listen).lower()}"] = None
        if is_on_network(endpoint):
            address = address_of(endpoint)
            found[endpoint.replace(address, f"{address.rpartition(':')[0]}:0", 1)] = None
    return list(found)


def _of_client(connect: Iterable[str], reach_ms: int) -> dict[str, Any]:
    return {
        "listen": {"endpoints": []},
        "connect": {
            "endpoints": list(connect),
            "exit_on_failure": True,
            "timeout_ms": reach_ms,
            "retry": _RETRY,
        },
        # Otherwise it opens by looking for routers, whichever they are.
        "scouting": {"multicast": {"enabled": False}},
    }


def with_protocols(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Allow only the protocols of the endpoints in `settings`, unless it says which itself.

    Otherwise a node would also follow a word of other nodes, and link without TLS.
    """
    endpoints = [
        endpoint
        for way in ("listen", "connect")
        for endpoint in _flat(settings[way].get("endpoints", ()))
    ]
    protocols = sorted({protocol_of(str(endpoint)) for endpoint in endpoints})
    return merged({"transport": {"link": {"protocols": protocols}}}, settings)


def unknown_settings(taken: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of what was `given`, and is not in what Zenoh says that it has `taken`.

    It refuses most names that it does not know, and accepts some without a word.

    >>> list(unknown_settings({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}))
    ['a.c']
    """
    for name, value in given.items():
        if name not in taken:
            if not name.endswith("_base64"):  # it takes secrets, and does not say so
                yield name
        elif isinstance(value, Mapping) and isinstance(taken[name], Mapping):
            yield from (f"{name}.{inner}" for inner in unknown_settings(taken[name], value))


def own_listeners(extra: Mapping[str, Any]) -> list[str]:
    """The endpoints at which the user's own Zenoh settings listen."""
    return [str(endpoint) for endpoint in _flat(_inside(extra, "listen").get("endpoints", ()))]


def tls_settings(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part about TLS of the user's own Zenoh settings."""
    return _inside(extra, "transport", "link", "tls")


def _inside(settings: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        inner = settings.get(name)
        settings = inner if isinstance(inner, Mapping) else {}
    return settings


def _flat(endpoints: Any) -> Iterator[Any]:
    # Zenoh also takes a map from modes to lists.
    return chain.from_iterable(endpoints.values()) if isinstance(endpoints, Mapping) else endpoints


def _open_to_others(own: str, multicast: str, is_secured: bool) -> list[str]:
    """What other users of this host, or other hosts, are to reach."""
    protocol = "tls" if is_secured else "tcp"
    if multicast == "off":
        return []
    if multicast != "loopback":
        return [f"{protocol}/0.0.0.0:0#iface={multicast};exit_on_failure=true"]
    if protocol_of(own) == UNIX:
        return [f"{protocol}/127.0.0.1:0#exit_on_failure=true"]
    return []


def _scouting(bus: str, multicast: str) -> dict[str, Any]:
    # Only the later of two nodes connects to the earlier, see `session_id`.
    one_way = {
        "peer": {"to_router": "always", "to_peer": "greater-zid"},
        "router": {"to_router": "greater-zid"},
    }
    whom = {"peer": ["router", "peer"], "router": ["router"]}
    interface = "lo" if multicast == "loopback" else multicast
    return {
        "delay": 0,  # The engine itself knows better for whom to wait.
        "multicast": {
            "enabled": multicast != "off",
            "autoconnect": whom,
            "autoconnect_strategy": one_way,
            "address": f"{_GROUP}:{multicast_port(bus)}",
            **({"interface": interface} if multicast != "off" else {}),
        },
        "gossip": {"enabled": True, "autoconnect": whom, "autoconnect_strategy": one_way},
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
