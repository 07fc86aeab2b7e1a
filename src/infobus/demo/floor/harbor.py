"""The Harbor News adapter: one field per line, with codes for industries and markets."""

from __future__ import annotations

from collections import defaultdict
from datetime import date

from infobus import DataObject
from infobus.adapters.stories import Bulletin, Source, Story
from infobus.demo.floor.adapter import run
from infobus.demo.floor.feeds import Format, at, one

KINDS = {"EQ": "equity", "CM": "commodity", "FX": "currency", "GV": "government", "RT": "rates"}
LANGUAGES = {"E": "English", "F": "French", "G": "German"}
INDUSTRIES = {
    "AGR": "agriculture",
    "AUT": "automobiles",
    "CHP": "semiconductors",
    "CON": "construction",
    "CSM": "cosmetics",
    "CUR": "currencies",
    "FOD": "food",
    "FOR": "forestry and paper",
    "GOV": "government",
    "HLT": "health",
    "INS": "insurance",
    "LEI": "leisure",
    "MAC": "machinery",
    "MET": "metals",
    "NRG": "energy",
    "PHA": "pharmaceuticals",
    "SHP": "shipping",
    "SOF": "software",
    "TEL": "telecommunications",
    "TOY": "toys",
    "TRN": "transport",
}


class IndustryGroup(DataObject):
    """A group of companies, by Harbor's code."""

    code: str
    name: str


class HarborStory(Story):
    """A story as Harbor News codes it."""

    harbor_id: str
    language: str
    industry_groups: list[IndustryGroup]


def parse(record: list[str], day: date) -> Bulletin:
    """The story in the lines from `:ID:` to `:ZZ:`."""
    fields: dict[str, list[str]] = defaultdict(list)
    for line in record[:-1]:
        colon, name, text = line[:1], line[1:3], line[4:].strip()
        if colon != ":" or line[3:4] != ":":
            raise ValueError(f"{line:.60} is not a field such as :HL:text")
        fields[name].append(text)
    identity, time, language = _words(one(fields, "ID"), 3)
    kind, company = _words(one(fields, "CO"), 2)
    name, _, city = one(fields, "SR").partition("/")
    story = HarborStory(
        headline=one(fields, "HL"),
        published=at(day, time, "%H%M"),
        body=" ".join(fields["TX"]),
        countries=one(fields, "CC").split(),
        sources=[Source(name=name, city=city)],
        harbor_id=identity,
        language=_decoded(LANGUAGES, language),
        industry_groups=[
            IndustryGroup(code=code, name=_decoded(INDUSTRIES, code))
            for code in one(fields, "IG").split()
        ],
    )
    return Bulletin(f"news.{_decoded(KINDS, kind)}.{company.lower()}", story)


def _words(text: str, count: int) -> list[str]:
    words = text.split()
    if len(words) != count:
        raise ValueError(f"expected {count} words, got {text:.60}")
    return words


def _decoded(codes: dict[str, str], code: str) -> str:
    if code not in codes:
        raise ValueError(f"code {code:.20} is not one of {', '.join(codes)}")
    return codes[code]


FORMAT = Format("Harbor News", "harbor.txt", ":ID:", ":ZZ:", parse)

if __name__ == "__main__":
    run(FORMAT)
