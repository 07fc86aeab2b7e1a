"""Events and values as text: short lines for people, JSON for programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from rich.text import Text

from infobus import DataObject, Event, type_of
from infobus.cli.values import TYPE_KEY
from infobus.objects.data import attribute_values, unknown_attributes

VALUE_LENGTH_MAX = 120


def attributes_of(data: Any) -> dict[str, Any]:
    """The attributes of an object, including those its type here lacks; a dict as it is."""
    if isinstance(data, DataObject):
        return attribute_values(data) | unknown_attributes(data)
    untyped: dict[str, Any] = data
    return untyped


def event_heading(event: Event) -> Text:
    """An event's time, subject and type."""
    try:
        time = datetime.fromtimestamp(event.time).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a sender's clock may be wrong in any way
        time = "??:??:??"
    line = Text(time, "dim")
    line.append(f" {printable(event.subject)}", "bold cyan")
    return line.append(f" {printable(event.type or '-')}", "magenta")


def event_line(event: Event) -> Text:
    """One line for one event: its heading and its attributes."""
    line = event_heading(event)
    for name, value in attributes_of(event.data).items():
        line.append(f" {printable(name)}=", "dim").append(short(value), "not dim")
    return line


def event_json(event: Event) -> str:
    """One event as a line of JSON."""
    record = {
        "subject": event.subject,
        "type": event.type,
        "data": attributes_of(event.data),
        "id": event.id,
        "sender": event.sender,
        "seq": event.seq,
        "time": event.time,
    }
    return to_json(record)


def to_json(value: Any) -> str:
    """`value` as JSON; times in ISO 8601, bytes in base64, nested objects with their type."""
    return msgspec.json.encode(value, enc_hook=_nested).decode()


def _nested(value: object) -> Any:
    assert isinstance(value, DataObject)  # JSON can express everything else that can be published
    return {TYPE_KEY: type_of(value).name, **attributes_of(value)}


def short(value: object) -> str:
    """`value` in few characters, without control characters that a terminal would obey."""
    text = printable(repr(value))
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 3]}..."


def printable(text: str) -> str:
    """`text` with control characters spelled out, because names may come from strangers.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """`text` with its line ends, and all other control characters spelled out."""
    return "\n".join(map(printable, text.split("\n")))
