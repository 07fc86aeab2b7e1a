"""What the tests of journals share: types, and events as a subscription gives them."""

from datetime import UTC, datetime
from typing import Any

from infobus import DataObject, Event
from infobus.stores.journal.journal import Journal, JournalWriter

NOW_S = 1_794_800_000.0


class Source(DataObject, name="journals.Source"):
    name: str
    city: str | None = None


class Agency(Source, name="journals.Agency"):
    staff: int = 0


class Story(DataObject, name="journals.Story"):
    headline: str
    n: int = 0
    price: float | None = None
    topics: list[str] = []  # noqa: RUF012
    prices: dict[str, float] = {}  # noqa: RUF012
    source: Source | None = None
    value: Any = None
    when: datetime | None = None


class Wire(Story, name="journals.Wire"):
    places: list[str] = []  # noqa: RUF012


def event(number: int, data: Any, subject: str = "news.a", **more: Any) -> Event:
    return Event(subject, data, "sender", number, NOW_S + number, number, **more)


def stories(numbers: range) -> list[Event]:
    return [event(n, Story(headline=f"h{n}", n=n), f"news.s{n % 3}") for n in numbers]


def write(folder: Any, *batches: list[Event], **options: Any) -> Journal:
    with JournalWriter.open(folder) as writer:
        for batch in batches:
            writer.append(batch, now_s=NOW_S, **options)
    return Journal.open(folder)


def offsets(selection: Any) -> list[int]:
    return selection.table()["_offset"].to_pylist()


DAY = datetime(2026, 1, 1, tzinfo=UTC)
