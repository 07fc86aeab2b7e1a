"""Filters over journals: whatever is pruned, pushed or left over, they mean what they mean."""

import math
from datetime import datetime
from typing import Any

import pytest

from infobus import DataObject, Event
from infobus.filters import compile
from tests.filters import typed_rows
from tests.stores.journals import NOW_S, Story, event, offsets, stories, write


class Inner(DataObject, name="journals.Inner"):
    flag: bool | None = None


class Middle(DataObject, name="journals.Middle"):
    a: float | None = None
    s: str | None = None
    p: Inner | None = None


class Row(DataObject, name="journals.Row"):
    a: int | None = None
    b: float | None = None
    n: int | None = None
    s: str | None = None
    t: str | None = None
    flag: bool | None = None
    when: datetime | None = None
    tags: list[Any] | None = None
    raw: bytes | None = None
    o: Middle | None = None


REALS = [*typed_rows.REALS, math.nan]
ROWS = typed_rows.rows(90, typed_rows.VALUES | {("b",): REALS, ("o", "a"): REALS})


def as_object(row: dict[str, Any]) -> Row:
    inner = dict(row["o"])
    return Row(**row | {"o": Middle(**inner | {"p": Inner(**inner["p"])})})


@pytest.fixture(scope="module", params=["typed", "untyped", "plain columns"])
def written(request, new_folder):
    """A journal of many small files, some of which hold a narrow range of values."""
    made: list[Any] = sorted(ROWS, key=lambda row: row["a"] or 0)
    if request.param == "typed":
        made = [as_object(row) for row in made]
    elif request.param == "plain columns":
        made = [Inner(flag=row["o"]["p"]["flag"]) for row in made]
    events = [event(n, one) for n, one in enumerate(made)]
    cuts = range(0, len(events), 45)
    return made, write(new_folder(), *(events[cut : cut + 45] for cut in cuts))


TESTS = typed_rows.tests()
# Some of them, others negated, and joined ones besides.
CHOSEN = [
    *TESTS[::6],
    *map("!({})".format, TESTS[1::6]),
    *typed_rows.joined_tests(40),
    'isa("journals.Row") && a > 40',
    'isa("journals.Inner") || flag',
]


def test_a_selection_holds_exactly_what_the_filter_is_true_of(written):
    made, journal = written
    for text in CHOSEN:
        filter = compile(text)
        wanted = [n for n, one in enumerate(made) if filter.matches(one)]
        assert offsets(journal.select(where=text, columns=["_offset"])) == wanted, text


def test_files_that_cannot_match_are_not_opened(tmp_path):
    journal = write(
        tmp_path, *(stories(range(n, n + 10)) for n in range(0, 100, 10)), [event(0, {})]
    )

    def count(**conditions: Any) -> int:
        return len(journal.select("journals.Story", **conditions).segments)

    assert count() == 10
    assert count(where="n > 94") == 1
    assert count(where="n >= 30 && n < 50 && price != 3") == 0  # no story has a price
    assert count(where='headline == "h95" || headline == "h5"') == 2
    assert count(where="n == 15.5") == 1
    assert count(where='n == "fifteen"') == 0
    assert count(where="_offset >= 90") == 1
    assert count(where='isa("journals.Wire")') == 10  # not known from limits
    assert count(subject="news.s1") == 10
    assert count(subject="sport.>") == 0
    assert count(start=20, stop=40) == 2


def test_a_wrong_limit_is_never_trusted_about_nan(tmp_path):
    prices = [math.nan, 1.0, None]
    events = [event(n, Story(headline="h", price=price)) for n, price in enumerate(prices)]
    journal = write(tmp_path, events)
    assert offsets(journal.select("journals.Story", where="nan(price)")) == [0]
    assert offsets(journal.select("journals.Story", where="!(price > 5)")) == [0, 1]


def test_the_envelope_can_be_asked_about(tmp_path):
    events = [Event(f"news.s{n}", {"n": n}, "sender", n, NOW_S + n, n) for n in range(4)]
    journal = write(tmp_path, events)
    assert offsets(journal.select(where='_subject matches("[13]$") && n > 0')) == [1, 3]
    assert offsets(journal.select(where='_sender == "sender" && _number < 2')) == [0, 1]
