"""The two adapters' formats: pure functions from a vendor's lines to stories."""

from datetime import UTC, date, datetime

import pytest

from infobus.adapters.stories import Bulletin, Skipped, Source
from infobus.demo.floor import harbor, meridian
from infobus.demo.floor.adapter import sample_lines
from infobus.demo.floor.feeds import read_feed
from infobus.demo.floor.harbor import HarborStory, IndustryGroup
from infobus.demo.floor.meridian import MeridianStory
from infobus.subjects import check_subject

DAY = date(1993, 12, 6)
FORMATS = pytest.mark.parametrize(
    "format", [meridian.FORMAT, harbor.FORMAT], ids=["meridian", "harbor"]
)


def read(lines, format):
    return list(read_feed(lines, format, DAY))


def first_record(format):
    lines = sample_lines(format)
    return lines[: lines.index(format.end) + 1]


@FORMATS
def test_the_sample_data_is_read_completely(format):
    found = read(sample_lines(format), format)
    assert not [each for each in found if isinstance(each, Skipped)]
    assert len(found) == 30
    for subject, story in found:
        check_subject(subject)
        assert subject.startswith("news.")
        assert story.headline and story.body and story.countries and story.sources


def test_a_meridian_story_has_topics_and_an_urgency():
    [(subject, story)] = read(first_record(meridian.FORMAT), meridian.FORMAT)
    assert subject == "news.equity.cldr"
    assert story == MeridianStory(
        headline="Calder Motors lifts forecast after record truck orders",
        published=datetime(1993, 12, 6, 9, 30, 5, tzinfo=UTC),
        body="Calder Motors raised its forecast for the year after orders for its long-haul truck "
        "doubled in one quarter. The plant in Windsor will add a third shift in June.",
        countries=["US", "CA"],
        sources=[Source(name="Meridian Wire", city="Detroit", reporter="H. Lindqvist")],
        meridian_id="MW-1041",
        urgency=2,
        topics=["autos", "earnings"],
    )


def test_a_harbor_story_has_industry_groups():
    [(subject, story)] = read(first_record(harbor.FORMAT), harbor.FORMAT)
    assert subject == "news.equity.vntg"
    assert story == HarborStory(
        headline="Vantage Grain buys silos from bankrupt rival",
        published=datetime(1993, 12, 6, 9, 30, tzinfo=UTC),
        body="Vantage Grain bought eleven silos at auction. It paid less than half of what they "
        "cost to build, and gains access to two rivers.",
        countries=["US", "BR"],
        sources=[Source(name="Harbor News Service", city="Chicago")],
        harbor_id="HN0417",
        language="English",
        industry_groups=[
            IndustryGroup(code="FOD", name="food"),
            IndustryGroup(code="AGR", name="agriculture"),
        ],
    )


def test_entities_are_spelled_out():
    found = read(sample_lines(meridian.FORMAT), meridian.FORMAT)
    assert any("Pell & Row" in bulletin.story.headline for bulletin in found)


@FORMATS
def test_any_line_that_is_missing_costs_at_most_its_own_record(format):
    record = first_record(format)
    for missing in range(len(record)):
        lines = record + record[:missing] + record[missing + 1 :] + record
        stories = [each for each in read(lines, format) if isinstance(each, Bulletin)]
        assert len(stories) in (2, 3)  # a line of the body may be missing without harm
        assert stories[0] == stories[-1]


@FORMATS
@pytest.mark.parametrize("garbage", ["", "<", ":", "<X Y>", ":HL", "noise", '<STORY ID="1">', "\0"])
def test_garbage_in_place_of_any_line_never_stops_the_feed(format, garbage):
    record = first_record(format)
    for place in range(len(record)):
        lines = [*record[:place], garbage, *record[place + 1 :], *record]
        assert isinstance(read(lines, format)[-1], Bulletin)


@FORMATS
def test_what_is_skipped_says_where_and_why(format):
    record = first_record(format)
    torn = record[:-2]
    assert read(torn + record, format)[0] == Skipped(1, "another record begins inside of it")
    assert read(record + torn, format)[1] == Skipped(len(record) + 1, "the feed ended inside of it")


@pytest.mark.parametrize(
    ("format", "good", "bad", "why"),
    [
        (meridian.FORMAT, 'URGENCY="2"', 'URGENCY="high"', "expected <STORY ID TIME URGENCY>"),
        (meridian.FORMAT, "09:30:05", "25:30:05", "25:30:05"),
        (meridian.FORMAT, "equity/CLDR", "CLDR", "expected kind/name in PRIMARY"),
        (meridian.FORMAT, "<TOPICS>autos earnings", "<TOPICS>", "expected one TOPICS"),
        (meridian.FORMAT, 'CITY="Detroit"', 'TOWN="Detroit"', "no attribute 'town'"),
        (harbor.FORMAT, ":CO:EQ VNTG", ":CO:XX VNTG", "code XX is not one of EQ"),
        (harbor.FORMAT, ":CO:EQ VNTG", ":CO:VNTG", "expected 2 words"),
        (harbor.FORMAT, "0930", "9h30", "9h30"),
        (harbor.FORMAT, ":IG:FOD AGR", ":IG:FOD ???", "code ??? is not one of"),
    ],
)
def test_a_record_that_makes_no_sense_is_skipped(format, good, bad, why):
    lines = [line.replace(good, bad) for line in first_record(format)]
    [skipped] = read(lines, format)
    assert isinstance(skipped, Skipped)
    assert why in skipped.why
