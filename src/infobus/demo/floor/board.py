"""What the news monitor knows: objects by id, their properties, and a caption.

Nothing here knows what a story is. The monitor knows objects with attributes, and Property
objects that annotate them. It learns everything else by introspection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from infobus import DataObject, Event, Property, id_of, type_of

ENTRY_COUNT_MAX = 500
HOLD_S = 5.0  # how long a selection or an important caption stays


@dataclass
class BoardEntry:
    """One object on the screen."""

    id: str
    subject: str
    obj: DataObject
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass
class Board:
    """The monitor's state. Time comes in as `now_s`."""

    entries: dict[str, BoardEntry] = field(default_factory=dict)  # the oldest first
    selected: str | None = None
    is_following: bool = True  # the selection follows the newest
    caption: str = "waiting for stories on news.>"
    programs_count: int = 1
    types_seen: Counter[str] = field(default_factory=Counter)
    property_count: int = 0
    pipeline: str = ""  # its progress, if there is one
    _phase: str = ""
    _early: dict[str, dict[str, Any]] = field(default_factory=dict)  # properties before objects
    _selected_at_s: float = 0.0
    _caption_until_s: float = 0.0

    def take(self, event: Event, now_s: float) -> list[str]:
        """Take in one event; returns the news as lines of text."""
        if isinstance(event.data, Property):
            return self._take_property(event.data, now_s)
        id = id_of(event.data)
        if id is None or id in self.entries:  # initial state may repeat objects
            return []
        lines = self._meet_type(event.data, now_s)
        self.entries[id] = BoardEntry(id, event.subject, event.data, self._early.pop(id, {}))
        if len(self.entries) > ENTRY_COUNT_MAX:
            self.entries.pop(next(iter(self.entries)))
        self._say(f"A story arrives under {event.subject}.", now_s)
        self.tick(now_s)
        return [*lines, f"{event.subject} {type_of(event.data).name}: {title_of(event.data)}"]

    def _meet_type(self, obj: DataObject, now_s: float) -> list[str]:
        known = type_of(obj)
        self.types_seen[known.name] += 1
        if self.types_seen[known.name] > 1:
            return []
        above = "".join(f", a kind of {supertype.name}" for supertype in known.supertypes)
        return self._announce(f"A type never seen before: {known.name}{above}.", now_s)

    def _take_property(self, found: Property, now_s: float) -> list[str]:
        self.property_count += 1
        entry = self.entries.get(found.ref)
        if entry is None:
            self._early.setdefault(found.ref, {})[found.name] = found.value
            if len(self._early) > ENTRY_COUNT_MAX:
                self._early.pop(next(iter(self._early)))
            return []
        entry.properties[found.name] = found.value
        lines = [f"{found.name} for {title_of(entry.obj)}: {text_of(found.value)}"]
        if self.property_count > 1:
            return lines
        caption = f"Properties ({found.name}) now attach to stories already on the screen."
        return self._announce(caption, now_s) + lines

    def count_programs(self, count: int, now_s: float) -> list[str]:
        """Note how many programs are on the bus; returns the news as lines of text."""
        before, self.programs_count = self.programs_count, count
        if count == before:
            return []
        change = "come on-line" if count > before else "left"
        return self._announce(f"A program has {change}: {count} on the bus now.", now_s)

    def tell_of_pipeline(self, phase: str, status: str, now_s: float) -> list[str]:
        """Note the progress of the pipeline; the start of a phase is news."""
        self.pipeline = status
        if phase == self._phase:
            return []
        self._phase = phase
        return self._announce(f"The pipeline: {phase}.", now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed: let the selection follow the news."""
        is_due = self.selected is None or now_s - self._selected_at_s >= HOLD_S
        if self.entries and self.is_following and is_due:
            # Annotated objects show more, and properties arrive a moment after their objects.
            newest_first = list(reversed(self.entries.values()))
            annotated = (entry for entry in newest_first if entry.properties)
            self.selected, self._selected_at_s = next(annotated, newest_first[0]).id, now_s

    def move(self, step: int) -> None:
        """Select an older (1) or newer (-1) entry by hand; the selection then stays there."""
        ids = list(reversed(self.entries))
        if ids:
            self.is_following = False
            at = ids.index(self.selected) if self.selected in ids else 0
            self.selected = ids[max(0, min(len(ids) - 1, at + step))]

    def _announce(self, caption: str, now_s: float) -> list[str]:
        self.caption, self._caption_until_s = caption, now_s + HOLD_S
        return [f"-- {caption}"]

    def _say(self, caption: str, now_s: float) -> None:
        if now_s >= self._caption_until_s:
            self.caption = caption


def title_of(obj: DataObject) -> str:
    """The first text among an object's attributes."""
    values = (attribute.get(obj) for attribute in type_of(obj).attributes)
    return next((value for value in values if isinstance(value, str)), type_of(obj).name)


def text_of(value: Any, layout: str = "{}") -> str:
    """Any value as text for people: lists with commas, objects by their attributes."""
    if isinstance(value, DataObject):
        parts = (text_of(attribute.get(value)) for attribute in type_of(value).attributes)
        return " · ".join(part for part in parts if part)
    if isinstance(value, list):
        between = "; " if value and isinstance(value[0], DataObject) else ", "
        return between.join(text_of(item) for item in value)
    try:
        return layout.format(value)
    except ValueError:  # the layout is for another kind of value
        return str(value)
