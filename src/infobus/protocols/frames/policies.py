"""The frames about policies and rights (`docs/wire.md` is the specification).

Nodes of a secured bus tell which version of the policy they hold, and hand it on; and they tell a
node what they did not accept of it. They have the same form as those in `wire`, with tags from 100.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from infobus.errors import BadFrame
from infobus.protocols.frames.items import Count
from infobus.protocols.frames.node_names import NodeName, bad_name, is_sender

POLICY_TAGS = (100, 101, 102, 103)

_BYTES_MAX = 2 * 1024 * 1024
_Words = Annotated[str, Meta(max_length=4096)]


class PolicyHeld(Struct, array_like=True, tag=100):
    """I hold this version of the policy; tell me yours, unless this is your answer."""

    sender: NodeName
    version: Count
    is_answer: bool = False


class WantPolicy(Struct, array_like=True, tag=101):
    """Send me the policy that you hold; mine is older."""

    sender: NodeName


class PolicySent(Struct, array_like=True, tag=102):
    """The signed policy that I hold."""

    sender: NodeName
    policy: bytes


class NotAccepted(Struct, array_like=True, tag=103):
    """I have left out what you did: by the policy that I hold, you may not do it."""

    sender: NodeName
    action: _Words
    subject: _Words
    policy: Count


PolicyMessage = PolicyHeld | WantPolicy | PolicySent | NotAccepted

_decoder: msgspec.msgpack.Decoder[PolicyMessage] = msgspec.msgpack.Decoder(PolicyMessage)


def decode(payload: bytes) -> PolicyMessage:
    """Read one frame.

    Raises:
        BadFrame: These bytes are no such frame. No other exception leaves here.
    """
    if len(payload) > _BYTES_MAX:
        raise BadFrame(f"frame of {len(payload)} bytes; at most {_BYTES_MAX} are accepted")
    try:
        message = _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadFrame(f"malformed frame about a policy: {error}") from error
    if not is_sender(message.sender):
        raise bad_name(message.sender)
    return message
