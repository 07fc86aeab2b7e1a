"""The filter of a row that names keys: whose events it asks for, and what its consumers can open.

A row without keys asks for events whoever has signed them, and gets what is sealed as it is. The
text of a filter with keys begins with `@`, which no other filter does; so a node that knows nothing
of keys takes it for a filter that it does not understand, and sends everything.

    @signed:ID,ID @opens:ID,ID FILTER

Both are optional, and so is the filter. An ID is the id of a key, in 16 hexadecimal digits. `@`
alone may want anything.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from infobus.errors import BadFilter
from infobus.filters import Filter, compile
from infobus.filters.language.partial import PartlyKnown, residual
from infobus.filters.language.tree import HEADERS
from infobus.filters.language.values import attributes_of
from infobus.headers import NO_HEADERS, Headers, WithHeaders
from infobus.objects.sealed import is_sealed
from infobus.protocols.interest.own_rows import ANY_KEYS, is_keyed
from infobus.security.event_marks import sealed_for, signature_in

_KEYS_COUNT_MAX = 64
_ID_BYTES = 8
_NONE: frozenset[bytes] = frozenset()


class KeyedFilter(Struct, frozen=True):
    """What a row with keys asks for.

    >>> row = KeyedFilter(frozenset({bytes(8)}), frozenset(), compile("price > 40"))
    >>> row.text
    '@signed:0000000000000000 price > 40'
    >>> keyed_filter(row.text) == row
    True
    """

    signed_by: frozenset[bytes]
    """Only events that one of these keys has signed; any, if there is none."""
    opens: frozenset[bytes]
    """The keys with which its consumers open what is sealed."""
    where: Filter | None = None

    @property
    def text(self) -> str:
        """The text that other nodes get."""
        filter_text = "" if self.where is None else f" {self.where.text}"
        return f"{self.keys_text}{filter_text}"

    @property
    def keys_text(self) -> str:
        """The same without the filter."""
        parts = []
        if self.signed_by:
            parts.append(f"@signed:{_spelled(self.signed_by)}")
        if self.opens:
            parts.append(f"@opens:{_spelled(self.opens)}")
        return " ".join(parts) or ANY_KEYS

    def may_match(self, seen: object) -> bool:
        """Return whether the row may want an event, as far as somebody without its keys can tell.

        `seen` is the event as filters see it. An attribute that is sealed for one of the row's keys
        is unknown; for all others it is missing.
        """
        headers = seen.headers if isinstance(seen, WithHeaders) else NO_HEADERS
        if self.signed_by:
            signature = signature_in(headers)
            if signature is None or signature.key not in self.signed_by:
                return False
        if self.where is None:
            return True
        receivers = sealed_for(headers)
        if receivers is None or self.opens.isdisjoint(receivers):
            return self.where.matches(seen)
        return may_match_sealed(self.where, seen)

    def satisfiable_by(self, keys: frozenset[bytes]) -> bool:
        """Return whether a publisher that signs with these keys can satisfy the row."""
        return not self.signed_by or not self.signed_by.isdisjoint(keys)


def may_match_sealed(where: Filter, seen: object) -> bool:
    """Return whether a filter may be true of an event once its sealed part has been opened."""
    data = seen.data if isinstance(seen, WithHeaders) else seen
    if not is_sealed(data):
        return where.matches(seen)
    headers = seen.headers if isinstance(seen, WithHeaders) else Headers()
    known = PartlyKnown({**attributes_of(data), HEADERS: headers}, data)
    return residual(where.tree, known) is not False


@lru_cache(maxsize=4096)
def keyed_filter(text: str) -> KeyedFilter:
    """Return what the text of a row with keys says.

    Raises:
        BadFilter: It is malformed, or of a later version.
    """
    keys: dict[str, frozenset[bytes]] = {}
    rest = text
    while is_keyed(rest):
        word, _, rest = rest.partition(" ")
        if word != ANY_KEYS:
            kind, _, ids = word[1:].partition(":")
            if kind not in ("signed", "opens") or kind in keys:
                raise BadFilter(f"a row with keys that is not understood: {text[:60]!r}")
            keys[kind] = _ids(ids)
    signed, opens = keys.get("signed", _NONE), keys.get("opens", _NONE)
    if len(signed) + len(opens) > _KEYS_COUNT_MAX:
        raise BadFilter(f"a row names more than {_KEYS_COUNT_MAX} keys")
    return KeyedFilter(signed, opens, compile(rest) if rest else None)


def without_filter(text: str) -> str:
    """Return the text of a row with keys that asks for at least as much, without a filter.

    >>> without_filter("@signed:0123456789abcdef price > 40")
    '@signed:0123456789abcdef'
    """
    try:
        return keyed_filter(text).keys_text
    except BadFilter:
        return ANY_KEYS


def parted(text: str) -> tuple[str, str]:
    """Return the keys of a row's filter and the rest, either of which may be empty.

    >>> parted("@signed:0123456789abcdef price > 40"), parted("price > 40")
    (('@signed:0123456789abcdef', 'price > 40'), ('', 'price > 40'))
    """
    if not is_keyed(text):
        return "", text
    found = keyed_filter(text)
    return found.keys_text, "" if found.where is None else found.where.text


def _spelled(ids: frozenset[bytes]) -> str:
    return ",".join(sorted(one.hex() for one in ids))


def _ids(text: str) -> frozenset[bytes]:
    try:
        ids = frozenset(map(bytes.fromhex, text.split(",")))
    except ValueError:
        ids = frozenset((b"",))
    if any(len(one) != _ID_BYTES for one in ids):
        raise BadFilter(f"{text[:60]!r} are no ids of keys")
    return ids
