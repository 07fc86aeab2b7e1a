"""What a consumer's keys make of events: signatures are checked, what is sealed is opened.

That happens where the consumer takes its events, on its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from infobus.errors import UsageError
from infobus.headers import Headers, readable, with_headers
from infobus.headers import encode as header_bytes
from infobus.objects import codec
from infobus.protocols.frames.guaranteed import Entry
from infobus.protocols.frames.items import Item, Items, Origin
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.interest.keyed_filter import KeyedFilter
from infobus.security import event_seal
from infobus.security.event_keys import EventKey, PublicEventKey
from infobus.security.event_marks import SEALED, EventSignature, sealed_for, signature_in
from infobus.stores.event_keys import EventKeyFolder
from infobus.subjects import TEST_SPACE

if TYPE_CHECKING:
    from infobus.bus.deliver.subscription import Owner
    from infobus.filters import Filter

OnForged = Callable[[str, str], None]
"""Called with the sender of an event, and what is wrong with its signature."""

TIME_TOLERANCE_S = 60.0
"""An event says when it was published, its signature when it was signed: that is a little earlier.
So whoever repeats it later cannot make it look new."""


class ConsumerKeyOptions(TypedDict, total=False):
    """What a subscriber may say about keys; see `Bus.subscribe`."""

    signed_by: str | PublicEventKey | Iterable[str | PublicEventKey] | None
    holds: Iterable[str | EventKey]
    tell_filter: bool


class ConsumerKeys(Struct, frozen=True):
    """The keys of a subscription."""

    bus: str
    signed_by: dict[bytes, PublicEventKey]
    holds: dict[bytes, EventKey]
    tells_filter: bool

    def row(self, where: Filter | None) -> KeyedFilter:
        """What the subscription asks for."""
        return KeyedFilter(frozenset(self.signed_by), frozenset(self.holds), where)

    def row_text(self, where: Filter | None) -> str:
        """The filter that other nodes are told: what somebody looks for is often the secret."""
        return self.row(where if self.tells_filter else None).text

    def claims(self, headers: Headers) -> bool:
        """Whether an event says to be signed as the subscription asks; that is not checked yet."""
        if not self.signed_by:
            return True
        told = signature_in(headers)
        return told is not None and told.key in self.signed_by

    def opened(self, items: Items, sender: str, on_forged: OnForged) -> tuple[Items, list[int]]:
        """Those events whose signature is genuine, opened if that is possible; and their places."""
        kept: list[Item] = []
        places: list[int] = []
        for at, item in enumerate(items):
            found = self.opened_one(item, sender, on_forged)
            if found is not None:
                kept.append(found)
                places.append(at)
        return Items.of(kept), places

    def opened_one(self, item: Item, sender: str, on_forged: OnForged) -> Item | None:
        """An event with what is sealed in it, as far as these keys go; None if it is not wanted."""
        headers = readable(item.headers)
        if self.signed_by:
            told = signature_in(headers)
            if told is None or told.key not in self.signed_by:
                return None
            if why := why_forged(self.signed_by[told.key], told, item, self.bus):
                on_forged(sender, f"sent an event with a signature that does not count: {why}")
                return None
        receivers = sealed_for(headers)
        if not receivers or receivers.isdisjoint(self.holds):
            return item
        signature = signature_in(headers)
        signer = b"" if signature is None else signature.key
        body = event_seal.open_sealed(item.body, item.type, self.holds.values(), signer)
        if body is None:
            return item
        left = {name: value for name, value in headers.items() if name != SEALED}
        return replace(item, body=body, headers=header_bytes(left))

    def read_kept(
        self, where: Filter | None, ledger: str, entry: Entry, owner: Owner
    ) -> tuple[Entry, str] | None:
        """An event of a ledger, opened, and who has signed it; None if it is not wanted."""
        if entry.type == GROUP:  # nobody signs one
            return None if self.signed_by else (entry, "")
        found = self.opened_one(item_of(entry), ledger, owner.on_forged)
        if found is None:
            return None
        headers = readable(found.headers)
        if where is not None:
            data = codec.decode(found.type, found.body)
            if not where.matches(with_headers(data, headers)):
                return None
        told = replace(entry, body=found.body, headers=found.headers or None)
        return told, self.signer_of(headers)

    def signer_of(self, headers: Headers) -> str:
        """The name of the key that has signed an event; empty if the subscription does not ask."""
        told = signature_in(headers) if self.signed_by else None
        return "" if told is None else self.signed_by[told.key].name


def item_of(entry: Entry) -> Item:
    """An event of a ledger as it was published."""
    subject = TEST_SPACE + entry.subject if entry.test else entry.subject
    origin = None if entry.origin is None else Origin(entry.origin[0], entry.origin[2])
    about = (entry.number, entry.time, entry.type, entry.body)
    return Item(subject, *about, headers=entry.headers or b"", origin=origin)


def why_forged(key: PublicEventKey, told: EventSignature, item: Item, bus: str) -> str:
    """Why the signature that an event comes with does not count; empty if it does."""
    if not event_seal.is_genuine(key, told, item.type, item.body):
        return "it is another object, or another key has signed it"
    if not _is_of(told, item.subject, bus, item.origin):
        return f"it was signed for {told.subject!r} on bus {told.bus!r}"
    if abs(told.time - item.time) > TIME_TOLERANCE_S:
        return "it was signed at another time"
    return ""


def consumer_keys(
    bus: str,
    home: Path,
    *,
    signed_by: str | PublicEventKey | Iterable[str | PublicEventKey] | None = None,
    holds: Iterable[str | EventKey] = (),
    tell_filter: bool = False,
) -> ConsumerKeys:
    """The keys that a subscriber names.

    Raises:
        UsageError: This home does not have them.
    """
    if isinstance(holds, str):
        raise UsageError("holds takes a list of names, not one str")
    folder = EventKeyFolder(home)
    if signed_by is None:
        signed_by = ()
    elif isinstance(signed_by, str | PublicEventKey):
        signed_by = (signed_by,)
    public = [folder.public(one) if isinstance(one, str) else one for one in signed_by]
    pairs = [folder.pair(one) if isinstance(one, str) else one for one in holds]
    told = {one.id: one for one in public}
    return ConsumerKeys(bus, told, {one.id: one for one in pairs}, tell_filter)


def _is_of(told: EventSignature, subject: str, bus: str, origin: Origin | None) -> bool:
    """Whether an event is published where it was signed for.

    What came from another site has more elements before its subject, which say whence.
    """
    if origin is None:
        return (told.bus, told.subject) == (bus, subject)
    return f".{subject}".endswith(f".{told.subject}")
