"""The names of nodes, checked where they come in: they are logged, printed, and used as keys."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta

from infobus.errors import BadFrame

_NAME_CHARS_MAX = 120
_NAMES_COUNT_MAX = 4096

NodeName = Annotated[str, Meta(min_length=1, max_length=_NAME_CHARS_MAX)]
Addressee = Annotated[str, Meta(max_length=_NAME_CHARS_MAX)]
"""The node that a frame is for; empty: it is not said, or it is for everyone."""
ASTRAY = "sent something to another node, which came here; it is ignored"
"""What is complained of the sender of a frame that is for another node."""

_is_name = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_CHARS_MAX}}}").fullmatch


def is_node_name(name: str) -> bool:
    """Whether a node may have this name.

    >>> is_node_name("floor7-4242-9f3a61c2e0b4"), is_node_name("a\\nb"), is_node_name("")
    (True, False, False)
    """
    return _is_name(name) is not None


is_sender = lru_cache(_NAMES_COUNT_MAX)(is_node_name)
"""The same of a `NodeName`, remembered: most frames come from the same few nodes."""


def addressed(message: Any, peer: str) -> Any:
    """Say in `message` that it is for `peer`, if frames of its kind say that; returns it."""
    if "to" in message.__struct_fields__:
        message.to = peer
    return message


def is_astray(message: Any, node: str) -> bool:
    """Whether a frame that came to `node` is for another one: the engine took a wrong way."""
    return getattr(message, "to", "") not in ("", node)


def bad_name(name: str) -> BadFrame:
    """The error that says so, with the name spelled out."""
    return BadFrame(
        f"the name of a node is {name[:_NAME_CHARS_MAX]!a}; expected letters, digits, '_' and '-', "
        f"at most {_NAME_CHARS_MAX}"
    )
