"""The frames of membership: among members, and between members and programs (see `docs/wire.md`).

They have the same form as those in `wire`, with tags from 50 on. What members say to each other is
in one frame, `Said`: who says it to whom, in which group and at which slot, and a body with a tag
of its own. A member's id is its name and its incarnation, such as `oak#2`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.node_names import Addressee, NodeName, bad_name, is_sender

MEMBERS_COUNT_MAX = 256
"""Members of one group."""
OPERATION_BYTES_MAX = 64 * 1024
"""The longest operation that can be agreed on; the longest result, too."""
BATCH_COUNT_MAX = 256
"""Operations that are decided together."""
SNAPSHOT_BYTES_MAX = 32 * 1024 * 1024
"""The largest table that a newcomer can be given."""
_SHOWN_COUNT_MAX = 1000  # programs and complaints that a roster has
_VIEWS_COUNT_MAX = 256  # that one frame tells a program

Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=-1e9, le=1e9)]
MemberId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}#[0-9]{1,16}\Z")]
MemberIdOrNone = Annotated[str, Meta(pattern=r"\A([A-Za-z0-9_-]{1,64}#[0-9]{1,16})?\Z")]
MemberIds = Annotated[tuple[MemberId, ...], Meta(max_length=MEMBERS_COUNT_MAX)]
RequestId = Annotated[str, Meta(min_length=1, max_length=200)]
TableName = Annotated[str, Meta(max_length=64)]
Words = Annotated[str, Meta(max_length=2000)]
OperationBytes = Annotated[bytes, Meta(max_length=OPERATION_BYTES_MAX)]


class GroupLabel(Struct, array_like=True, frozen=True, order=True):
    """Those who share a sequence of decisions.

    `birth` begins with `f` if founders were named for it. Each view that was forced begins another
    `era`, by its `maker`.
    """

    birth: Annotated[str, Meta(max_length=120)] = ""
    era: Count = 0
    maker: Annotated[str, Meta(max_length=120)] = ""


class Ballot(Struct, array_like=True, frozen=True, order=True):
    """One try of one member to have something decided for a slot."""

    number: Count
    member: MemberId


class OperationRequest(Struct, array_like=True, frozen=True):
    """An operation on one of the tables; a second request with the same id changes nothing."""

    id: RequestId
    table: TableName
    operation: OperationBytes


class NewView(Struct, array_like=True, frozen=True, tag=1):
    """From this slot on, these are the members, the most senior first."""

    members: Annotated[MemberIds, Meta(min_length=1)]


class Operations(Struct, array_like=True, frozen=True, tag=2):
    """These operations are applied, in order."""

    requests: Annotated[list[OperationRequest], Meta(max_length=BATCH_COUNT_MAX)]


Decision = NewView | Operations
Accepted = tuple[Ballot, Decision]


class AreYouAlive(Struct, array_like=True, tag=1):
    """I lead, and this is my next round: answer it."""

    ballot: Ballot
    round: Count


class IAmAlive(Struct, array_like=True, tag=2):
    """The answer; a leader also answers so to `Join`."""

    round: Count


class Confirm(Struct, array_like=True, tag=3):
    """A quorum has answered this round, and you have: for `left_s` nobody else can lead."""

    round: Count
    left_s: Seconds


class Prepare(Struct, array_like=True, tag=4):
    """The leader is silent; I want to lead."""

    ballot: Ballot


class Promised(Struct, array_like=True, tag=5):
    """I follow no lower ballot, have accepted this, and hear no leader for so long."""

    ballot: Ballot
    accepted: Accepted | None
    unheard_s: Seconds


class Propose(Struct, array_like=True, tag=6):
    """Accept this for the next slot."""

    ballot: Ballot
    decision: Decision


class Accept(Struct, array_like=True, tag=7):
    """I have, and it is on my disk."""

    ballot: Ballot


class Commit(Struct, array_like=True, tag=8):
    """This was decided for slot `first` and those that follow it."""

    first: Count
    decisions: Annotated[list[Decision], Meta(max_length=BATCH_COUNT_MAX)]


class Here(Struct, array_like=True, tag=9):
    """I am here, at the frame's slot; my view has `size` members."""

    size: Count


class Join(Struct, array_like=True, tag=10):
    """Let me in. You have answered `heard` of these, of which this is number `round`."""

    round: Count
    heard: Count
    may_found: bool


class Snapshot(Struct, array_like=True, tag=11):
    """You are in: this is what was decided up to the frame's slot, and where the others are."""

    members: MemberIds
    nodes: Annotated[dict[MemberId, NodeName], Meta(max_length=MEMBERS_COUNT_MAX)]
    state: Annotated[bytes, Meta(max_length=SNAPSHOT_BYTES_MAX)]


class Outside(Struct, array_like=True, tag=12):
    """You are no member any more, at the frame's slot: join anew."""


class LeaveGroup(Struct, array_like=True, tag=13):
    """Go on without me."""


class Forward(Struct, array_like=True, tag=14):
    """Have these operations decided."""

    requests: Annotated[list[OperationRequest], Meta(max_length=BATCH_COUNT_MAX)]


class NameTaken(Struct, array_like=True, tag=15):
    """A member with your name is alive, on another node."""

    node: NodeName


Body = (
    AreYouAlive
    | IAmAlive
    | Confirm
    | Prepare
    | Promised
    | Propose
    | Accept
    | Commit
    | Here
    | Join
    | Snapshot
    | Outside
    | LeaveGroup
    | Forward
    | NameTaken
)


class Said(Struct, array_like=True, tag=50):
    """What one member says to another; `whom` is empty if it does not know whom it speaks to."""

    sender: NodeName
    member: MemberId
    whom: MemberIdOrNone
    group: GroupLabel
    slot: Count
    body: Body


class Candidate(Struct, array_like=True, frozen=True):
    """A program that wants to be the primary of a service; the one of the highest rank is."""

    id: RequestId
    service: Annotated[str, Meta(max_length=1024)]
    rank: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0


class Follow(Struct, array_like=True, tag=51):
    """A program asks a member for the views after number `after` of `group`, and how it stands.

    `heard_s` is how long ago its check has passed, where it has one: above `for_s` it is hung.
    """

    sender: NodeName
    number: Count
    group: GroupLabel
    after: Count
    candidates: Annotated[list[Candidate], Meta(max_length=_SHOWN_COUNT_MAX)] = []
    program: Words = ""
    heard_s: Seconds = 0.0
    for_s: Seconds = 0.0
    is_leaving: bool = False


class NumberedView(Struct, array_like=True, frozen=True):
    """A view; the numbers of a group are consecutive, from 1."""

    number: Count
    members: MemberIds


class ViewsTold(Struct, array_like=True, tag=52):
    """The answer to `Follow`, also sent without being asked (`number` 0) when there is news.

    The member is stable for `left_s` more, at least; `why` says why it is not. If `is_anew`, the
    views do not continue those that the program knows. `primary_of` are the program's candidates
    that are primary now.
    """

    sender: NodeName
    number: Count
    member: MemberId
    group: GroupLabel
    after: Count
    views: Annotated[list[NumberedView], Meta(max_length=_VIEWS_COUNT_MAX)]
    is_anew: bool
    left_s: Seconds
    why: Words
    heartbeat_s: Seconds
    primary_of: Annotated[list[RequestId], Meta(max_length=_SHOWN_COUNT_MAX)] = []
    nodes: Annotated[dict[MemberId, NodeName], Meta(max_length=MEMBERS_COUNT_MAX)] = {}
    to: Addressee = ""


class Decide(Struct, array_like=True, tag=53):
    """A program asks a member to have an operation decided; it repeats that until it is."""

    sender: NodeName
    request: OperationRequest


class Decided(Struct, array_like=True, tag=54):
    """It was, with this result."""

    sender: NodeName
    id: RequestId
    result: bytes


class WantRoster(Struct, array_like=True, tag=55):
    """Tell me what you know about members and programs; with `force`, make a view first."""

    sender: NodeName
    request: Count
    force: bool = False
    to: Addressee = ""


class ProgramState(Struct, array_like=True, frozen=True):
    """A program that asks a member for views."""

    node: NodeName
    name: Words
    is_hung: bool
    primary_of: Annotated[list[str], Meta(max_length=_SHOWN_COUNT_MAX)] = []


class Roster(Struct, array_like=True, tag=56):
    """The answer: how the member sees the world."""

    sender: NodeName
    request: Count
    member: MemberId
    group: GroupLabel
    slot: Count
    view: NumberedView
    leader: MemberIdOrNone
    why: Words  # it is not stable; empty if it is
    heartbeat_s: Seconds
    nodes: Annotated[dict[MemberId, NodeName], Meta(max_length=MEMBERS_COUNT_MAX)]
    programs: Annotated[list[ProgramState], Meta(max_length=_SHOWN_COUNT_MAX)]
    complaints: Annotated[list[tuple[Words, Words]], Meta(max_length=_SHOWN_COUNT_MAX)]
    to: Addressee = ""


MembershipFrame = Said | Follow | ViewsTold | Decide | Decided | WantRoster | Roster

MEMBERSHIP_TAGS = range(50, 60)
"""Some are for later versions."""
_decoder: msgspec.msgpack.Decoder[MembershipFrame] = msgspec.msgpack.Decoder(MembershipFrame)
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def decode_membership(payload: bytes) -> MembershipFrame | None:
    """Read one frame; None for a kind of frame that a newer minor version has added.

    Raises:
        BadFrame: Anything else that is not such a frame.
    """
    if len(payload) > 2 * SNAPSHOT_BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {2 * SNAPSHOT_BYTES_MAX} are taken")
    try:
        message = _decoder.decode(payload)
    except _UNREADABLE as error:
        if payload[1] > Roster.__struct_config__.tag:  # type: ignore[operator]
            return None
        raise BadFrame(f"malformed frame (tag {payload[1]}): {error}") from error
    if not is_sender(message.sender):
        raise bad_name(message.sender)
    return message
