"""Events and values as text: short lines for people, JSON for programs."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec
from rich.text import Text

from infobus import DataObject, DurableEvent, Event, type_of
from infobus.cli.marks import attributes_of, marked, marked_attributes
from infobus.cli.values import TYPE_KEY
from infobus.objects.classes import descriptors_of
from infobus.objects.codec import carried
from infobus.objects.sealed import SEALED, SEALED_PART
from infobus.printable import printable, printable_json
from infobus.security.event_marks import SEALED as SEALED_FOR
from infobus.security.event_marks import SIGNED

VALUE_LENGTH_MAX = 120


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
        if name == SEALED_PART:
            continue
        line.append(f" {printable(name)}=", "dim").append(short(value), "not dim")
    return line.append(headers_text(event), "dim")


def headers_text(event: Event) -> str:
    """What is said beside the object, in brackets; nothing if nothing is."""
    told = ["sealed"] if event.is_sealed else []
    told += [f"signed by {event.signed_by}"] if event.signed_by else []
    told += [
        f"{printable(name)}={short(value)}"
        for name, value in event.headers.items()
        if name not in (SIGNED, SEALED_FOR)
    ]
    return f" [{', '.join(told)}]" if told else ""


def event_json(event: Event, described: set[int] | None = None) -> str:
    """One event as a line of JSON, which `infobus pub -` publishes again.

    Of types that are not yet in `described`, the line also has the descriptors, so that it can be
    published where nobody knows them; then they are added.
    """
    record: dict[str, Any] = {
        "subject": event.subject,
        "type": event.type,
        "data": {k: v for k, v in marked_attributes(event.data).items() if v is not SEALED},
        "id": event.id,
        "sender": event.sender,
        "seq": event.seq,
        "time": event.time,
        "priority": event.priority,
    }
    if event.via:
        record["via"] = event.via
    if event.signed_by:
        record["signed_by"] = event.signed_by
    if event.headers:
        record["headers"] = marked(dict(event.headers))
    if isinstance(event, DurableEvent):
        record["deliveries"] = event.deliveries
    data = event.data if isinstance(event.data, dict) else carried(event.data)
    if described is not None and (new := _types_in(data) - described):
        record["descriptors"] = [base64.b64encode(one).decode() for one in descriptors_of(new)]
        described |= new
    return to_json(record)


def _types_in(value: Any) -> set[int]:
    """The fingerprints of the types of an object, and of the objects inside it."""
    if isinstance(value, dict):
        return set().union(*map(_types_in, value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(_types_in, value))
    if isinstance(value, DataObject):
        inside = _types_in(attributes_of(value))
        return inside | {type_of(value).fingerprint}
    return set()


def to_json(value: Any) -> str:
    """`value` as JSON; times in ISO 8601, bytes in base64, nested objects with their type."""
    return printable_json(msgspec.json.encode(value, enc_hook=_nested).decode())


def _nested(value: object) -> Any:
    assert isinstance(value, DataObject)  # JSON can express everything else that can be published
    return {TYPE_KEY: type_of(value).name, **attributes_of(value)}


def short(value: object) -> str:
    """`value` in few characters, without control characters that a terminal would obey."""
    text = printable(repr(value))
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[: VALUE_LENGTH_MAX - 3]}..."
