"""The Reuters newswire of 1987 as collected: SGML with the wire's control characters.

    <REUTERS TOPICS="YES" ... NEWID="1">
    <DATE>26-FEB-1987 15:01:01.79</DATE>
    <TOPICS><D>cocoa</D></TOPICS> ... <COMPANIES></COMPANIES>
    <TEXT>&#2;
    <TITLE>...</TITLE>
    <DATELINE>    SALVADOR, Feb 26 - </DATELINE><BODY>...
     Reuter
    &#3;</BODY></TEXT>
    </REUTERS>

Not every story has all parts. Briefs have only a title. Unprocessed stories are plain text; their
first line becomes the title. Times are read as UTC.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from infobus import UsageError
from infobus.adapters.stories import Bulletin, Skipped, Source, Story

log = logging.getLogger("infobus")

BEGIN, END = "<REUTERS", "</REUTERS>"
RECORD_CHARS_MAX = 1_000_000
"""A longer record has lost its end."""

_ID = re.compile(r'NEWID="(\d{1,18})"')
_TEXT = re.compile(r"<TEXT[^>]*>(.*)</TEXT>", re.DOTALL)
_ITEM = re.compile(r"<D>(.*?)</D>", re.DOTALL)
_TAG = re.compile(r"</?[A-Z]+>")
_DATE = re.compile(r"(\d{1,2})-([A-Z]{3})-(\d{4})(?: +(\d{1,2}):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
_SIGN_OFF = re.compile(r"\s+reuter\s*$", re.IGNORECASE)
_BYLINE = re.compile(r"^by\s+|,\s*reuters?$", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_IN_SUBJECT = re.compile(r"[^\w-]+")


class ReutersStory(Story):
    """A story as Reuters tagged it."""

    id: int
    date: datetime
    title: str
    topics: list[str]
    places: list[str]
    people: list[str]
    organisations: list[str]
    exchanges: list[str]
    companies: list[str]
    dateline: str


def read_files(paths: Iterable[Path]) -> Iterator[Bulletin | Skipped]:
    """The stories of several files, one after the other.

    Raises:
        UsageError: A file holds no story at all.
    """
    for path in paths:
        is_empty = True
        # Almost everything is ASCII, and Latin-1 accepts any other byte.
        with path.open(encoding="latin-1", newline="\n") as lines:
            for one in read_stories(lines):
                is_empty = False
                yield one
        if is_empty:
            raise UsageError(
                f"{path} is not of the Reuters newswire: no line of it begins with {BEGIN}"
            )


def read_stories(lines: Iterable[str]) -> Iterator[Bulletin | Skipped]:
    """The stories in `lines`, each as soon as its last line has arrived."""
    record: list[str] = []
    first = size = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(BEGIN):
            if record:
                yield Skipped(first, "another story begins inside of it")
            record, first, size = [], number, 0
        elif not record:
            continue  # the document type, or the rest of a record that was too long
        record.append(line)
        size += len(line)
        if size > RECORD_CHARS_MAX:
            yield Skipped(first, f"it has more than {RECORD_CHARS_MAX} characters, and no end")
            record = []
        elif line.rstrip().endswith(END):
            yield _read(first, "".join(record))
            record = []
    if record:
        yield Skipped(first, "the file ended inside of it")


def _read(first: int, record: str) -> Bulletin | Skipped:
    try:
        story = parse(record)
    except ValueError as error:  # includes values that do not fit the attributes
        return Skipped(first, str(error))
    return Bulletin(subject_of(story), story)


def parse(record: str) -> ReutersStory:
    """The story from `<REUTERS ...>` to `</REUTERS>`; raises `ValueError` for a bad record."""
    id = _ID.search(record)
    text = _TEXT.search(record)
    if id is None or text is None:
        raise ValueError(f"expected NEWID and <TEXT>, got {record[:60]!r}")
    date = _moment(_field(record, "DATE"))
    content = text[1]
    body = _clean(_field(content, "BODY"))
    if "<BODY>" not in content and "<TITLE>" not in content:
        body = _clean(_TAG.sub("", content))
    title = " ".join(_clean(_field(content, "TITLE")).split()) or body.partition("\n")[0].strip()
    dateline = " ".join(_clean(_field(content, "DATELINE")).split()).rstrip(" -")
    author = " ".join(_clean(_field(content, "AUTHOR")).split())
    places = _items(record, "PLACES")
    city, reporter = dateline.rpartition(",")[0], _BYLINE.sub("", author)
    return ReutersStory(
        headline=title,
        published=date,
        body=_SIGN_OFF.sub("", body),
        countries=places,
        sources=[Source(name="Reuters", city=city, reporter=reporter)],
        id=int(id[1]),
        date=date,
        title=title,
        topics=_items(record, "TOPICS"),
        places=places,
        people=_items(record, "PEOPLE"),
        organisations=_items(record, "ORGS"),
        exchanges=_items(record, "EXCHANGES"),
        companies=_items(record, "COMPANIES"),
        dateline=dateline,
    )


def subject_of(story: ReutersStory) -> str:
    """The subject for a story: its first topic, or else its first place.

    Such as `news.topic.cocoa`, `news.place.usa`, or `news.other`.
    """
    for kind, words in (("topic", story.topics), ("place", story.places)):
        for word in words:
            element = _NOT_IN_SUBJECT.sub("-", word.lower()).strip("-")
            if element:
                return f"news.{kind}.{element[:100]}"
    return "news.other"


def _field(text: str, tag: str) -> str:
    start = text.find(f"<{tag}>")
    end = text.find(f"</{tag}>", start)
    return text[start + len(tag) + 2 : end] if 0 <= start <= end else ""


def _items(record: str, tag: str) -> list[str]:
    found = (_clean(item) for item in _ITEM.findall(_field(record, tag)))
    return [item for item in found if item]


def _clean(text: str) -> str:
    """`text` without entities and without the wire's control characters."""
    return _CONTROL.sub("", html.unescape(text)).strip()


def _moment(text: str) -> datetime:
    found = _DATE.search(text.upper())
    if found is None or found[2] not in _MONTHS:
        raise ValueError(f"expected a date such as 26-FEB-1987 15:01:01.79, got {text[:60]!r}")
    day, _, year, hour, minute, second, fraction = found.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    micros = int((fraction or "0").ljust(6, "0"))
    date = datetime(int(year), _MONTHS.index(found[2]) + 1, int(day), tzinfo=UTC)
    try:
        if hour is None and text[found.end() :].strip():
            raise ValueError("there is a time, but not of this form")
        return date.replace(hour=clock[0], minute=clock[1], second=clock[2], microsecond=micros)
    except ValueError:
        # Some clocks were wrong, but the day is right.
        log.warning("the hour of %r does not exist; the story is dated 00:00", text.strip()[:60])
        return date
