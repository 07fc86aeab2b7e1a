"""The subscription language: filters over the attributes of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infobus.filters.filter import Filter, compile

if TYPE_CHECKING:
    from infobus.filters.matcher import Matcher

__all__ = ["Filter", "Matcher", "compile"]


def __getattr__(name: str) -> Any:
    if name == "Matcher":  # It stands on numpy, which most programs with filters do not need.
        from infobus.filters.matcher import Matcher

        return Matcher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
