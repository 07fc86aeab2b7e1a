"""The subscription language: filters over the attributes of events."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from infobus.filters.language.filter import Filter, compile

if TYPE_CHECKING:
    from infobus.filters.algebra.cover import covers, overlaps
    from infobus.filters.algebra.reduce import reduce
    from infobus.filters.matching.matcher import Matcher

__all__ = ["Filter", "Matcher", "compile", "covers", "overlaps", "reduce"]

# Imported on first use: most programs need none of them, and matching loads numpy.
_LATE = {
    "Matcher": "matching.matcher",
    "covers": "algebra.cover",
    "overlaps": "algebra.cover",
    "reduce": "algebra.reduce",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
