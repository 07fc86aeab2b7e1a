"""What the two adapters have in common: the type of which each vendor's stories are a subtype."""

from __future__ import annotations

from datetime import datetime

from infobus import DataObject


class Source(DataObject):
    """Who says so."""

    name: str
    city: str = ""
    reporter: str = ""


class Story(DataObject):
    """A news story, whoever sent it."""

    headline: str
    published: datetime
    body: str
    countries: list[str]
    sources: list[Source]
