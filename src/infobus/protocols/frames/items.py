"""Events on the wire, by columns: a value that most events of a run share is written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Annotated, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from infobus.headers import HEADERS_BYTES_MAX
from infobus.protocols.frames.node_names import NodeName, is_sender

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Fingerprint = Annotated[int, Meta(ge=0)]  # MessagePack ends at 64 bits
Subject = Annotated[str, Meta(max_length=4096)]
ClassName = Annotated[str, Meta(max_length=64)]
#: The bytes of an event's headers (see `infobus.headers`); none if it has none.
HeaderBytes = Annotated[bytes, Meta(max_length=HEADERS_BYTES_MAX)]
BusName = Annotated[str, Meta(min_length=1, max_length=64)]
#: Seconds since 1970; calendars can show it. Neither infinite nor no number at all.
Time = Annotated[float, Meta(ge=-1e10, le=1e11)]


class Qos(Struct, array_like=True, frozen=True, gc=False):
    """The supplier's requests for an event, and how long a raised one stays raised."""

    max_age: Annotated[float, Meta(ge=0)] = 0.0  # seconds since its time; 0: no limit
    class_: ClassName = ""  # its own class, where that is not the one of its lane
    # When it falls back to that class; 0: it is raised for good. Where `class_` is empty: until
    # when it is raised from the class of its lane; 0: it is not.
    raised_until: float = 0.0
    kept: bool = False  # it is in a ledger, too, where durable consumers get it from
    reserved: Count = 0  # the number of its sender's reservation along paths; 0: it has none


class Origin(Struct, array_like=True, frozen=True, gc=False):
    """Where an event was published first, if that was on another bus: it came through routers."""

    sender: NodeName  # its sender there, who gave it its number
    bus: BusName

    def is_good(self) -> bool:
        """Whether both may be names."""
        return is_sender(self.sender) and _may_name_a_bus(self.bus)


@lru_cache(256)
def _may_name_a_bus(name: str) -> bool:
    return name[:1].isalnum() and all(letter.isalnum() or letter in "_.-" for letter in name)


class Item(Struct, frozen=True, gc=False):
    """One event. The object stays encoded until somebody reads it."""

    subject: str
    number: int  # of the sender's events, over all routes: names the event
    time: float
    type: int  # fingerprint of its type; 0 for an untyped notification
    body: bytes
    object_id: str | None = None  # only where it is not the event's own id
    qos: Qos | None = None  # what its supplier asked for
    headers: bytes = b""
    origin: Origin | None = None  # only if it was published on another bus


class Items(Struct, array_like=True, gc=False):
    """A run of events, by columns: a value that most events share is written once.

    `subjects`, `times` and `types` have one entry for all events, or one for each. `numbers` has
    one for each, or just the first if they are consecutive. `qos` has none if nobody asked for
    anything, or one for all, or one for each; so have `headers`, if there are any, and `origins`,
    if any event comes from another bus. Then `numbers` are those of its first sender.
    """

    subjects: list[Subject]
    numbers: list[Count]
    times: list[Time]
    types: list[Fingerprint]
    bodies: list[bytes]
    object_ids: dict[Count, str] = {}  # position in the run -> id, where there is one
    qos: list[Qos | None] = []
    headers: list[HeaderBytes] = []
    origins: list[Origin | None] = []

    @classmethod
    def of(cls, items: Sequence[Item]) -> Items:
        """Return the run of these events.

        >>> run = Items.of([Item("a", 7, 0.5, 0, b"x"), Item("a", 8, 0.7, 0, b"y")])
        >>> run.subjects, run.numbers, run.times, run.types, run.bodies
        (['a'], [7], [0.5, 0.7], [0], [b'x', b'y'])
        """
        count = len(items)
        if count == 1:  # as usual when there is time
            one = items[0]
            named = {0: one.object_id} if one.object_id else {}
            asked: list[Qos | None] = [] if one.qos is None else [one.qos]
            told = [one.headers] if one.headers else []
            times, bodies = [one.time], [one.body]
            begun: list[Origin | None] = [] if one.origin is None else [one.origin]
            return cls(
                [one.subject], [one.number], times, [one.type], bodies, named, asked, told, begun
            )
        if not count:
            return cls([], [], [], [], [])
        subject, type_, first = items[0].subject, items[0].type, items[0].number
        numbers = [item.number for item in items]
        if numbers[-1] - first == count - 1 and numbers == [*range(first, first + count)]:
            numbers = [first]
        subjects, types, object_ids, asked, told, begun = [subject], [type_], {}, [], [], []
        if [  # one look at each, which finds nothing in most runs
            item
            for item in items
            if item.subject is not subject
            or item.type != type_
            or item.object_id is not None
            or item.qos is not None
            or item.headers
            or item.origin is not None
        ]:
            subjects = _shared([item.subject for item in items])
            types = _shared([item.type for item in items])
            object_ids = {at: item.object_id for at, item in enumerate(items) if item.object_id}
            asked = _shared([item.qos for item in items])
            if asked == [None]:
                asked = []
            told = _shared([item.headers for item in items])
            if told == [b""]:
                told = []
            begun = _shared([item.origin for item in items])
            if begun == [None]:
                begun = []
        times, bodies = [item.time for item in items], [item.body for item in items]
        return cls(subjects, numbers, times, types, bodies, object_ids, asked, told, begun)

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Item]:
        columns = zip(
            self.each_subject(),
            self.each_number(),
            self.each_time(),
            self.each_type(),
            self.bodies,
            strict=False,
        )
        ids = self.object_ids
        more = zip(self.each_qos(), self.each_headers(), self.each_origin(), strict=False)
        return (
            Item(*event, ids.get(at), *others)
            for at, (event, others) in enumerate(zip(columns, more, strict=False))
        )

    def __getitem__(self, part: slice) -> Items:
        positions = range(*part.indices(len(self.bodies)))
        if not positions or positions.step != 1:
            return Items([], [], [], [], [])
        start = positions.start
        subjects, types = self.subjects, self.types
        return Items(
            subjects[part] if len(subjects) > 1 else subjects,
            self.numbers[part] if len(self.numbers) > 1 else [self.numbers[0] + start],
            self.times[part] if len(self.times) > 1 else self.times,
            types[part] if len(types) > 1 else types,
            self.bodies[part],
            {at - start: id for at, id in self.object_ids.items() if at in positions},
            self.qos[part] if len(self.qos) > 1 else self.qos,
            self.headers[part] if len(self.headers) > 1 else self.headers,
            self.origins[part] if len(self.origins) > 1 else self.origins,
        )

    def at(self, places: Sequence[int]) -> Items:
        """Return the events at these places."""
        numbers, ids = self.each_number(), self.object_ids
        return Items(
            [self.subjects[at] for at in places] if len(self.subjects) > 1 else self.subjects,
            [numbers[at] for at in places],
            [self.times[at] for at in places] if len(self.times) > 1 else self.times,
            [self.types[at] for at in places] if len(self.types) > 1 else self.types,
            [self.bodies[at] for at in places],
            {new: ids[at] for new, at in enumerate(places) if at in ids} if ids else ids,
            [self.qos[at] for at in places] if len(self.qos) > 1 else self.qos,
            [self.headers[at] for at in places] if len(self.headers) > 1 else self.headers,
            [self.origins[at] for at in places] if len(self.origins) > 1 else self.origins,
        )

    def come_from(self, sender: str, bus: str) -> Items:
        """Return the same events, published by `sender` on `bus` where no other origin is said.

        >>> Items(["a"], [7], [0.5], [0], [b"x"]).come_from("floor7", "plant").origins
        [Origin(sender='floor7', bus='plant')]
        """
        here = Origin(sender, bus)
        return replace(self, origins=[one or here for one in self.origins or [None]])

    def each_subject(self) -> Iterable[str]:
        """The subject of each event in turn."""
        return repeat(self.subjects[0]) if len(self.subjects) == 1 else self.subjects

    def each_type(self) -> Iterable[int]:
        """The type of each event in turn."""
        return repeat(self.types[0]) if len(self.types) == 1 else self.types

    def each_number(self) -> Sequence[int]:
        """The number of each event in turn."""
        count = len(self.bodies)
        if len(self.numbers) == count:
            return self.numbers
        return range(self.numbers[0], self.numbers[0] + count)

    def each_time(self) -> Iterable[float]:
        """The time of each event in turn."""
        return repeat(self.times[0]) if len(self.times) == 1 else self.times

    def each_qos(self) -> Iterable[Qos | None]:
        """Return the request for each event in turn; None for nothing at all."""
        if len(self.qos) > 1:
            return self.qos
        return repeat(self.qos[0] if self.qos else None)

    def each_headers(self) -> Iterable[bytes]:
        """Return the headers of each event in turn, as bytes; none for none."""
        if len(self.headers) > 1:
            return self.headers
        return repeat(self.headers[0] if self.headers else b"")

    def each_origin(self) -> Iterable[Origin | None]:
        """Return where each event in turn comes from; None if from its sender itself."""
        if len(self.origins) > 1:
            return self.origins
        return repeat(self.origins[0] if self.origins else None)

    def each_first_sender(self, sender: str) -> Iterable[str]:
        """Return who published each event in turn, `sender` where nothing else is said."""
        if not self.origins:
            return repeat(sender)
        return (sender if one is None else one.sender for one in self.each_origin())

    def raised_until(self) -> float:
        """Until when any of these events is raised, as a time; 0: none is."""
        return max((qos.raised_until for qos in self.qos if qos is not None), default=0.0)

    def is_plain(self) -> bool:
        """Return whether no event has an age limit, or another class than that of its lane."""
        return not any(qos is not None and (qos.max_age or qos.class_) for qos in self.qos)

    def is_whole(self) -> bool:
        """Return whether the columns have the right lengths, and origins may be names."""
        count = len(self.bodies)
        one = 1 if count else 0
        return (
            (len(self.subjects) == one or len(self.subjects) == count)
            and (len(self.times) == one or len(self.times) == count)
            and (len(self.numbers) == one or len(self.numbers) == count)
            and (len(self.types) == one or len(self.types) == count)
            and (len(self.qos) <= one or len(self.qos) == count)
            and (len(self.headers) <= one or len(self.headers) == count)
            and (not self.origins or self._has_good_origins(one, count))
        )

    def _has_good_origins(self, one: int, count: int) -> bool:
        if len(self.origins) > one and len(self.origins) != count:
            return False
        return all(origin is None or origin.is_good() for origin in self.origins)


def _shared(column: list[T]) -> list[T]:
    """A column with one entry if all its entries are equal."""
    return column[:1] if column.count(column[0]) == len(column) else column
