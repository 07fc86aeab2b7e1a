"""The frames that nodes send each other, and their bytes (`docs/wire.md` is the specification).

A frame is one MessagePack array whose first element is its tag. Readers skip unknown elements at
the end of an array, and frames with an unknown tag, so adjacent minor versions interoperate.
`Interest` and `Beat` carry the version at a fixed place, in every major version, so that a peer of
another major version is recognised and refused with a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, get_args

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from infobus.errors import BadFrame, IncompatiblePeer
from infobus.protocols.frames.guaranteed import GuaranteedMessage
from infobus.protocols.frames.items import ClassName, Fingerprint
from infobus.protocols.frames.items import Count as Count
from infobus.protocols.frames.items import Item as Item
from infobus.protocols.frames.items import Items as Items
from infobus.protocols.frames.items import Origin as Origin
from infobus.protocols.frames.items import Qos as Qos
from infobus.protocols.frames.node_names import Addressee, NodeName, bad_name, is_sender

WIRE_MAJOR = 1
WIRE_MINOR = 3
#: Nothing larger is taken from the network; the engine would have to hold it whole in memory.
FRAME_BYTES_MAX = 64 * 1024 * 1024
#: A longer filter is not told to peers: its pattern counts as unfiltered.
FILTER_CHARS_MAX = 64 * 1024

#: Of the frames in `invocation`, which most programs never import; some are for later versions.
SERVICE_TAGS = range(30, 50)
#: Of the frames in `security`, which only nodes of secured buses put.
SECURITY_TAGS = range(90, 97)

LaneName = Annotated[str, Meta(max_length=4096)]
Pattern = Annotated[str, Meta(max_length=4096)]
Filter = Annotated[str, Meta(max_length=FILTER_CHARS_MAX)]
Application = Annotated[str, Meta(max_length=64)]
Wire = tuple[Count, Count]


class Request(Struct, array_like=True, frozen=True):
    """A consumer's request about the events that it gets under a pattern."""

    pattern: Pattern
    class_: ClassName = ""  # how urgent they are to it; empty: as their supplier says
    max_age: Annotated[float, Meta(ge=0)] = 0.0  # seconds; 0: no limit
    max_rate: Annotated[float, Meta(ge=0)] = 0.0  # events a second; 0: no limit


class Data(Struct, array_like=True, tag=1, gc=False):
    """Events `first`, `first + 1`, ... of a route; `first` is 0 for best effort.

    `parted` are nodes that I have given up since the last frame on this lane. Whoever reads its
    own name there was left out of events before these.
    """

    sender: NodeName
    lane: LaneName
    first: Count
    items: Items
    descriptors: list[bytes] = []
    parted: tuple[NodeName, ...] = ()


class Ack(Struct, array_like=True, tag=2):
    """On each lane, everything before the number has arrived; `held`: no more on purpose."""

    sender: NodeName
    nexts: dict[LaneName, Count]
    held: bool = False
    to: Addressee = ""


class Ask(Struct, array_like=True, tag=3):
    """Please send events `first` to `last` of your lane again."""

    sender: NodeName
    lane: LaneName
    first: Count
    last: Count


class Gone(Struct, array_like=True, tag=4):
    """Events `first` to `last`, which you asked for, are no longer stored."""

    sender: NodeName
    lane: LaneName
    first: Count
    last: Count
    to: Addressee = ""


class Beat(Struct, array_like=True, tag=5):
    """I am here: my interest's version, and the next number of routes not wholly confirmed.

    `seen_count` and `seen_hash` say which nodes I see, myself included (0: I do not say).
    """

    sender: NodeName
    wire: Wire
    interest: Count
    nexts: dict[LaneName, Count] = {}
    seen_count: Count = 0
    seen_hash: Count = 0


class Interest(Struct, array_like=True, tag=6):
    """My rows as of `version`, as changes to what they were at `since` (0: everything).

    `welcome` is the last one that you gave me. After you have given me up, you accept my rows only
    under your new welcome, so that I learn of the break before I rely on you again.

    A row is a pattern and a filter. `filters` belong to `added`, one by one; if there are fewer,
    the others have none. No row of the patterns in `removed` is left; `dropped` are rows that are
    removed while others of their patterns stay. A reader that uses patterns only, as minor version
    0 did, sees at least what is wanted.
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
    classes: list[ClassName] = []  # the priority classes of the bus; none: as usual
    requests: list[Request] = []  # all of them, every time
    window: Count = 0  # unconfirmed events that I take of one of your lanes; 0: as you like
    left: dict[LaneName, Count] = {}  # lanes on which I begin anew, by the versions of that
    disowned: Count = 0  # a version that you said you hold, and that I never told
    application: Application = ""  # the name of my program, if it has one
    to: Addressee = ""  # whose welcome that is

    def rows(self) -> list[tuple[str, str]]:
        """The rows added."""
        return list(zip_longest(self.added, self.filters[: len(self.added)], fillvalue=""))


class Known(Struct, array_like=True, tag=7):
    """I hold your rows as of `version` (0: none), and my next numbers on lanes they touch.

    `welcome` identifies this acquaintance (0: we have never met). A new one tells the other side
    that it had been given up for dead, and so may have missed events that were never numbered.
    `joined` are the versions of your rows under which you joined the lanes. `to` is you: all of
    it says nothing to any other node.
    """

    sender: NodeName
    version: Count
    welcome: Count
    nexts: dict[LaneName, Count] = {}
    descriptors: list[bytes] = []
    joined: dict[LaneName, Count] = {}
    to: Addressee = ""


class WantTypes(Struct, array_like=True, tag=8):
    """Send me the descriptors of these types, if you have them."""

    sender: NodeName
    types: list[Fingerprint]


class Types(Struct, array_like=True, tag=9):
    """Descriptors that you asked for."""

    sender: NodeName
    descriptors: list[bytes]


class Bye(Struct, array_like=True, tag=10):
    """I leave on purpose; forget me at once. `nexts` as in `Beat`: nothing more follows.

    `given_up` are nodes that I had taken for dead and not met again: they may have missed more.
    """

    sender: NodeName
    nexts: dict[LaneName, Count] = {}
    given_up: list[NodeName] = []


class WantState(Struct, array_like=True, tag=11):
    """A newcomer's subscription asks for the initial state of what it subscribed to."""

    sender: NodeName
    request: Count
    patterns: list[Pattern]


class State(Struct, array_like=True, tag=12):
    """Initial state, as it was right after the numbers given; later events follow it."""

    sender: NodeName
    request: Count
    lasts: dict[LaneName, Count]
    items: Items
    descriptors: list[bytes] = []
    to: Addressee = ""


class WantRows(Struct, array_like=True, tag=13):
    """Send me all your rows again: I had dropped some of them, and publish there now."""

    sender: NodeName


class Died(Struct, array_like=True, tag=14):
    """I know that this node has died: its link to me broke, and it had no other."""

    sender: NodeName
    node: NodeName


class Seen(Struct, array_like=True, tag=15):
    """I see these nodes, myself included; tell me whom you see, unless this is your answer."""

    sender: NodeName
    nodes: list[NodeName]
    is_answer: bool = False


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
    | Died
    | Seen
    | GuaranteedMessage
)


class _Prefix(Struct, array_like=True):
    tag: int
    sender: NodeName
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
    if not is_sender(message.sender):
        raise bad_name(message.sender)
    if message.__class__ in _CARRIERS and not message.items.is_whole():
        raise BadFrame("a frame of events whose columns do not fit, or whose origins are no names")
    if message.__class__ in _VERSIONED and message.wire[0] != WIRE_MAJOR:
        raise _incompatible(message.sender, message.wire)
    return message


def _raise_unless_newer(payload: bytes, error: Exception) -> None:
    try:
        prefix = _prefix_decoder.decode(payload)
    except _UNREADABLE:
        raise BadFrame(f"not a frame: {error}") from error
    if not is_sender(prefix.sender):
        raise bad_name(prefix.sender)
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
        f"node {sender} speaks wire version {wire[0]}, this node speaks {WIRE_MAJOR}: "
        "it is not listened to; upgrade the older of the two",
        sender=sender,
    )
