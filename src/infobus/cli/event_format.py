"""`infobus sub --format`: each event as a line of the user's own making."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from infobus import Event, UsageError
from infobus.cli.lines import to_json
from infobus.cli.marks import attributes_of
from infobus.objects import DataObject
from infobus.objects.sealed import SEALED
from infobus.printable import printable

ABSENT = "-"
_NOTHING: Any = object()
_FIELD = re.compile(r"(?P<head>\w+)(?P<keys>(\[[^\[\]]+\])*)")
_HEADS: dict[str, Callable[[Event], Any]] = {
    "subject": lambda event: event.subject,
    "type": lambda event: event.type if event.type is not None else _NOTHING,
    "data": lambda event: attributes_of(event.data),
    "headers": lambda event: dict(event.headers),
    "time": lambda event: _moment(event.time),
    "priority": lambda event: event.priority,
    "id": lambda event: event.id,
    "sender": lambda event: event.sender,
    "seq": lambda event: event.seq,
}


class EventFormat:
    """A text with fields, such as `{subject}` and `{data[headline]}`, which events fill in.

    Values are those of strangers: they are spelled out, and cannot reach beyond their event.
    """

    def __init__(self, text: str) -> None:
        """Raises `UsageError` if it cannot be read."""
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise UsageError(f"--format {text!r}: {error}; write {{{{ for a brace") from None
        self._parts: list[tuple[str, tuple[str, ...]]] = []
        for literal, field, spec, conversion in parts:
            path = () if field is None else _path(field, bool(spec or conversion))
            self._parts.append((literal, path))

    def line(self, event: Event) -> str:
        """The text for an event; what it lacks is `-`."""
        return "".join(
            literal + (_shown(event, path) if path else "") for literal, path in self._parts
        )


def _path(field: str, has_more: bool) -> tuple[str, ...]:
    found = _FIELD.fullmatch(field)
    if found is None or has_more or found["head"] not in _HEADS:
        raise UsageError(
            f"--format: {{{field}}} is no field; there are {', '.join(_HEADS)}, such as "
            "{subject}, {data[headline]} and {headers[trace]}"
        )
    return (found["head"], *re.findall(r"\[([^\[\]]+)\]", found["keys"]))


def _shown(event: Event, path: tuple[str, ...]) -> str:
    value = _HEADS[path[0]](event)
    for key in path[1:]:
        value = _inside(value, key)
    if value is _NOTHING:
        return ABSENT
    if path == ("data",):
        value = {name: one for name, one in value.items() if one is not SEALED}
    return printable(value if isinstance(value, str) else to_json(value))


def _inside(value: Any, key: str) -> Any:
    if isinstance(value, DataObject):
        value = attributes_of(value)
    found = _NOTHING
    if isinstance(value, dict):
        found = value.get(key, _NOTHING)
    elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
        found = value[int(key)]
    return _NOTHING if found is SEALED else found


def _moment(time: float) -> Any:
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a sender's clock may be wrong in any way
        return _NOTHING
