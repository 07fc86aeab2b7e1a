"""The Reuters newswire: SGML to stories, whatever the file holds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.adapters.reuters import (
    RECORD_CHARS_MAX,
    ReutersStory,
    parse,
    read_files,
    read_stories,
    subject_of,
)
from infobus.adapters.stories import Bulletin, Skipped, Source, Story
from infobus.subjects import check_subject

FILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "reuters"

RECORD = """\
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="12" NEWID="7">
<DATE> 3-MAR-1987 09:18:21.26</DATE>
<TOPICS><D>tin</D><D>veg-oil</D></TOPICS>
<PLACES><D>bolivia</D><D>uk</D></PLACES>
<PEOPLE><D>smith</D></PEOPLE>
<ORGS><D>itc</D></ORGS>
<EXCHANGES><D>lme</D></EXCHANGES>
<COMPANIES></COMPANIES>
<UNKNOWN>
&#5;&#5;&#5;C M
&#22;&#22;&#1;f0012&#31;reute</UNKNOWN>
<TEXT>&#2;
<TITLE>TIN &lt;TIN.L>
 RISES</TITLE>
<AUTHOR>    By Ann Example, Reuters</AUTHOR>
<DATELINE>    LA PAZ, Bolivia, March 3 - </DATELINE><BODY>Tin rose &amp; fell.
    It rose again.
 Reuter
&#3;</BODY></TEXT>
</REUTERS>
"""


def read(text: str) -> list[Bulletin | Skipped]:
    return list(read_stories(text.splitlines(keepends=True)))


def test_a_story_has_what_the_wire_says_about_it():
    ((subject, story),) = read("<!DOCTYPE lewis>\n" + RECORD)
    moment = datetime(1987, 3, 3, 9, 18, 21, 260000, tzinfo=UTC)
    assert subject == "news.topic.tin"
    assert story == ReutersStory(
        headline="TIN <TIN.L> RISES",
        published=moment,
        body="Tin rose & fell.\n    It rose again.",
        countries=["bolivia", "uk"],
        sources=[Source(name="Reuters", city="LA PAZ, Bolivia", reporter="Ann Example")],
        id=7,
        date=moment,
        title="TIN <TIN.L> RISES",
        topics=["tin", "veg-oil"],
        places=["bolivia", "uk"],
        people=["smith"],
        organisations=["itc"],
        exchanges=["lme"],
        companies=[],
        dateline="LA PAZ, Bolivia, March 3",
    )
    assert isinstance(story, Story)


def test_a_brief_has_a_title_alone_and_what_is_unprocessed_only_text():
    start, end = RECORD.index("<TEXT>"), RECORD.index("</REUTERS>")
    brief = RECORD[:start] + '<TEXT TYPE="BRIEF">&#2;\n<TITLE>UP</TITLE></TEXT>\n' + RECORD[end:]
    raw = RECORD[:start] + '<TEXT TYPE="UNPROC">&#2;\nUP\n 1..2\n&#3;</TEXT>\n' + RECORD[end:]
    one, other = (found.story for found in read(brief + raw))
    assert (one.title, one.body, one.dateline) == ("UP", "", "")
    assert (other.title, other.body) == ("UP", "UP\n 1..2")


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("26-FEB-1987 15:01:01.79", datetime(1987, 2, 26, 15, 1, 1, 790000, tzinfo=UTC)),
        ("  1-JUN-1987  00:00:00", datetime(1987, 6, 1, tzinfo=UTC)),
        ("31-MAR-1987 605:12:19.12", datetime(1987, 3, 31, tzinfo=UTC)),
        ("19-OCT-1987 25:61:00.00", datetime(1987, 10, 19, tzinfo=UTC)),
    ],
)
def test_clocks_may_be_wrong_but_days_may_not(date, moment):
    assert parse(RECORD.replace(" 3-MAR-1987 09:18:21.26", date)).date == moment


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RECORD.replace("3-MAR-1987", "3-MAZ-1987"), "expected a date"),
        (RECORD.replace("3-MAR-1987", "31-FEB-1987"), "day"),
        (RECORD.replace("NEWID", "ID"), "expected NEWID"),
        (RECORD.replace("</TEXT>", ""), "expected NEWID and <TEXT>"),
        (RECORD[:300] + "\n", "another story begins inside of it"),
    ],
)
def test_what_cannot_be_read_is_skipped_with_the_reason_and_the_next_is_read(record, why):
    skipped, other = read("\n" + record + RECORD)
    assert isinstance(skipped, Skipped) and isinstance(other, Bulletin)
    assert why in skipped.why and skipped.line == 2


def test_a_file_that_was_cut_short_is_read_up_to_there():
    other, skipped = read(RECORD + RECORD[:300])
    assert isinstance(other, Bulletin)
    assert skipped == Skipped(21, "the file ended inside of it")


def test_a_record_without_an_end_does_not_fill_the_memory():
    lines = ["<REUTERS>\n", *["x" * 1000 + "\n"] * (RECORD_CHARS_MAX // 1000 + 10)]
    found = list(read_stories([*lines, *RECORD.splitlines(keepends=True)]))
    assert isinstance(found[0], Skipped) and isinstance(found[1], Bulletin)


@given(st.lists(st.text(max_size=30), max_size=3), st.lists(st.text(max_size=30), max_size=3))
def test_any_topic_makes_a_subject(topics, places):
    story = parse(RECORD)
    story.topics, story.places = topics, places
    check_subject(subject_of(story))


@given(st.lists(st.sampled_from(RECORD.splitlines(keepends=True)) | st.text(max_size=20)))
def test_any_text_gives_stories_or_reasons(lines):
    for found in read_stories(lines):
        assert isinstance(found, Bulletin | Skipped)


def test_bytes_that_are_no_utf8_are_read(tmp_path):
    path = tmp_path / "odd.sgm"
    path.write_bytes(RECORD.encode().replace(b"Tin rose", b"T\xfcn rose\xff"))
    (found,) = read_files([path])
    assert found.story.body.startswith("Tün rose")


@pytest.mark.skipif(not FILES.is_dir(), reason="no Reuters files beside the project")
def test_the_real_newswire_is_read_completely():
    found = list(read_files(sorted(FILES.glob("*.sgm"))))
    assert not [one for one in found if isinstance(one, Skipped)]
    assert len(found) == 1000 * len(list(FILES.glob("*.sgm")))
    for subject, story in found:
        check_subject(subject)
        assert story.title and story.date.year == 1987
        assert not any(ord(letter) < 32 and letter != "\n" for letter in story.title + story.body)
