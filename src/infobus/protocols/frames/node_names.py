"""The names of nodes, checked where they come in: they are logged, printed, and used as keys."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from infobus.errors import BadFrame

_NAME_CHARS_MAX = 120
_NAMES_COUNT_MAX = 4096

NodeName = Annotated[str, Meta(min_length=1, max_length=_NAME_CHARS_MAX)]
Addressee = Annotated[str, Meta(max_length=_NAME_CHARS_MAX)]  # empty: it is not said for whom

_is_name = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_CHARS_MAX}}}").fullmatch


def is_node_name(name: str) -> bool:
    """Whether a node may have this name.

    >>> is_node_name("floor7-4242-9f3a61c2e0b4"), is_node_name("a\\nb"), is_node_name("")
    (True, False, False)
    """
    return _is_name(name) is not None


is_sender = lru_cache(_NAMES_COUNT_MAX)(is_node_name)
"""The same of a `NodeName`, remembered: most frames come from the same few nodes."""


def bad_name(name: str) -> BadFrame:
    """The error that says so, with the name spelled out."""
    return BadFrame(
        f"the name of a node is {name[:_NAME_CHARS_MAX]!a}; expected letters, digits, '_' and '-', "
        f"at most {_NAME_CHARS_MAX}"
    )
