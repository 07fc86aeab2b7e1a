"""The frames about tags (`docs/wire.md` is the specification), and what the members agree on.

They have the same form as those in `wire`, with tags from 60 on. A program asks a node that holds
the table; the nodes that hold it agree on each change by the sequence of their membership.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.items import ClassName, Count, Fingerprint
from infobus.protocols.frames.node_names import Addressee, NodeName, bad_name, is_sender

RIGHTS_COUNT_MAX = 64
"""Patterns of names that may publish, or subscribe, under one tag."""
USERS_COUNT_MAX = 10_000
"""Publishers, or subscribers, that one answer names."""
PUBLISHED_COUNT_MAX = 1_000
"""Tags under which one node says that it publishes; of more it tells the first."""
WANTED_COUNT_MAX = 16
"""Patterns whose tags a node asks for, if the table is too large to have it whole."""

Name = Annotated[str, Meta(max_length=1024)]
Application = Annotated[str, Meta(max_length=120)]  # of a program, or the name of its node
Rights = Annotated[
    tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=RIGHTS_COUNT_MAX)
]
Member = Annotated[str, Meta(max_length=200)]
RequestId = Annotated[str, Meta(min_length=1, max_length=64)]
Act = Literal["create", "change", "delete"]
Why = Literal[
    "", "exists", "not creator", "unknown", "full", "malformed", "no member", "not allowed"
]


class TagTerms(Struct, array_like=True, frozen=True):
    """What a tag governs, as its creator says."""

    type: Annotated[str, Meta(max_length=1024)] = ""  # the name of its type; empty: any object
    fingerprint: Fingerprint = 0
    publish: Rights = ("*",)
    subscribe: Rights = ("*",)
    priority: ClassName = ""  # of events whose publisher asks for none
    max_age: Annotated[float, Meta(ge=0, le=1e10)] = 0.0  # the same; 0: no limit


class TagRow(Struct, array_like=True, frozen=True):
    """One tag of the table."""

    name: Name  # a subject, or `subject.>`
    creator: Application
    declared: TagTerms
    changed: Count  # the version of the table in which it was created or changed last
    host: Member = ""  # the member with which it goes; empty: stays


class TagOperation(Struct, array_like=True, frozen=True):
    """What somebody wants done with the table; members agree on its place in their sequence."""

    id: RequestId
    act: Act
    name: Name
    asker: Application
    host: Member = ""  # the member it asked, if it has no name
    declared: TagTerms = TagTerms()
    force: bool = False  # an operator may delete what others have created


class TagOutcome(Struct, array_like=True, frozen=True):
    """What became of an operation; `why` is empty if it was done."""

    why: Why = ""
    tag: Name = ""  # that stands in the way
    creator: Application = ""  # of that tag
    detail: Annotated[str, Meta(max_length=1000)] = ""


class TagsWanted(Struct, array_like=True, tag=60):
    """I hold the tags that overlap `patterns`, or the `whole` table, as of version `held`.

    That is of a history; 0 says that I hold none yet.

    `asked` counts the changes of `patterns`, and is repeated in `TagsTold`.
    """

    sender: NodeName
    asked: Count
    patterns: Annotated[list[Name], Meta(max_length=WANTED_COUNT_MAX)]
    history: Annotated[str, Meta(max_length=64)] = ""
    held: Count = 0
    whole: bool = False
    is_new: bool = False  # answer, even if there is nothing new


class TagsTold(Struct, array_like=True, tag=61):
    """The tags as of version `upto`: all of them (`since` 0), or what has changed after `since`.

    `member` is what this node is called among the members.
    """

    sender: NodeName
    asked: Count
    member: Member
    history: Annotated[str, Meta(max_length=64)]
    since: Count
    upto: Count
    whole: bool  # these are all tags there are, whatever you asked for
    tags: list[TagRow]
    gone: list[Name] = []
    to: Addressee = ""


class TagRequest(Struct, array_like=True, tag=62):
    """Have this agreed. Repeated, unchanged, until `TagDecided` comes."""

    sender: NodeName
    operation: TagOperation


class TagDecided(Struct, array_like=True, tag=63):
    """The outcome of an operation, which the tags as of `upto` show."""

    sender: NodeName
    id: RequestId
    outcome: TagOutcome
    upto: Count


class Publishes(Struct, array_like=True, tag=64):
    """I publish under these tags; `member` is the one that I ask about tags."""

    sender: NodeName
    version: Count
    member: Member
    tags: Annotated[list[Name], Meta(max_length=PUBLISHED_COUNT_MAX)]


class PublishesKnown(Struct, array_like=True, tag=65):
    """I hold what you publish under, as of this version."""

    sender: NodeName
    version: Count
    to: Addressee = ""


class WhoUses(Struct, array_like=True, tag=66):
    """Who publishes and who subscribes under this tag?"""

    sender: NodeName
    request: Count
    name: Name


class TagUser(Struct, array_like=True, frozen=True, order=True):
    """A node that publishes or subscribes under a tag, and the name of its program."""

    node: NodeName
    application: Application = ""


Users = Annotated[list[TagUser], Meta(max_length=USERS_COUNT_MAX)]


class UsedBy(Struct, array_like=True, tag=67):
    """Those that this node knows of. The lists are weak: they follow what happens, in time."""

    sender: NodeName
    request: Count
    publishers: Users
    subscribers: Users
    to: Addressee = ""


TagMessage = (
    TagsWanted | TagsTold | TagRequest | TagDecided | Publishes | PublishesKnown | WhoUses | UsedBy
)

_BYTES_MAX = 64 * 1024 * 1024
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_decoder: msgspec.msgpack.Decoder[TagMessage] = msgspec.msgpack.Decoder(TagMessage)


def decode(payload: bytes) -> TagMessage | None:
    """Read one frame; None for a kind of frame that a newer minor version has added.

    Raises:
        BadFrame: Anything else that is not such a frame.
    """
    if len(payload) > _BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {_BYTES_MAX} are accepted")
    try:
        message = _decoder.decode(payload)
    except _UNREADABLE as error:
        if payload[1] > UsedBy.__struct_config__.tag:  # type: ignore[operator]
            return None
        raise BadFrame(f"malformed frame (tag {payload[1]}): {error}") from error
    if not is_sender(message.sender):
        raise bad_name(message.sender)
    return message
