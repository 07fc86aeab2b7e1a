"""Headers in journals: they read back as they were, and filters of a selection see them."""

from datetime import UTC
from typing import Any

import pyarrow.parquet as pq
import pytest

from infobus.filters import compile
from infobus.headers import NO_HEADERS, Headers, with_headers
from infobus.stores.journal.journal import Journal
from infobus.stores.journal.upkeep import compact
from infobus.stores.journal.writer import JournalWriter
from tests.stores.journals import NOW_S, Story, event, stories, write

ALL = {"trace.id": "4bf92f", "n": 3, "share": 1.0, "is_last": True, "key": b"\0\xff", "$[x]": ""}


def told(number: int, **headers: Any) -> Any:
    data = Story(headline="h", n=number) if number % 2 else {"n": number}
    return event(number, data, headers=Headers(headers))


@pytest.fixture
def journal(tmp_path: Any) -> Journal:
    first = [event(0, {"n": 0}), *stories(range(1, 4))]
    second = [told(4, n=4), told(5, **ALL), told(6, n="text"), told(7), told(8, share=0.5)]
    return write(tmp_path / "j", first, second)


def test_they_read_back_exactly(journal: Journal) -> None:
    found = {one.offset: one for one in journal.select().events()}
    assert all(found[n].headers is NO_HEADERS for n in (0, 1, 2, 3, 7))
    assert dict(found[5].headers) == ALL
    assert [type(one) for one in found[5].headers.values()] == [str, int, float, bool, bytes, str]
    assert dict(found[6].headers) == {"n": "text"}


def test_files_of_events_that_had_none_lack_the_column(journal: Journal) -> None:
    have = ["_headers" in pq.read_schema(path).names for path in journal.files()]
    assert have == [False, False, True, True]
    table = journal.select("journals.Story").table()
    assert table["_headers"].null_count == 4


@pytest.mark.parametrize(
    "where",
    [
        'header("n") == 3',
        'header("n") >= 3',
        'header("n") == "text"',
        'exists(header("trace.id"))',
        '!exists(header("n"))',
        'header("share") * 2.0 == 1.0',
        'header("is_last") && n == 5',
        'header("n") < 9 || header("share") < 9.0',
        'isa("journals.Story") && header("n") == 3',
        'begins-with(header("trace.id"), "4b") && headline == "h"',
        'datatype(header("key")) == opaque',
        '_subject == "news.a" && header("n") > 3',
    ],
)
def test_filters_see_them(journal: Journal, where: str) -> None:
    filter = compile(where.replace('_subject == "news.a" && ', ""))
    events = [*journal.select().events()]
    wanted = [e.offset for e in events if filter.matches(with_headers(e.data, e.headers))]
    assert wanted
    assert [one.offset for one in journal.select(where=where).events()] == wanted
    typed = [n for n in wanted if isinstance(events[n].data, Story)]
    of_type = journal.select("journals.Story", where=where).table()["_offset"].to_pylist()
    assert of_type == typed


def test_files_without_them_are_not_opened_for_them(journal: Journal) -> None:
    assert len(journal.select().segments) == 4
    assert len(journal.select(where='header("n") == 3').segments) == 2
    assert len(journal.select(where='!exists(header("n"))').segments) == 4


def test_merged_files_keep_them(tmp_path: Any) -> None:
    batches = [[told(2 * n, n=n) if n % 2 else told(2 * n)] for n in range(40)]
    write(tmp_path / "j", *batches).select()
    with JournalWriter.open(tmp_path / "j") as writer:
        assert compact(writer, NOW_S) > 0
    found = [dict(one.headers) for one in Journal.open(tmp_path / "j").select().events()]
    assert found == [{"n": n} if n % 2 else {} for n in range(40)]


def test_a_time_beside_them_is_still_a_time(journal: Journal) -> None:
    first = journal.select(where='exists(header("n"))', columns=["_time"]).table()
    assert first["_time"][0].as_py().tzinfo is not None
    assert first["_time"][0].as_py().astimezone(UTC).year == 2026
