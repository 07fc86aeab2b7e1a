"""Signing and sealing what this node publishes; it leaves as an object with headers like others."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from infobus.bus.publish.publisher import ProducerKeys, Publication
from infobus.errors import BadValue, UsageError
from infobus.headers import HeaderValue
from infobus.objects import DataObject, codec, id_of
from infobus.security import event_seal
from infobus.security.event_keys import EventKey, PublicEventKey
from infobus.security.event_marks import SEALED, SIGNED, encoded_ids, encoded_signature
from infobus.stores.event_keys import EventKeyFolder


class ProducerKeyOptions(TypedDict, total=False):
    """What a publisher may say about keys; see `ProducerKeys`."""

    sign: str | EventKey | None
    seal_to: Collection[str | PublicEventKey] | None
    clear: Collection[str]


class KeyedPublisher:
    """Signs and seals with the keys of a home."""

    def __init__(self, bus: str, home: Path, wall_s: Callable[[], float]) -> None:
        self._bus = bus
        self._folder = EventKeyFolder(home)
        self._wall_s = wall_s

    def prepared(
        self,
        subject: str,
        obj: Any,
        headers: Mapping[str, HeaderValue] | None,
        keys: ProducerKeys,
    ) -> tuple[Any, dict[str, HeaderValue]]:
        """Return the object and the headers to publish under `subject`, instead of these.

        Raises:
            UsageError: This home has no such key, or the arguments make no sense.
            BadValue: The object cannot be sent, or has no attribute that is to stay clear.
        """
        sign, seal_to, clear = keys.sign, keys.seal_to, keys.clear
        if isinstance(seal_to, str) or isinstance(clear, str):
            raise UsageError("seal_to and clear take lists of names, not one str")
        if clear and seal_to is None:
            raise UsageError("clear says what stays readable beside what is sealed: give seal_to")
        told = dict(headers or {})
        if any(name in told for name in (SIGNED, SEALED)):
            raise BadValue("the headers hold a signature or an envelope: publish them as they are")
        signer = self._folder.pair(sign) if isinstance(sign, str) else sign
        if seal_to is not None:
            receivers = [self._receiver(one) for one in seal_to]
            obj = self._sealed(obj, receivers, clear, signer)
            told[SEALED] = encoded_ids([one.id for one in receivers])
        if signer is not None:
            type_, body, _ = codec.encode(obj)
            now_s = self._wall_s()
            signature = event_seal.sign(signer, self._bus, subject, type_, body, now_s)
            told[SIGNED] = encoded_signature(signature)
        return obj, told

    def prepared_many(
        self,
        events: Iterable[Publication],
        headers: Mapping[str, HeaderValue],
        keys: ProducerKeys,
        space: str,
    ) -> Iterator[Publication]:
        """The same for many events, whose subjects will begin with `space`."""
        for subject, obj, *own in events:
            made, told = self.prepared(space + subject, obj, own[0] if own else headers, keys)
            yield subject, made, told

    def _sealed(
        self,
        obj: Any,
        receivers: list[PublicEventKey],
        clear: Collection[str],
        signer: EventKey | None,
    ) -> Any:
        type_, body, _ = codec.encode(obj)
        signed_by = b"" if signer is None else signer.id
        random = os.urandom(event_seal.RANDOM_BYTES)
        sealed = event_seal.seal(body, type_, clear, receivers, signed_by, random)
        return codec.decode(type_, sealed, id_of(obj) if isinstance(obj, DataObject) else None)

    def _receiver(self, one: str | PublicEventKey) -> PublicEventKey:
        return self._folder.public(one) if isinstance(one, str) else one
