"""Queries: filters decided by the database agree with filters decided here; order; subtypes."""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infobus import BadFilter, DataObject, Property, UsageError, define_type, id_of
from infobus.filters import compile
from infobus.repository import Repository
from infobus.repository.catalog import TypeTable
from infobus.repository.filter_sql import where_of
from tests.filters import typed_rows
from tests.objects import worlds


class Inner(DataObject, name="query.Inner"):
    flag: bool | None


class Outer(DataObject, name="query.Outer"):
    a: float | None
    s: str | None
    p: Inner


class TypedRow(DataObject, name="query.Row"):
    """The vocabulary of the filters' own tests, as one type."""

    number: int
    a: int | None
    b: float | None
    n: int | None
    s: str | None
    t: str | None
    flag: bool | None
    when: datetime | None
    tags: list[str | None] | None
    raw: bytes | None
    o: Outer


def typed_row(number: int, row: dict[str, Any]) -> TypedRow:
    outer = row["o"]
    inner = Outer(a=outer["a"], s=outer["s"], p=Inner(flag=outer["p"]["flag"]))
    return TypedRow(number=number, **{k: v for k, v in row.items() if k != "o"}, o=inner)


OBJECTS = [typed_row(number, row) for number, row in enumerate(typed_rows.rows(60))]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_database_agrees_with_every_filter(kind, request, tmp_path):
    """Condition and residual together say of every object what the filter says."""
    is_sqlite = kind == "sqlite"
    url = f"sqlite:///{tmp_path}/q.db" if is_sqlite else request.getfixturevalue("postgres_url")
    texts = typed_rows.tests()
    texts += [f"!({text})" for text in texts]
    texts += typed_rows.joined_tests(60)
    # Some of them, and others on each: a query costs more than what it is about.
    with Repository(url) as repository:
        repository.store(OBJECTS)
        for text in texts[::4] if is_sqlite else texts[2::23]:
            found = {row.number for row in repository.query("query.Row", where=text)}
            filter = compile(text)
            assert found == {one.number for one in OBJECTS if filter.matches(one)}, text


PUSHED = {
    'symbol == "GMC" && price > 40': "AND",
    "when > datetime('2026-01-01T00:00:00Z')": ">",
    'symbol < "H"': "<",
    '"oil" in topics': "IN (SELECT",
    "size(topics) > 2": "_topics_size",
}


@pytest.mark.parametrize("text", PUSHED)
def test_moments_strings_and_lists_are_left_to_the_database_entirely(text):
    with worlds.another_process():
        cls = define_type(
            "Quote",
            [],
            {"symbol": str, "price": int, "when": datetime, "topics": "list[str]"},
        )
        with Repository("sqlite://") as repository:
            moment = datetime(2026, 1, 1, tzinfo=UTC)
            repository.store([cls(symbol="a", price=1, when=moment, topics=[])])
            table: TypeTable = repository._catalog.tables["Quote"]
    condition, residual = where_of(compile(text), table)
    assert residual is None
    assert PUSHED[text] in str(condition)


class Story(DataObject, name="query.Story"):
    headline: str
    date: datetime
    topics: list[str] = []


DAY = datetime(1987, 2, 26, tzinfo=UTC)


def stories(cls: Any, count: int, **more: Any) -> list[Any]:
    return [
        cls(
            headline=f"{cls.__name__} {n}",
            date=DAY + timedelta(n),
            topics=["oil"] * (n % 2),
            **more,
        )
        for n in range(count)
    ]


def test_a_supertype_has_the_objects_of_subtypes_that_were_defined_later(repository):
    repository.store(stories(Story, 3))
    later = define_type("query.LaterStory", [Story], {"urgency": (int, 5)})
    where, order = '"oil" in topics', ["date", "headline"]
    assert [s.headline for s in repository.query("query.Story", where, order)] == ["Story 1"]
    repository.store(stories(later, 4))
    found = repository.query("query.Story", where, order)
    assert [s.headline for s in found] == ["LaterStory 1", "Story 1", "LaterStory 3"]
    assert isinstance(found[0], later) and isinstance(found[0], Story)
    assert len(repository.query("query.LaterStory")) == 4
    assert len(repository.query("DataObject")) == 7


def test_another_process_defines_the_subtype(url):
    with Repository(url) as old:
        old.store(stories(Story, 1))
        assert len(old.query("query.Story")) == 1
        with worlds.another_process(), Repository(url) as new:
            base = define_type(
                "query.Story", [], {"headline": str, "date": datetime, "topics": ("list[str]", [])}
            )
            theirs = define_type("query.Theirs", [base], {"rank": (int, 1)})
            new.store(stories(theirs, 2))
        found = old.query("query.Story", order="-date")
        assert sorted(type(one).__name__ for one in found) == ["Story", "Theirs", "Theirs"]
        assert all(isinstance(one, Story) for one in found)


def test_objects_inside_of_others_are_no_answers(repository):
    repository.store(OBJECTS[:3])
    assert repository.query("query.Inner") == []


class Mixed(DataObject, name="query.Mixed"):
    key: int
    text: str | None = None
    ratio: float | None = None


def test_order_is_the_same_everywhere_and_what_has_no_value_comes_last(repository):
    words = ["b", "B", "a", "Ä", "z", None, "\ue000", "😀"]
    repository.store([Mixed(key=n, text=word) for n, word in enumerate(words)])
    found = [one.text for one in repository.query("query.Mixed", order="text")]
    assert found == [*sorted(word for word in words if word is not None), None]
    down = [one.text for one in repository.query("query.Mixed", order="-text")]
    assert down == [*reversed(found[:-1]), None]


def test_order_by_several_attributes_limit_and_what_is_unusual(repository):
    repository.store([Mixed(key=n % 3, ratio=float(n)) for n in range(9)])
    repository.store([Mixed(key=1, ratio=math.nan)])
    found = repository.query("query.Mixed", order="key, -ratio", limit=7)
    assert [(one.key, one.ratio) for one in found[:6]] == [
        (0, 6.0), (0, 3.0), (0, 0.0), (1, 7.0), (1, 4.0), (1, 1.0),
    ]  # fmt: skip
    assert math.isnan(found[6].ratio)
    assert repository.query("query.Mixed", limit=0) == []
    assert len(repository.query("query.Mixed", where="nan(ratio)")) == 1
    assert len(repository.query("query.Mixed", where="!nan(ratio)", limit=20)) == 9


def test_an_order_by_what_no_stored_type_has_is_refused(repository):
    assert repository.query("query.Mixed", order="whatever") == []
    repository.store([Mixed(key=1)])
    with pytest.raises(UsageError, match=r"cannot order by 'rato'.*did you mean ratio\?"):
        repository.query("query.Mixed", order="-key, rato")
    assert len(repository.query("DataObject", order="ratio, _time")) == 1


def test_many_objects_come_in_pages(repository):
    repository.store([Mixed(key=n, text=str(n)) for n in range(1200)])
    found = repository.query("query.Mixed", where='text matches("7$")', order="-key")
    assert [one.key for one in found] == [n for n in reversed(range(1200)) if n % 10 == 7]


def test_properties_come_back_attached(repository):
    first, second = stories(Story, 2)
    repository.store([first, second])
    repository.store([Property(name="keywords", value=["oil", "tin"], ref=id_of(first))])
    repository.store([Property(name="mood", value={"calm": 0.5}, ref=id_of(first))])
    found = repository.query("query.Story", order="date")
    assert found.properties_of(found[0])["keywords"].value == ["oil", "tin"]
    assert found.properties_of(found[0])["mood"].value == {"calm": 0.5}
    assert found.properties_of(found[1]) == {}
    rows = repository.query("query.Story", order="date", rows=True)
    assert rows[0]["_properties"] == {"keywords": ["oil", "tin"], "mood": {"calm": 0.5}}


def test_rows_tell_how_an_object_was_stored(repository):
    (story,) = stories(Story, 1)
    repository.store([story], subject="news.oil")
    (row,) = repository.query("query.Story", rows=True)
    assert row == {
        "_id": id_of(story),
        "_type": "query.Story",
        "_subject": "news.oil",
        "_time": None,
        "headline": "Story 0",
        "date": DAY,
        "topics": [],
        "_properties": {},
    }


def test_types_are_those_that_have_tables(repository):
    repository.store(OBJECTS[:1])
    assert [known.name for known in repository.types()] == [
        "query.Inner",
        "query.Outer",
        "query.Row",
    ]


def test_what_cannot_be_asked_is_said(repository):
    repository.store(stories(Story, 1))
    with pytest.raises(UsageError, match=r"no type 'query\.Storry'.*did you mean query\.Story\?"):
        repository.query("query.Storry")
    with pytest.raises(BadFilter):
        repository.query("query.Story", where="headline ===")
    with pytest.raises(UsageError, match="cannot order by 'a b'"):
        repository.query("query.Story", order="a b")
    with pytest.raises(UsageError, match="limit is -1"):
        repository.query("query.Story", limit=-1)


def test_a_type_of_which_nothing_was_stored_yet_has_no_objects(repository):
    assert repository.query("query.Story") == []


@pytest.mark.parametrize("url", ["oracle://x", "nonsense", "sqlite"])
def test_a_url_of_something_else_is_refused(url):
    with pytest.raises(UsageError):
        Repository(url)


@pytest.mark.parametrize("wrong", [5, None, 1.5, Outer], ids=repr)
def test_what_is_no_object_is_not_stored(repository, wrong):
    with pytest.raises(UsageError, match=r"objects\[1\] is .*: expected an object, a dict"):
        repository.store([{"fine": True}, wrong])
    assert repository.query("DataObject") == []


@pytest.mark.parametrize("wrong", [5, {"a": 1}, Outer(a=1.0, s="", p=Inner(flag=True))], ids=repr)
def test_objects_are_stored_by_the_list(repository, wrong):
    with pytest.raises(UsageError, match="expected a list, or another iterable, of objects"):
        repository.store(wrong)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ({"limit": "3"}, "expected a number from 0 on"),
        ({"limit": True}, "expected a number from 0 on"),
        ({"limit": -1}, "expected a number from 0 on"),
        ({"order": 5}, "expected attributes"),
        ({"order": [5]}, "expected attributes"),
        ({"where": 5}, "expected a filter"),
        ({"type_name": Outer}, "expected a name"),
    ],
    ids=repr,
)
def test_an_argument_that_will_not_do_is_said(repository, argument, expected):
    with pytest.raises(UsageError, match=expected):
        repository.query(**{"type_name": "query.Outer", **argument})
