"""What adapters of news feeds share: the supertype of every vendor's stories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from infobus import DataObject


class Source(DataObject):
    """Where a story comes from."""

    name: str
    city: str = ""
    reporter: str = ""


class Story(DataObject):
    """A news story from any vendor."""

    headline: str
    published: datetime
    body: str
    countries: list[str]
    sources: list[Source]


class Bulletin(NamedTuple):
    """A story, and the subject to publish it under."""

    subject: str
    story: Story


@dataclass(frozen=True)
class Skipped:
    """A record that could not be read: where it begins, and why."""

    line: int
    why: str
