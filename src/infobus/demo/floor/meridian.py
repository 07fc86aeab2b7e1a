"""The Meridian Wire adapter: stories between tags, with topics and an urgency."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from datetime import date

from infobus.adapters.stories import Bulletin, Source, Story
from infobus.demo.floor.adapter import run
from infobus.demo.floor.feeds import Format, at, one

_HEADER = re.compile(r'<STORY ID="([^"]+)" TIME="([^"]+)" URGENCY="(\d)">')
_FIELD = re.compile(r"<([A-Z]+)>([^<]*)(?:</\1>)?")
_SOURCE = re.compile(r"<SOURCE( .*)>")
_PAIR = re.compile(r' ([A-Z]+)="([^"]*)"')


class MeridianStory(Story):
    """A story as Meridian Wire tags it."""

    meridian_id: str
    urgency: int
    topics: list[str]


def parse(record: list[str], day: date) -> Bulletin:
    """The story in the lines from `<STORY ...>` to `</STORY>`."""
    header = _HEADER.fullmatch(record[0])
    if header is None:
        raise ValueError(f"expected <STORY ID TIME URGENCY>, got {record[0]:.60}")
    identity, time, urgency = header.groups()
    body, rest = _cut_body(record[1:-1])
    fields: dict[str, list[str]] = defaultdict(list)
    sources: list[Source] = []
    for line in rest:
        if source := _SOURCE.fullmatch(line):
            known = {key.lower(): html.unescape(text) for key, text in _PAIR.findall(source[1])}
            sources.append(Source(**known))
        elif field := _FIELD.fullmatch(line):
            fields[field[1]].append(html.unescape(field[2].strip()))
        else:
            raise ValueError(f"{line:.60} is not a tag")
    kind, slash, name = one(fields, "PRIMARY").lower().partition("/")
    if not slash:
        raise ValueError(f"expected kind/name in PRIMARY, got {kind}")
    story = MeridianStory(
        headline=one(fields, "HEAD"),
        published=at(day, time, "%H:%M:%S"),
        body=body,
        countries=one(fields, "COUNTRIES").split(),
        sources=sources,
        meridian_id=identity,
        urgency=int(urgency),
        topics=one(fields, "TOPICS").split(),
    )
    return Bulletin(f"news.{kind}.{name}", story)


def _cut_body(lines: list[str]) -> tuple[str, list[str]]:
    start, end = lines.index("<BODY>"), lines.index("</BODY>")
    body = " ".join(line.strip() for line in lines[start + 1 : end])
    return html.unescape(body), lines[:start] + lines[end + 1 :]


FORMAT = Format("Meridian Wire", "meridian.sgml", "<STORY", "</STORY>", parse)

if __name__ == "__main__":
    run(FORMAT)
