"""The data pipeline: the recorder of journals, and the bus as a source and a sink of Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infobus.pipeline.source.source import events, register

__all__ = ["events", "register"]

# Imported on first use: the recorder does not need Spark.
_LATE = {"events": "source.source", "register": "source.source"}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
