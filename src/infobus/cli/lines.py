"""Events as lines: for people, and as JSON for programs."""

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
    """What an object holds, by name, also what its type here does not know; dicts as they are."""
    if isinstance(data, DataObject):
        return attribute_values(data) | unknown_attributes(data)
    untyped: dict[str, Any] = data
    return untyped


def event_heading(event: Event) -> Text:
    """When, under which subject, of which type."""
    try:
        time = datetime.fromtimestamp(event.time).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a sender's clock may say anything
        time = "??:??:??"
    line = Text(time, "dim")
    line.append(f" {printable(event.subject)}", "bold cyan")
    return line.append(f" {printable(event.type or '-')}", "magenta")


def event_line(event: Event) -> Text:
    """One line for one event: its heading, and what is in it."""
    line = event_heading(event)
    for name, value in attributes_of(event.data).items():
        line.append(f" {printable(name)}=", "dim").append(short(value), "not dim")
    return line


def event_json(event: Event) -> str:
    """One JSON object for one event; times inside as ISO 8601, bytes in base64."""
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
    """`value` as JSON; nested objects become JSON objects that name their type."""
    return msgspec.json.encode(value, enc_hook=_nested).decode()


def _nested(value: object) -> Any:
    assert isinstance(value, DataObject)  # all else that can be published, JSON can say
    return {TYPE_KEY: type_of(value).name, **attributes_of(value)}


def short(value: object) -> str:
    """`value` in few characters, with nothing in it that a terminal would obey."""
    text = printable(repr(value))
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 3]}..."


def printable(text: str) -> str:
    """`text` with control characters spelled out: names come from strangers too.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
