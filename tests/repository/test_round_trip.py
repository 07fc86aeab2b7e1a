"""What was stored comes back: every kind of value, of every type, whatever the database."""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infobus import BadValue, DataObject, Property, define_type, id_of, type_of
from infobus.objects import codec, identify
from infobus.objects.data import unknown_attributes
from infobus.repository import Repository
from tests.objects import worlds


class Source(DataObject, name="round.Source"):
    name: str
    city: str = ""


class Wire(Source, name="round.Wire"):
    speed: int = 0


class Everything(DataObject, name="round.Everything"):
    flag: bool
    count: int
    ratio: float
    text: str
    raw: bytes
    when: datetime
    maybe: int | None = None
    open: Any = None
    words: list[str] = []
    gaps: list[int | None] = []
    table: list[list[int]] = []
    scores: dict[str, float] = {}
    moments: list[datetime] = []
    source: Source | None = None
    sources: list[Source] = []
    by_name: dict[str, Source] = {}
    holes: list[Source | None] = []


class Link(DataObject, name="round.Link"):
    value: Any = None
    next: Link | None = None


class Crowd(DataObject, name="round.Crowd"):
    others: list[Crowd] = []


def everything(**changes) -> Everything:
    values: dict[str, Any] = {
        "flag": True,
        "count": 2**63 - 1,
        "ratio": 0.1,
        "text": "Ärger 😀 'quoted' \"twice\" \\ % \t",
        "raw": bytes(range(256)),
        "when": datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5.5))),
        "maybe": -(2**63),
        "open": {"deep": [1, 1.0, None, b"\0", datetime(2026, 1, 1, tzinfo=UTC), Source(name="i")]},
        "words": ["b", "", "a", "b"],
        "gaps": [1, None, 3],
        "table": [[1, 2], [], [3]],
        "scores": {"z": 1.5, "a": -math.inf, "": 0.0},
        "moments": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)],
        "source": Wire(name="w", speed=300),
        "sources": [Source(name="a"), Wire(name="b", speed=1)],
        "by_name": {"one": Source(name="1"), "two": Wire(name="2")},
        "holes": [None, Source(name="h"), None],
    }
    return Everything(**values | changes)


def stored(repository, obj):
    repository.store([obj])
    (found,) = repository.query(type_of(obj).name)
    return found


def test_every_kind_of_value_comes_back(repository):
    obj = everything()
    found = stored(repository, obj)
    assert found == obj
    assert type(found) is Everything
    assert id_of(found) == id_of(obj)
    assert type(found.source) is Wire
    assert [type(one) for one in found.open["deep"][:2]] == [int, float]


def test_nothing_is_none_and_empty_is_empty(repository):
    bare = Everything(
        flag=False, count=0, ratio=0.0, text="", raw=b"", when=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert stored(repository, bare) == bare


UNUSUAL = [
    ("ratio", math.nan),
    ("ratio", -0.0),
    ("ratio", math.inf),
    ("ratio", 5e-324),
    ("text", "with a \0 inside"),
    ("words", ["fine", "not \0 fine"]),
    ("scores", {"n": math.nan, "k\0": 1.0}),
    ("open", {"$bytes": "not bytes", "$object": {}}),
    ("open", math.nan),
    ("open", []),
    ("when", datetime(1, 1, 1, tzinfo=UTC)),
    ("when", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
]


def test_values_that_databases_do_not_take_come_back_all_the_same(repository):
    objects = [everything(**{name: value}) for name, value in UNUSUAL]
    repository.store(objects)
    found = {id_of(one): one for one in repository.query("round.Everything")}
    for obj, (name, value) in zip(objects, UNUSUAL, strict=True):
        assert repr(getattr(found[id_of(obj)], name)) == repr(value)


def test_objects_are_nested_as_deep_as_they_may_be(repository):
    chain = Link(value=0)
    for depth in range(1, 60):
        chain = Link(value=depth, next=chain)
    assert stored(repository, chain) == chain


def test_an_object_inside_of_itself_is_refused_and_nothing_is_stored(repository):
    chain = Link()
    chain.next = chain
    with pytest.raises(BadValue, match="deeper than 64 levels"):
        repository.store([Link(value=1), chain])
    assert repository.query("round.Link") == []


def test_a_list_that_was_changed_to_something_wrong_is_refused(repository):
    obj = everything()
    obj.words.append(5)
    with pytest.raises(BadValue, match=r"words\[4\]"):
        repository.store([obj])


def test_a_string_that_is_no_unicode_is_refused(repository):
    with pytest.raises(BadValue, match="cannot be stored"):
        repository.store([everything(text="\ud800")])


def test_an_object_with_many_ways_into_itself_is_refused_at_once(repository):
    """Each level has a hundred times as many objects as the one before."""
    crowd = Crowd()
    crowd.others = [crowd] * 100
    with pytest.raises(BadValue, match="deeper than 64 levels"):
        repository.store([crowd])


@pytest.mark.parametrize("together", [1, 2, 1000])
def test_objects_of_all_forms_come_back_out_of_one_batch(repository, together):
    """However many are stored at once, nobody's values become somebody else's."""
    chain = Link(value=1, next=Link(value=2, next=Link(value=everything())))
    objects = [
        *(everything(**{name: value}) for name, value in UNUSUAL if "nan" not in repr(value)),
        *(everything(count=count, words=["w"] * count, maybe=None) for count in range(5)),
        *(everything(sources=[Wire(name=str(n)), Source(name="")] * n, holes=[]) for n in range(4)),
        *(Source(name=f"s{number}") for number in range(5)),
        Crowd(others=[Crowd(others=[Crowd(), Crowd()]), Crowd()]),
        Crowd(others=[Crowd(others=[Crowd()] * (n % 2)) for n in range(300)]),  # two pieces
        chain,
    ]
    mixed = objects[::3] + objects[1::3] + objects[2::3]
    for start in range(0, len(mixed), together):
        repository.store(mixed[start : start + together])
    found = {id_of(one): one for one in repository.query("DataObject")}
    assert [found[id_of(obj)] for obj in objects] == objects
    assert len(found) == len(objects)


def test_ids_of_any_characters_name_their_objects(repository):
    ids = ['say "x"', "a\\", "{x,y}", "NULL", " ", "a,b", "new\nline\t", "ü😀", "'", "%s", ":x"]
    for round in range(2):
        objects = [everything(count=round, words=[id]) for id in ids]
        for obj, id in zip(objects, ids, strict=True):
            identify(obj, id)
        repository.store(objects)
    found = {id_of(one): one for one in repository.query("round.Everything")}
    assert found == dict(zip(ids, objects, strict=True))


def test_objects_inside_keep_their_own_ids(repository):
    inside = Source(name="a")
    identify(inside, "a-1")
    found = stored(repository, everything(source=inside, sources=[Source(name="b")]))
    assert id_of(found.source) == "a-1"
    assert id_of(found.sources[0]) is None


def test_plain_dicts_are_stored_too(repository):
    given = {"price": 41.5, "$strange": [b"x"], "nested": {"a": [1]}}
    repository.store([given, {}])
    assert sorted(repository.query("dict"), key=len) == [{}, given]


def test_an_object_that_is_stored_again_takes_the_place_of_the_former(repository):
    obj = everything()
    repository.store([obj, Link(value=1)])
    obj.words, obj.sources, obj.count = ["new"], [Source(name="only")], 7
    repository.store([obj])
    assert repository.query("round.Everything") == [obj]
    assert repository.query("round.Link") == [Link(value=1)]


def test_of_one_object_twice_in_a_batch_the_last_state_counts(repository):
    first, second = Source(name="first"), Source(name="second")
    identify(first, "same"), identify(second, "same")
    assert repository.store([first, second]) == 2
    assert repository.query("round.Source") == [second]


def test_an_id_of_any_length_will_do(repository):
    obj = Source(name="x")
    identify(obj, "x" * 5000 + "\0")
    found = stored(repository, obj)
    assert id_of(found) == id_of(obj)
    repository.store([Property(name="p", value=1, ref=id_of(obj))])


def test_what_others_know_more_of_comes_back_with_all_that_they_sent(repository):
    """An object of another version: attributes the class lacks, misses, or has otherwise."""
    with worlds.another_process():
        theirs = define_type(
            "round.Source", [], {"name": str, "city": (int, 7), "rank": int, "tags": "list[str]"}
        )
        sent = theirs(name="n", city=5, rank=2**40, tags=["t"])
        fingerprint, payload, needs = codec.encode(sent)
        descriptors = codec.descriptors(needs)
    for descriptor in descriptors:
        codec.learn(descriptor)
    received = codec.decode(fingerprint, payload, "theirs-1")
    assert unknown_attributes(received) == {"name": "n", "city": 5, "rank": 2**40, "tags": ["t"]}
    found = stored(repository, received)
    assert found == received
    assert codec.encode(found)[:2] == (fingerprint, payload)
    assert repository.query("round.Source", where="rank > 5 && city == 5") == [received]


def test_an_object_whose_type_nobody_knows_is_kept_as_it_is(repository):
    with worlds.another_process():
        fingerprint, payload, _ = codec.encode(define_type("Gone", [], {"a": int})(a=5))
    received = codec.decode(fingerprint, payload, "gone-1")
    repository.store([received])
    (found,) = repository.query("DataObject")
    assert codec.encode(found)[:2] == (fingerprint, payload)


def test_a_process_that_knows_no_types_reads_everything(url):
    obj = everything()
    with Repository(url) as repository:
        repository.store([obj])
    written = codec.encode(obj)
    with worlds.another_process(), Repository(url) as repository:
        (found,) = repository.query("round.Everything", where='"b" in words')
        assert type_of(found.source).name == "round.Wire"
        assert codec.encode(found)[0] == written[0]
        assert found.scores == obj.scores


@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(worlds.declarations(), st.data())
def test_any_object_of_any_type_comes_back_equal(url, attributes, data):
    """All these types have one name: they are versions, whose attributes change all the time."""
    with worlds.another_process():
        cls = define_type("Random", [], attributes)
        objects = [cls(**data.draw(worlds.values_for(cls))) for _ in range(3)]
        with Repository(url) as repository:
            assert repository.store(objects) == 3
            found = {id_of(one): one for one in repository.query("Random")}
    assert [found[id_of(obj)] for obj in objects] == objects


def test_a_question_leaves_no_trace(url, database):
    with Repository(url) as repository:
        assert (repository.types(), repository.all_set_aside()) == ([], [])
        assert repository.query("round.Source") == []
    tables = "SELECT name FROM sqlite_master"
    if url.startswith("postgresql"):
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    assert database(tables) == []
