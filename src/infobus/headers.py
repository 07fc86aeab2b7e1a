"""Headers: what a publisher or caller says beside the object, such as a trace's id.

A header has a name and a value: text, a number, a bool or bytes. Headers travel and are stored as
the bytes of one MessagePack map, which nobody on the way has to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from infobus.errors import BadFrame, BadValue

HeaderValue = str | int | float | bool | bytes

HEADERS_COUNT_MAX = 64
"""Most headers of one event or call."""

HEADERS_BYTES_MAX = 8 * 1024
"""Most bytes of the headers of one event or call, names included, as MessagePack."""

_SHOWN_CHARS = 60
_KINDS = frozenset({str, int, float, bool, bytes})


class Headers(Mapping[str, HeaderValue]):
    """The headers of an event or a call: a mapping that never changes.

    >>> Headers({"trace": "4bf92f", "attempt": 2})["attempt"]
    2
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, HeaderValue] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> HeaderValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __reduce__(self) -> tuple[type[Headers], tuple[dict[str, HeaderValue]]]:
        return Headers, (self._values,)

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"


NO_HEADERS = Headers()
"""The headers of everything that has none."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


def encode(headers: Mapping[str, HeaderValue] | None) -> bytes:
    """Return the bytes of headers; none at all if there are none.

    >>> encode({"trace": "4bf92f"}), encode({})
    (b'\\x81\\xa5trace\\xa64bf92f', b'')

    Raises:
        BadValue: A name or a value cannot be sent, or there is too much of it.
    """
    if headers is None:
        return b""
    if not isinstance(headers, Mapping):
        raise BadValue(f"headers={headers!r:.60}: expected a mapping from names to values")
    if not headers:
        return b""
    if len(headers) > HEADERS_COUNT_MAX:
        raise BadValue(f"there are {len(headers)} headers; at most {HEADERS_COUNT_MAX} are allowed")
    plain = {_checked_name(name): _checked(name, value) for name, value in headers.items()}
    encoded = _encoder.encode(plain)
    if len(encoded) > HEADERS_BYTES_MAX:
        sizes = {name: len(_encoder.encode({name: value})) for name, value in plain.items()}
        largest = max(sizes, key=sizes.__getitem__)
        raise BadValue(
            f"the headers take {len(encoded)} bytes; at most {HEADERS_BYTES_MAX} are allowed. The "
            f"largest is {_shown(largest)} with {sizes[largest]} bytes: publish large things as "
            "attributes of the object"
        )
    return encoded


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadValue(f"the header {_shown(name)} has no name: expected text, not empty")
    _check_text(name, name)
    return str.__str__(name)


def _checked(name: str, value: object) -> HeaderValue:
    match value:
        case bool():
            return value
        case str():
            _check_text(name, value)
            return str.__str__(value)  # not that of an Enum
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case int():
            raise BadValue(f"header {_shown(name)} is a whole number of more than 64 bits")
        case float():
            return float(value)
        case bytes():
            return bytes(value)
    raise BadValue(
        f"header {_shown(name)} is a {type(value).__name__}; "
        "expected text, a number, a bool or bytes"
    )


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue(f"header {_shown(name)} holds half a surrogate pair") from None


def _shown(name: object) -> str:
    return f"{name!r:.{_SHOWN_CHARS}}"


@lru_cache(maxsize=256)  # a publisher often sends the same ones again
def decode(encoded: bytes) -> Headers:
    """Return the headers in these bytes, which may come from outside.

    Raises:
        BadFrame: They are no headers, or more than are allowed.
    """
    if not encoded:
        return NO_HEADERS
    if len(encoded) > HEADERS_BYTES_MAX:
        raise BadFrame(f"headers of {len(encoded)} bytes; at most {HEADERS_BYTES_MAX} are accepted")
    try:
        values = _decoder.decode(encoded)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadFrame(f"malformed headers: {error}") from error
    if len(values) > HEADERS_COUNT_MAX or "" in values:
        raise BadFrame(
            f"{len(values)} headers; expected at most {HEADERS_COUNT_MAX}, each with a name"
        )
    for name, value in values.items():
        if value.__class__ not in _KINDS or (value.__class__ is int and value >= 2**63):
            raise BadFrame(
                f"header {_shown(name)} is {value!r:.60}; expected text, a number of at most 64 "
                "bits, a bool or bytes"
            )
    return Headers(values)


def readable(encoded: bytes | None) -> Headers:
    """As `decode`; no headers if they cannot be read. Somebody else tells of that."""
    try:
        return decode(encoded or b"")
    except BadFrame:
        return NO_HEADERS


class WithHeaders:
    """Data and its headers, for a filter to be asked about. Made by `with_headers`."""

    __slots__ = ("attributes", "data", "headers")

    def __init__(self, data: object, headers: Mapping[str, HeaderValue]) -> None:
        self.data = data
        self.headers = headers
        self.attributes: dict[str, Any] | None = None  # both in one, once a filter has looked


def with_headers(data: object, headers: Mapping[str, HeaderValue]) -> object:
    """Return what a filter is to be asked about; the data itself if there are no headers."""
    return WithHeaders(data, headers) if headers else data
