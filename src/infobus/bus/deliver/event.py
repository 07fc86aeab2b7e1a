"""What a subscription hands out: one event, with where it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct
from msgspec.structs import replace

from infobus.errors import BadFrame
from infobus.headers import NO_HEADERS, Headers, readable, with_headers
from infobus.headers import decode as decode_headers
from infobus.objects import DataObject, runs, spelled, type_of
from infobus.objects.codec import Mismatched, reader_for
from infobus.objects.registry import natives, twins
from infobus.objects.sealed import is_sealed
from infobus.protocols.frames import transactions
from infobus.protocols.frames.wire import Items
from infobus.subjects import TEST_SPACE

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Data = TypeVar("Data", default=Any)  # so `Event` alone is an event of anything
else:
    from typing import TypeVar

    Data = TypeVar("Data")

_TEST_CHANNEL = TEST_SPACE.rstrip(".")

OnBadObject = Callable[[str, BadFrame | Mismatched], Any]
"""Called with the sender of an object that cannot be read, or that no class here can hold. What it
returns stands in for the object; None leaves the event out."""

READ_COUNT = 64
"""Events of a long run that are decoded at once; they take some 30 KiB."""


class Run(Struct, frozen=True, gc=False):
    """Events of one sender and lane on their way to one or more subscriptions."""

    sender: str
    lane: str
    seqs: Sequence[int]  # one for each event; 0 for best effort
    items: Items
    initial: bool = False  # initial state
    is_sifted: bool = True  # a subscription's filter has been asked already
    places: tuple[int, ...] = ()  # of a transaction, the events that are wanted
    class_: str = ""  # of the lane it came on; empty: the default class
    principal: str = ""  # who is behind the sender, on a secured bus

    def part(self, start: int, end: int | None) -> Run:
        """Some of the events."""
        return replace(self, seqs=self.seqs[start:end], items=self.items[start:end])

    def at(self, places: Sequence[int]) -> Run:
        """The events at these places."""
        seqs = [self.seqs[place] for place in places]
        return replace(self, seqs=seqs, items=self.items.at(places))


class Event(Struct, Generic[Data], frozen=True, gc=False):
    """One published object as a subscriber gets it.

    `seq` numbers the sender's events of this class on this channel without gaps, except where a
    loss was reported or events grew too old; `time` is the sender's clock in seconds since 1970;
    `priority` is the class that its supplier gave it; `initial` marks initial state that a
    producer handed to a newcomer, as of the event numbered `seq`; `test` marks events of a
    program under development; `guaranteed` those that are in a ledger, too; `headers` are what its
    supplier said beside the object. `sender`, `number` and `time` are those of its supplier, also
    if it came from another bus; then `via` is the router's node that brought it, whose events `seq`
    counts, and else empty. `signed_by` is the name of the key that has signed the event, to a
    subscription that asks for signatures; to others it is empty, whatever the event says.
    On a secured bus `principal` is who published it, or the router's if it came from another bus:
    nobody else can have sent it. On an open bus it is empty.

    To type checkers, `Event[Order]` is one whose `data` is an `Order`.
    """

    subject: str
    data: Data
    sender: str
    seq: int
    time: float
    number: int
    priority: str = "regular"
    initial: bool = False
    test: bool = False
    guaranteed: bool = False
    headers: Headers = NO_HEADERS
    via: str = ""
    signed_by: str = ""
    principal: str = ""

    @property
    def id(self) -> str:
        """The event's name, the same for every subscriber, on every bus, and across replays."""
        return spelled((self.sender, self.number))

    @property
    def type(self) -> str | None:
        """The name of the object's type; None for a plain dict, and for a transaction."""
        if isinstance(self.data, DataObject) or self.data.__class__ in twins:
            return type_of(self.data).name
        return None

    @property
    def is_sealed(self) -> bool:
        """Whether some of the object is sealed, for keys that the subscription does not hold."""
        return is_sealed(self.data)


class Transaction(Struct, frozen=True, gc=False):
    """Several events as one value: what a subscription gets of a transaction, in order.

    It holds all events of the transaction that the subscription asked for, and no others.
    """

    events: tuple[Event, ...]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


def weight_of(items: Items) -> int:
    """How much room a run takes in a queue: one per event, and one more for every 2 KiB.

    So a queue that is bounded by a number is bounded in memory, too. Frames are closed by the
    event that makes them large, so in a long run only the last one can be.
    """
    bodies = items.bodies
    count = len(bodies)
    if items.headers:
        extra = sum(len(told) >> 11 for told in items.headers)
        return count + extra + sum(len(body) >> 11 for body in bodies)
    if count == 1:
        return 1 + (len(bodies[0]) >> 11)
    if count > 16:
        return count + (len(bodies[-1]) >> 11)
    return count + sum(len(body) >> 11 for body in bodies)


def objects_of(
    run: Run,
    on_bad_object: OnBadObject,
    start: int = 0,
    end: int | None = None,
) -> tuple[list[Any], bool]:
    """The objects of (a part of) a run, and whether none is left out; those are None."""
    objects, are_whole = _all_objects(run, on_bad_object, start, end)
    if not run.items.headers:
        return objects, are_whole
    for at, encoded in enumerate(islice(run.items.each_headers(), start, start + len(objects))):
        try:
            decode_headers(encoded)
        except BadFrame as error:  # it is not known what its sender wanted to say
            objects[at], are_whole = on_bad_object(run.sender, error), False
    return objects, are_whole


def _all_objects(
    run: Run, on_bad_object: OnBadObject, start: int, end: int | None
) -> tuple[list[Any], bool]:
    sender, items = run.sender, run.items
    if len(items) > 1 and len(items.types) == 1 and not items.object_ids and len(items.origins) < 2:
        numbers = list(items.each_number()[start:end])
        first = next(iter(items.each_first_sender(sender)))
        objects = runs.decode(items.types[0], items.bodies[start:end], first, numbers)
        if objects is not None:
            return objects, True
    objects, are_whole = [], True
    part = items[start:end]
    for item, first in zip(part, part.each_first_sender(sender), strict=False):
        try:
            object_id = item.object_id or (first, item.number)
            objects.append(reader_for(item.type)(item.body, object_id))
        except (BadFrame, Mismatched) as error:
            objects.append(on_bad_object(sender, error))
            are_whole &= objects[-1] is not None
    return objects, are_whole


def seen_of(items: Items, objects: Sequence[Any]) -> Sequence[Any]:
    """The events as filters see them, of which these are the objects."""
    if not items.headers:
        return objects
    told = map(readable, items.each_headers())
    return [
        obj if obj is None else with_headers(obj, headers)
        for obj, headers in zip(objects, told, strict=False)
    ]


def as_sent(sender: str, error: BadFrame | Mismatched) -> Any:
    """What stands in for an object that no class here can hold: the object as it was sent."""
    return error.object if isinstance(error, Mismatched) else None


def events_of(run: Run, on_bad_object: OnBadObject, default_class: str) -> list[Event]:
    """Decode a run, without events whose object cannot be read."""
    items = run.items
    if run.places:
        return _transaction(run, on_bad_object, default_class)
    bodies, sender = items.bodies, run.sender
    is_usual = not (items.qos or items.headers or items.origins)
    if is_usual and len(bodies) == 1 and run.lane[:1] != "~":
        number = items.numbers[0]
        object_id = items.object_ids.get(0) or (sender, number)
        try:
            data = reader_for(items.types[0])(bodies[0], object_id)
            if natives:
                data = native(data)
        except (BadFrame, Mismatched) as error:
            data = on_bad_object(sender, error)
            if data is None:
                return []
        subject, seq, time = items.subjects[0], run.seqs[0], items.times[0]
        class_ = run.class_ or default_class
        if run.principal:
            place = (sender, seq, time, number, class_, run.initial)
            return [Event(subject, data, *place, principal=run.principal)]
        return [Event(subject, data, sender, seq, time, number, class_, run.initial)]
    objects, are_whole = objects_of(run, on_bad_object)
    if natives:
        objects, are_whole = _as_native(objects, sender, on_bad_object), False
    events = list(_events_with(objects, run, default_class))
    return events if are_whole else [event for event in events if event.data is not None]


def native(data: Any) -> Any:
    """What the application gets of an object; raises `Mismatched` if its class refuses it."""
    if data.__class__ not in natives:
        return data
    from infobus.objects.payloads import native

    return native(data)


def _as_native(objects: Iterable[Any], sender: str, on_bad_object: OnBadObject) -> list[Any]:
    found = []
    for obj in objects:
        try:
            found.append(native(obj))
        except Mismatched as error:
            found.append(on_bad_object(sender, error))
    return found


def _events_with(objects: Iterable[Any], run: Run, default_class: str) -> Iterator[Event]:
    """The events of a run, of which these are the objects."""
    items = run.items
    class_ = run.class_ or default_class
    senders = items.each_first_sender(run.sender)
    place = (senders, run.seqs, items.each_time(), items.each_number())
    is_test = run.lane.startswith(_TEST_CHANNEL)
    classes: Iterable[str] = repeat(class_)
    kept: Iterable[bool] = repeat(False)
    if items.qos:
        classes = ((qos and qos.class_) or class_ for qos in items.each_qos())
        kept = (qos is not None and qos.kept for qos in items.each_qos())
    marks: tuple[Iterable[Any], ...] = (classes, repeat(run.initial), repeat(is_test), kept)
    if items.headers:  # those that cannot be read belong to events that are left out
        marks = (*marks, map(readable, items.each_headers()))
    if items.origins:
        told = () if items.headers else (repeat(NO_HEADERS),)
        via = (run.sender if origin else "" for origin in items.each_origin())
        marks = (*marks, *told, via)
    if run.principal:
        if not items.origins:
            marks = (*marks, *(() if items.headers else (repeat(NO_HEADERS),)), repeat(""))
        marks = (*marks, repeat(""), repeat(run.principal))  # who signed is looked at later
    subjects = items.each_subject()
    if is_test:
        subjects = (subject.removeprefix(TEST_SPACE) for subject in subjects)
    return map(Event, subjects, objects, *place, *marks)


class Reading:
    """A long run that is decoded a few events at a time, as its consumer gets to them.

    Objects that are made all at once have left the processor's cache when they are looked at.
    """

    __slots__ = ("_are_whole", "_events", "_on_bad_object", "_run", "left_count")

    def __init__(self, run: Run, on_bad_object: OnBadObject, default_class: str) -> None:
        self.left_count = len(run.items.bodies)
        self._run = run
        self._on_bad_object = on_bad_object
        self._are_whole = True
        parts = map(self._objects_from, range(0, self.left_count, READ_COUNT))
        self._events = _events_with(chain.from_iterable(parts), run, default_class)

    def read(self, count: int | None = READ_COUNT) -> list[Event]:
        """The next few events (all, if None), without those whose object cannot be read."""
        events = list(islice(self._events, count))
        self.left_count -= len(events)
        return events if self._are_whole else [one for one in events if one.data is not None]

    def _objects_from(self, start: int) -> list[Any]:
        end = start + READ_COUNT
        objects, are_whole = objects_of(self._run, self._on_bad_object, start, end)
        self._are_whole &= are_whole
        if natives:
            self._are_whole = False  # for all that is known
            return _as_native(objects, self._run.sender, self._on_bad_object)
        return objects


def _transaction(run: Run, on_bad_object: OnBadObject, default_class: str) -> list[Event]:
    """The wanted events of a group as one; none if some of them cannot be read."""
    group, seq = transactions.decode(run.items.bodies[0]), run.seqs[0]
    seqs = (seq,) * len(run.places)
    qos = run.items.qos[0] if run.items.qos else None
    own = qos.class_ if qos is not None else ""
    class_ = own or run.class_ or default_class
    origins = run.items.origins  # of the whole: its events say none
    inside = replace(group.events.at(run.places), origins=origins)
    inner = Run(run.sender, run.lane, seqs, inside, class_=class_, principal=run.principal)
    events = tuple(events_of(inner, on_bad_object, default_class))
    if len(events) < len(run.places):
        return []
    time = run.items.times[0]
    first = next((one for one in events if isinstance(one.data, Mismatched)), events[0])
    is_mismatched = isinstance(first.data, Mismatched)
    place = (first.sender, seq, time, group.number)
    kept = qos is not None and qos.kept
    marks = (class_, False, first.test, kept)
    data = first.data if is_mismatched else Transaction(events)
    return [Event(first.subject, data, *place, *marks, via=first.via, principal=run.principal)]
