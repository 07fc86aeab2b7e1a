"""Endpoints, as plain values: whether they are written correctly, and what their files are.

An endpoint is `protocol/address`, then perhaps `?metadata` and `#settings`; see Zenoh's manual.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from infobus.errors import BadValue

UNIX = "unixsock-stream"
SECURE = frozenset({"tls", "quic"})
"""Protocols in which both sides may have to show a certificate."""

AUTO, NEVER, DIRECT = _ATTACH = ("auto", "never", "direct")
"""How a node is on the bus: by a daemon if there is one, without, or with one for other hosts."""

_BY_PORT = ("tcp", "tls", "udp", "quic", "ws")
_OF_THIS_HOST = ("off", "loopback", "lo")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[\w.-]+):(\d{1,5})")
_FILES = (
    "root_ca_certificate",
    "listen_certificate",
    "listen_private_key",
    "connect_certificate",
    "connect_private_key",
)


def protocol_of(endpoint: str) -> str:
    """The protocol of an endpoint.

    >>> protocol_of("tls/10.0.0.7:7500#iface=eth0")
    'tls'
    """
    return endpoint.partition("/")[0]


def address_of(endpoint: object) -> str:
    """The address of an endpoint, without what may follow it.

    >>> address_of("tls/10.0.0.7:7500#iface=eth0")
    '10.0.0.7:7500'
    """
    return str(endpoint).partition("/")[2].partition("?")[0].partition("#")[0]


def host_and_port(endpoint: str) -> tuple[str, int] | None:
    """Where an endpoint is on the network; None for one that is a file.

    >>> host_and_port("tcp/[::1]:7500"), host_and_port("unixsock-stream//tmp/a")
    (('::1', 7500), None)
    """
    found = _ADDRESS.fullmatch(address_of(endpoint))
    if protocol_of(endpoint) not in _BY_PORT or found is None:
        return None
    return found[1].strip("[]"), int(found[2])


def check_endpoint(setting: str, endpoint: str) -> None:
    """Refuse an endpoint that cannot be one; `setting` is where it was given."""
    protocol, slash, _ = endpoint.partition("/")
    address = address_of(endpoint)
    if protocol == UNIX and slash:
        if not address.startswith("/"):
            raise BadValue(f"{setting}: endpoint {endpoint!r}: expected {UNIX}//A/FILE's/PATH")
        return
    if protocol not in _BY_PORT or not slash:
        raise BadValue(
            f"{setting}: {endpoint!r} is not an endpoint: expected PROTOCOL/HOST:PORT, such as "
            f"tcp/10.0.0.7:7500; the protocols are {', '.join((*_BY_PORT, UNIX))}"
        )
    where = host_and_port(endpoint)
    if where is None:
        raise BadValue(f"{setting}: endpoint {endpoint!r}: {address!r} is not HOST:PORT")
    try:
        where[0].encode("idna")  # as a resolver will
    except UnicodeError as error:
        what = f"{setting}: endpoint {endpoint!r}: {where[0]!r} cannot be a host name"
        raise BadValue(f"{what}: each part has 1 to 63 characters") from error
    lowest = 0 if setting == "listen" else 1
    if not lowest <= where[1] <= 65535:
        raise BadValue(
            f"{setting}: endpoint {endpoint!r}: expected a port from {lowest} to 65535, "
            f"got {where[1]}"
        )


def checked_attach(attach: object) -> str | tuple[str, ...]:
    """Return `attach` as one of the words, or as endpoints."""
    if isinstance(attach, str):
        if attach in _ATTACH:
            return attach
    elif isinstance(attach, list | tuple) and attach and all(isinstance(a, str) for a in attach):
        for one in attach:
            check_endpoint("attach", one)
        return tuple(attach)
    words = ", ".join(map(repr, _ATTACH))
    raise BadValue(
        f"attach={attach!r}: expected {words}, or a list of endpoints such as ['tcp/HOST:7447']",
        path="attach",
    )


def is_on_network(endpoint: str) -> bool:
    """Whether others than programs of this host can reach who listens there.

    >>> [is_on_network(f"tcp/{host}:7500") for host in ("0.0.0.0", "127.0.0.1", "[::1]", "oven")]
    [True, False, False, True]
    """
    where = host_and_port(endpoint)
    if where is None or where[0] == "localhost":
        return False
    try:
        return not ip_address(where[0]).is_loopback
    except ValueError:
        return True


def open_to_anyone(listen: Iterable[str], multicast: str) -> list[str]:
    """What lets in anyone who can reach it from a network: none of `listen` with TLS."""
    plain = [one for one in listen if protocol_of(one) not in SECURE and is_on_network(one)]
    return [*plain, *([multicast] if multicast not in _OF_THIS_HOST else [])]


def check_security(listen: Iterable[str], connect: Iterable[str], tls: Mapping[str, Any]) -> None:
    """Refuse TLS that cannot work, and a plain listener beside it.

    `tls` are the settings `zenoh.transport.link.tls`. The files that they name are read, so that
    a wrong one is an error here and not silence later.
    """
    listen = tuple(listen)
    secure = [one for one in listen if protocol_of(one) in SECURE]
    plain = [one for one in listen if protocol_of(one) not in (*SECURE, UNIX)]
    if plain and (secure or is_secured(listen, connect, tls)):
        raise BadValue(
            f"listen: {plain[0]!r} is open to whoever reaches it, without a certificate, beside "
            "TLS: use tls/ there, too, or leave it out"
        )
    for setting, path in _named_files(listen, connect, tls):
        _check_file(setting, path)
    for endpoint in secure:
        for name in ("listen_certificate", "listen_private_key"):
            inside = f"{name}_file=" in endpoint or f"{name}_base64=" in endpoint
            if not inside and not tls.get(name) and not tls.get(f"{name}_base64"):
                raise BadValue(
                    f"listen: {endpoint!r} needs a certificate: set {name} in "
                    "[zenoh.transport.link.tls]"
                )
    _check_pairs(tls)


def is_secured(listen: Iterable[str], connect: Iterable[str], tls: Mapping[str, Any]) -> bool:
    """Whether links between hosts are to be protected: then none is made without TLS."""
    return bool(tls) or any(protocol_of(one) in SECURE for one in (*listen, *connect))


def _named_files(
    listen: Iterable[str], connect: Iterable[str], tls: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for name in _FILES:
        if tls.get(name):
            yield f"zenoh.transport.link.tls.{name}", str(tls[name])
    for setting, endpoints in (("listen", listen), ("connect", connect)):
        for endpoint in endpoints:
            for pair in endpoint.partition("#")[2].split(";"):
                name, _, value = pair.partition("=")
                if name.removesuffix("_file") in _FILES and name.endswith("_file"):
                    yield f"{setting}: endpoint {endpoint!r}: {name}", value


def _check_file(setting: str, path: str) -> None:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise BadValue(f"{setting}: {path!r} cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in text:
        raise BadValue(f"{setting}: {path!r} is not a PEM file: it has no -----BEGIN ... line")


def _check_pairs(tls: Mapping[str, Any]) -> None:
    import ssl  # seldom needed

    for side in ("listen", "connect"):
        certificate, key = (tls.get(f"{side}_{what}") for what in ("certificate", "private_key"))
        if not certificate or not key:
            continue
        try:
            # Never asks for a password on the terminal: an encrypted key is refused.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, "")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadValue(
                f"zenoh.transport.link.tls: {side}_certificate {certificate!r} and "
                f"{side}_private_key {key!r} cannot be used together: {error}"
            ) from error
