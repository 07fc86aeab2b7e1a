"""The interface through which a server reads a ledger, and the choice of a consumer's events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from infobus.errors import BadFilter, BadFrame, BusError
from infobus.headers import decode as decode_headers
from infobus.headers import with_headers
from infobus.objects import codec
from infobus.protocols.frames import transactions
from infobus.protocols.frames.guaranteed import Durable, Entry
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.interest.own_rows import is_keyed
from infobus.subjects import SubjectTrie


class ReadableRecord(Protocol):
    """An event as a ledger stores it."""

    @property
    def subject(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def type(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def object_id(self) -> str | None: ...
    @property
    def expires(self) -> float | None: ...
    @property
    def test(self) -> bool: ...
    @property
    def priority(self) -> str: ...
    @property
    def headers(self) -> bytes | None: ...
    @property
    def origin(self) -> tuple[str, int, str] | None: ...


class ReadableLedger(Protocol):
    """The part of a ledger that a server needs. It shows only what is safe on disk."""

    def read(
        self, after: int, count_max: int, bytes_max: int
    ) -> Sequence[tuple[int, ReadableRecord]]:
        """Return the first records after `after`, ascending; at least one if there is any."""

    def first_since(self, time: float) -> int:
        """Return the least number before which every record, even if gone, is older than `time`.

        If all are older, that is the next number to be written.
        """

    def settle(self, name: str, position: int) -> None:
        """Note, without haste, that the consumer no longer needs anything up to `position`.

        It must not fail: a position that could not be noted is noted with the next one.
        """


def wanting(
    told: Durable,
    decode: Callable[[Any], object],
    may_have: Callable[[str, str], bool] | None = None,
) -> Callable[[ReadableRecord], bool]:
    """Return a function that tests whether a record is for the consumer.

    `may_have` says whether a node may have the events of a subject.

    Raises:
        BadSubject: A pattern is malformed.
    """
    places = choosing(told.patterns, told.where, decode)

    def wants(record: ReadableRecord) -> bool:
        found = places(record) if told.test or not record.test else ()
        if may_have is None or not found:
            return bool(found)
        subjects = subjects_of(record)
        return all(may_have(told.sender, subjects[at]) for at in found)

    return wants


def choosing(
    patterns: Iterable[str], where: str, decode: Callable[[Any], object]
) -> Callable[[ReadableRecord | Entry], tuple[int, ...]]:
    """Return a function that selects the wanted events of a record: their places in it.

    Raises:
        BadSubject: A pattern is malformed.
    """
    wanted: SubjectTrie[None] = SubjectTrie()
    for pattern in patterns:
        wanted.add(pattern, None)
    fits = _filter(where)

    def is_wanted(event: Any) -> bool:
        if not wanted.match(event.subject):
            return False
        try:
            if fits is None:
                return True
            return fits(with_headers(decode(event), decode_headers(event.headers or b"")))
        except BusError:
            return True  # a server that is unsure sends

    def places(record: ReadableRecord | Entry) -> tuple[int, ...]:
        if record.type != GROUP:
            return (0,) if is_wanted(record) else ()
        try:
            events = transactions.decode(record.body).events
        except BadFrame:
            return ()
        return tuple(at for at, event in enumerate(events) if is_wanted(event))

    return places


def subjects_of(record: ReadableRecord | Entry) -> Sequence[str]:
    """Return the subjects of the events of a record: of a transaction, there are several.

    Raises:
        BadFrame: It is a transaction that cannot be read.
    """
    if record.type != GROUP:
        return (record.subject,)
    events = transactions.decode(record.body).events
    return [subject for subject, _ in zip(events.each_subject(), events.bodies, strict=False)]


def _filter(where: str) -> Callable[[object], bool] | None:
    """Return the filter's test; a filter that is not understood here counts as none."""
    from infobus.filters import compile  # late: consumers without a filter need none of it

    try:
        if is_keyed(where):
            from infobus.protocols.interest.keyed_filter import keyed_filter

            return keyed_filter(where).may_match
        return compile(where).matches if where else None
    except BadFilter:
        return None


def types_of(records: Iterable[ReadableRecord | Entry]) -> set[int]:
    """Return the types of all objects in these records, nested ones included."""
    types: set[int] = set()
    bodies: list[bytes] = []
    for record in records:
        if record.type != GROUP:
            types.add(record.type)
            bodies.append(record.body)
            continue
        with suppress(BadFrame):
            events = transactions.decode(record.body).events
            types.update(events.types)
            bodies += events.bodies
    return (types | codec.types_in(bodies)) - {0}


def entry(number: int, record: ReadableRecord) -> Entry:
    """Return the record as it is sent."""
    return Entry(
        number,
        record.subject,
        record.time,
        record.type,
        record.body,
        record.object_id,
        record.expires,
        record.test,
        record.priority,
        record.headers or None,
        record.origin,
    )
