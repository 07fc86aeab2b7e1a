"""Guaranteed events on their way to the ledger: what is kept of each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from infobus.headers import encode as encode_headers
from infobus.objects import DataObject, codec, id_of, spelled
from infobus.protocols.frames import transactions
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.frames.wire import Items
from infobus.stores.ledger.record import Record
from infobus.subjects import TEST_SPACE, check_publishable

_NONE: Mapping[int, bytes] = MappingProxyType({})
_check_again = lru_cache(maxsize=4096)(check_publishable)  # most publishers have few subjects


def records_of(
    events: Sequence[Sequence[Any]],
    now_s: float,
    test: bool,
    expires: float | None,
    priority: str,
    headers: bytes,
    own: Collection[str] = (),
) -> tuple[list[Record], Mapping[int, bytes]]:
    """The records of events (`publisher.Publication`), and the descriptors of types they need.

    `own` are subjects of the bus's own that this node may use.

    Raises:
        BadSubject: A subject is malformed or holds a wildcard.
        BadValue: An object, or a header, cannot be sent.
    """
    records: list[Record] = []
    types: dict[int, None] = {}
    checked = None
    for subject, obj, *given in events:
        if subject is not checked:  # most often, all have the same
            if subject not in own:
                _check_again(subject) if isinstance(subject, str) else check_publishable(subject)
            checked = subject
        fingerprint, body, needed = codec.encode(obj)
        if needed:
            types.update(dict.fromkeys(needed))
        object_id = id_of(obj) if isinstance(obj, DataObject) else None
        told = encode_headers(given[0]) if given else headers
        about = (object_id, expires, test, priority, told or None)
        records.append(Record(subject, now_s, fingerprint, body, *about))
    return records, descriptors_of(types) if types else _NONE


def descriptors_of(types: Iterable[int]) -> dict[int, bytes]:
    """The descriptors of those types that are known here, by fingerprint."""
    # The last one is the type's own; those of its supertypes come before it.
    return {type_: found[-1] for type_ in types if (found := codec.descriptors([type_]))}


def record_of_group(
    group: Group,
    node: str,
    now_s: float,
    *,
    test: bool,
    expires: float | None,
    priority: str,
) -> Record:
    """The record of a transaction that `node` sends, with the names that its objects have."""
    items = [
        replace(
            event,
            subject=event.subject.removeprefix(TEST_SPACE),
            object_id=event.object_id or spelled((node, event.number)),
        )
        for event in group.events
    ]
    body = transactions.encode(
        Group(group.number, group.epoch, group.channels, Items.of(items), group.count)
    )
    return Record(items[0].subject, now_s, GROUP, body, None, expires, test, priority)
