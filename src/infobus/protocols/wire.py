"""The frames that nodes send each other, and their bytes (`docs/wire.md` is the specification).

A frame is one MessagePack array whose first element is its tag. Readers skip elements they do
not know at the end of an array, and skip frames whose tag they do not know, so adjacent minor
versions interoperate. `Interest` and `Beat` carry the version at a fixed place, in every major
version, so that a peer of another major version is recognised and refused aloud.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat, zip_longest
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from infobus.errors import BadFrame, IncompatiblePeer
from infobus.protocols.guaranteed_wire import GuaranteedMessage

WIRE_MAJOR = 1
WIRE_MINOR = 0
#: Nothing larger is taken from the network; the engine would have to hold it whole in memory.
FRAME_BYTES_MAX = 64 * 1024 * 1024
#: A longer filter is not told to peers: its pattern counts as unfiltered.
FILTER_CHARS_MAX = 64 * 1024

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Fingerprint = Annotated[int, Meta(ge=0)]  # MessagePack ends at 64 bits
NodeName = Annotated[str, Meta(min_length=1, max_length=200)]
ChannelName = Annotated[str, Meta(max_length=4096)]
Subject = Annotated[str, Meta(max_length=4096)]
Pattern = Annotated[str, Meta(max_length=4096)]
Filter = Annotated[str, Meta(max_length=FILTER_CHARS_MAX)]
Wire = tuple[Count, Count]


class Item(NamedTuple):
    """One event. The object stays encoded until somebody looks at it."""

    subject: str
    number: int  # of the sender's events, over all routes: names the event
    time: float
    type: int  # fingerprint of its type; 0 for an untyped notification
    body: bytes
    object_id: str | None = None  # only where it is not the event's own id


class Items(Struct, array_like=True, gc=False):
    """A run of events, by columns: what most events of a run share is said once.

    `subjects` and `types` have one entry for all events, or one for each. `numbers` has one
    for each, or just the first if they follow one another.
    """

    subjects: list[Subject]
    numbers: list[Count]
    times: list[float]
    types: list[Fingerprint]
    bodies: list[bytes]
    object_ids: dict[Count, str] = {}  # position in the run -> id, where there is one

    @classmethod
    def of(cls, items: Sequence[tuple[Any, ...]]) -> Items:
        """The run of these events.

        >>> run = Items.of([Item("a", 7, 0.5, 0, b"x"), Item("a", 8, 0.7, 0, b"y")])
        >>> run.subjects, run.numbers, run.times, run.types, run.bodies
        (['a'], [7], [0.5, 0.7], [0], [b'x', b'y'])
        """
        if not items:
            return cls([], [], [], [], [])
        if len(items) == 1:  # as usual when there is time
            subject, number, time, type_, body, object_id = items[0]
            named = {0: object_id} if object_id else {}
            return cls([subject], [number], [time], [type_], [body], named)
        subjects, numbers, times, types, bodies, ids = zip(*items, strict=True)
        count = len(bodies)
        first = numbers[0]
        if numbers[-1] - first == count - 1 and numbers == tuple(range(first, first + count)):
            numbers = (first,)
        if subjects.count(subjects[0]) == count:
            subjects = subjects[:1]
        if types.count(types[0]) == count:
            types = types[:1]
        object_ids = {}
        if ids.count(None) != count:
            object_ids = {at: object_id for at, object_id in enumerate(ids) if object_id}
        return cls(
            list(subjects), list(numbers), list(times), list(types), list(bodies), object_ids
        )

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Item]:
        columns = zip(
            self.each_subject(),
            self.each_number(),
            self.times,
            self.each_type(),
            self.bodies,
            strict=False,
        )
        ids = self.object_ids
        return (Item(*event, ids.get(at)) for at, event in enumerate(columns))

    def __getitem__(self, part: slice) -> Items:
        positions = range(*part.indices(len(self.bodies)))
        if not positions or positions.step != 1:
            return Items([], [], [], [], [])
        start = positions.start
        subjects, types = self.subjects, self.types
        return Items(
            subjects[part] if len(subjects) > 1 else subjects,
            self.numbers[part] if len(self.numbers) > 1 else [self.numbers[0] + start],
            self.times[part],
            types[part] if len(types) > 1 else types,
            self.bodies[part],
            {at - start: id for at, id in self.object_ids.items() if at in positions},
        )

    def at(self, places: Sequence[int]) -> Items:
        """The events at these places."""
        numbers, ids = self.each_number(), self.object_ids
        return Items(
            [self.subjects[at] for at in places] if len(self.subjects) > 1 else self.subjects,
            [numbers[at] for at in places],
            [self.times[at] for at in places],
            [self.types[at] for at in places] if len(self.types) > 1 else self.types,
            [self.bodies[at] for at in places],
            {new: ids[at] for new, at in enumerate(places) if at in ids} if ids else ids,
        )

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

    def is_whole(self) -> bool:
        """Whether the columns are as long as they must be."""
        count = len(self.bodies)
        one = 1 if count else 0
        return (
            len(self.times) == count
            and (len(self.subjects) == one or len(self.subjects) == count)
            and (len(self.numbers) == one or len(self.numbers) == count)
            and (len(self.types) == one or len(self.types) == count)
        )


class Data(Struct, array_like=True, tag=1, gc=False):
    """Events `first`, `first + 1`, ... of a route; `first` is 0 for best effort."""

    sender: NodeName
    channel: ChannelName
    first: Count
    items: Items
    descriptors: list[bytes] = []


class Ack(Struct, array_like=True, tag=2):
    """Of each channel, everything before the number has come; `held` if that is so on purpose."""

    sender: NodeName
    nexts: dict[ChannelName, Count]
    held: bool = False


class Ask(Struct, array_like=True, tag=3):
    """Please send events `first` to `last` of your channel again."""

    sender: NodeName
    channel: ChannelName
    first: Count
    last: Count


class Gone(Struct, array_like=True, tag=4):
    """Events `first` to `last`, which you asked for, are no longer kept."""

    sender: NodeName
    channel: ChannelName
    first: Count
    last: Count


class Beat(Struct, array_like=True, tag=5):
    """I am here: my interest's version, and the next number of routes not wholly confirmed."""

    sender: NodeName
    wire: Wire
    interest: Count
    nexts: dict[ChannelName, Count] = {}


class Interest(Struct, array_like=True, tag=6):
    """My rows as of `version`, as changes to what they were at `since` (0: everything).

    `welcome` is the one that you gave me last. After you have given me up you take my rows only
    under your new welcome, so that I know of the break before I count on you again.

    A row is a pattern and a filter. `filters` belong to `added`, one by one; where there are
    fewer, the others have none. Of the patterns in `removed` no row is left; `dropped` are rows
    that are gone while others of their patterns stay. Whoever reads patterns alone, as minor
    version 0 did, sees at least what is wanted.
    """

    sender: NodeName
    wire: Wire
    depth: Count
    since: Count
    version: Count
    added: list[Pattern]
    removed: list[Pattern] = []
    welcome: Count = 0
    filters: list[Filter] = []
    dropped: list[tuple[Pattern, Filter]] = []

    def rows(self) -> list[tuple[str, str]]:
        """The rows added."""
        return list(zip_longest(self.added, self.filters[: len(self.added)], fillvalue=""))


class Known(Struct, array_like=True, tag=7):
    """I hold your rows as of `version` (0: none), and my next numbers on channels they touch.

    `welcome` names this acquaintance (0: we have never met). A new one tells the other side
    that it had been given up for dead, and so may have missed events that were never numbered.
    """

    sender: NodeName
    version: Count
    welcome: Count
    nexts: dict[ChannelName, Count] = {}
    descriptors: list[bytes] = []


class WantTypes(Struct, array_like=True, tag=8):
    """Send me the descriptors of these types, if you have them."""

    sender: NodeName
    types: list[Fingerprint]


class Types(Struct, array_like=True, tag=9):
    """Descriptors that were asked for."""

    sender: NodeName
    descriptors: list[bytes]


class Bye(Struct, array_like=True, tag=10):
    """I leave on purpose; forget me at once. `nexts` as in `Beat`: nothing more will come."""

    sender: NodeName
    nexts: dict[ChannelName, Count] = {}


class WantState(Struct, array_like=True, tag=11):
    """A newcomer's subscription asks for the initial state of what it subscribed to."""

    sender: NodeName
    request: Count
    patterns: list[Pattern]


class State(Struct, array_like=True, tag=12):
    """Initial state, as it was right after the numbers given; later events follow it."""

    sender: NodeName
    request: Count
    lasts: dict[ChannelName, Count]
    items: Items
    descriptors: list[bytes] = []


class WantRows(Struct, array_like=True, tag=13):
    """Tell me all your rows again: I had let some of them go, and publish there now."""

    sender: NodeName


Message = (
    Data
    | Ack
    | Ask
    | Gone
    | Beat
    | Interest
    | Known
    | WantTypes
    | Types
    | Bye
    | WantState
    | State
    | WantRows
    | GuaranteedMessage
)


class _Prefix(Struct, array_like=True):
    tag: int
    sender: str
    wire: Raw = Raw(b"\x90")


_KNOWN_TAGS = frozenset(kind.__struct_config__.tag for kind in get_args(Message))
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_VERSIONED = frozenset({Beat, Interest})
_CARRIERS = frozenset({Data, State})
_VERSIONED_TAGS = (5, 6)
_encoder = Encoder()
_decoder: Decoder[Message] = Decoder(Message)
_prefix_decoder = Decoder(_Prefix)
_version_decoder = Decoder(list[int])

encode = _encoder.encode
"""The bytes of a message."""


def decode(payload: bytes) -> Message | None:
    """Read one frame; None for a kind of frame that a newer minor version has added.

    Raises:
        IncompatiblePeer: The sender speaks another major version.
        BadFrame: Anything else that is not a frame. No other exception leaves here.
    """
    if len(payload) > FRAME_BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {FRAME_BYTES_MAX} are accepted")
    try:
        message = _decoder.decode(payload)
    except _UNREADABLE as error:
        _raise_unless_newer(payload, error)
        return None
    if message.__class__ in _CARRIERS and not message.items.is_whole():
        raise BadFrame("a frame of events whose columns are of different lengths")
    if message.__class__ in _VERSIONED and message.wire[0] != WIRE_MAJOR:
        raise _incompatible(message.sender, message.wire)
    return message


def _raise_unless_newer(payload: bytes, error: Exception) -> None:
    try:
        prefix = _prefix_decoder.decode(payload)
    except _UNREADABLE:
        raise BadFrame(f"not a frame: {error}") from error
    if prefix.tag in _VERSIONED_TAGS:
        _raise_if_incompatible(prefix)
    if prefix.tag in _KNOWN_TAGS or prefix.tag < 1:
        raise BadFrame(f"malformed frame (tag {prefix.tag}): {error}") from error


def _raise_if_incompatible(prefix: _Prefix) -> None:
    try:
        version = _version_decoder.decode(prefix.wire)
    except _UNREADABLE:
        return
    if version and version[0] != WIRE_MAJOR:
        raise _incompatible(prefix.sender, version)


def _incompatible(sender: str, wire: Sequence[int]) -> IncompatiblePeer:
    return IncompatiblePeer(
        f"node {sender[:200]} speaks wire version {wire[0]}, this node speaks {WIRE_MAJOR}: "
        "it is not listened to; upgrade the older of the two",
        sender=sender,
    )
