"""New types and attributes while it runs, and everything that may have gone wrong before."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import DBAPIError

from infobus import define_type, id_of
from infobus.errors import StoreCorrupt, StoreError, StoreFull
from infobus.repository import Repository
from infobus.repository.catalog import COLUMN_COUNT_MAX
from infobus.repository.names import NAME_BYTES_MAX
from infobus.repository.to_rows import ObjectRecord
from tests.objects import worlds


@pytest.fixture(autouse=True)
def world():
    """Types of these tests are known nowhere else."""
    with worlds.another_process():
        yield


def attributes_of(found):
    return [{k: v for k, v in row.items() if not k.startswith("_")} for row in found]


def test_attributes_are_added_on_line(repository, database):
    old = define_type("Story", [], {"title": str})
    repository.store([old(title="old")])
    new = define_type("Story", [], {"title": str, "urgency": int, "topics": "list[str]"})
    repository.store([new(title="new", urgency=3, topics=["oil"])])
    found = repository.query("Story", order="title")
    assert [one.title for one in found] == ["new", "old"]
    assert repository.query("Story", where='"oil" in topics && urgency == 3') == [found[0]]
    assert repository.query("Story", where="!exists(urgency)") == [found[1]]
    assert database("SELECT title, urgency FROM story ORDER BY title") == [
        ("new", 3),
        ("old", None),
    ]


def test_several_versions_come_in_one_batch(repository):
    old = define_type("Story", [], {"title": str})
    new = define_type("Story", [], {"title": str, "rank": int, "topics": "list[str]"})
    newest = define_type("Story", [], {"title": str, "inner": "DataObject", "more": str})
    inner = define_type("Inner", [], {"n": int})
    batch = [
        old(title="a"),
        new(title="b", rank=1, topics=["x"]),
        newest(title="c", inner=inner(n=5), more="m"),
        old(title="d"),
    ]
    assert repository.store(batch) == 4
    found = attributes_of(repository.query("Story", order="title", rows=True))
    assert [row["title"] for row in found] == ["a", "b", "c", "d"]
    assert (found[1]["rank"], found[1]["topics"], found[2]["inner"].n) == (1, ["x"], 5)


def test_sql_sees_the_hierarchy_too(repository, database):
    story = define_type("news.Story", [], {"title": str, "topics": ("list[str]", [])})
    repository.store([story(title="plain", topics=["tin"])])
    wire = define_type("news.WireStory", [story], {"urgency": (int, 1)})
    repository.store([wire(title="wired", topics=["oil", "gas"])])
    rows = database("SELECT title, _type FROM every_news_story ORDER BY title")
    assert rows == [("plain", "news.Story"), ("wired", "news.WireStory")]
    assert database("SELECT title FROM every_news_wire_story") == [("wired",)]
    topics = "SELECT title, value FROM every_news_story JOIN every_news_story_topics USING (_id)"
    assert sorted(database(topics)) == [("plain", "tin"), ("wired", "gas"), ("wired", "oil")]
    define_type("news.Story", [], {"title": str, "topics": ("list[str]", []), "rank": (int, 0)})
    newer = define_type("news.Late", ["news.Story"], {})
    repository.store([newer(title="late", rank=7)])
    assert database("SELECT title, rank FROM every_news_story WHERE rank = 7") == [("late", 7)]


def test_an_attribute_that_changes_its_type_keeps_all_of_its_values(repository, database, caplog):
    for kind, value in ((int, 5), (str, "high"), (float, 2.5), ("list[int]", [7]), (int, 6)):
        cls = define_type("Quote", [], {"price": kind})
        repository.store([cls(price=value)])
    assert "Quote.price was int, and is now str" in caplog.text
    found = [row["price"] for row in repository.query("Quote", order="price", rows=True)]
    assert found == [2.5, 5, 6, "high", [7]]
    assert len(repository.query("Quote", where="price > 4")) == 2
    assert len(repository.query("Quote", where='price == "high"')) == 1
    columns = database("SELECT price, price_str, price_float FROM quote WHERE price_str = 'high'")
    assert columns == [(None, "high", None)]


NAMES = "select group order table user from where Price price PRICE xmin ctid rowid oid ä Ä id"


def test_names_may_be_words_of_sql_and_differ_by_case_alone(repository):
    names = NAMES.split()
    lists = {"order", "Price"}
    cls = define_type("select.From", [], {n: "list[int]" if n in lists else int for n in names})
    values = {name: [at] if name in lists else at for at, name in enumerate(names)}
    repository.store([cls(**values)])
    assert attributes_of(repository.query("select.From", rows=True)) == [values]
    for at, name in enumerate(names):
        where = f"{at} in {name}" if name in lists else f"{name} == {at}"
        assert len(repository.query("select.From", where=where)) == 1, where


TYPE_NAMES = [
    "Story",
    "story",
    "STORY",
    "news.Story",
    "News.story",
    "news_Story",
    "infobus.Types",
    "sqlite.Master",
    "pg.Type",
    "every.Story",
    "Table",
    "x" * 200,
    "x" * 201,
    "ü" * 100,
]


def test_types_may_have_any_names(repository, database):
    made = [define_type(name, [], {"n" * 200: int}) for name in TYPE_NAMES]
    repository.store([cls(**{"n" * 200: at}) for at, cls in enumerate(made)])
    for at, name in enumerate(TYPE_NAMES):
        (row,) = repository.query(name, rows=True)
        assert row["n" * 200] == at
    named = [row[0] for row in database("SELECT table_name FROM infobus_tables")]
    assert len({name.casefold() for name in named}) == len(TYPE_NAMES)
    assert all(len(name.encode()) <= NAME_BYTES_MAX for name in named)


def test_a_table_of_somebody_else_is_left_alone(repository, database):
    database("CREATE TABLE story (mine INTEGER)")
    database("INSERT INTO story VALUES (1)")
    repository.store([define_type("Story", [], {"title": str})(title="t")])
    assert database("SELECT * FROM story") == [(1,)]
    assert database("SELECT title FROM story_2") == [("t",)]


def test_what_is_more_than_a_table_can_have_is_kept_all_the_same(repository):
    names = [f"a{number}" for number in range(COLUMN_COUNT_MAX + 50)]
    cls = define_type("Wide", [], dict.fromkeys(names, str))
    obj = cls(**{name: f"value of {name}" for name in names})
    repository.store([obj])
    assert repository.query("Wide", where=f'{names[-1]} == "value of {names[-1]}"') == [obj]


def test_several_processes_meet_new_types_at_the_same_time(url):
    Repository(url).close()
    classes = [define_type(f"Race{n}", [], {"n": int, "items": "list[int]"}) for n in range(4)]
    failures = []

    def race():
        try:
            with Repository(url) as repository:
                for cls in classes:
                    repository.store([cls(n=1, items=[1, 2])])
        except Exception as error:
            failures.append(error)

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert not failures
    with Repository(url) as repository:
        assert [len(repository.query(f"Race{n}")) for n in range(4)] == [4] * 4


def test_two_processes_that_store_the_same_object_leave_it_once(url):
    cls = define_type("Same", [], {"n": int, "items": "list[int]"})
    objects = [cls(n=n, items=[n]) for n in range(20)]
    with Repository(url) as first:
        first.store(objects)
        racers = [threading.Thread(target=first.store, args=(objects,)) for _ in range(4)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert first.query("Same", order="n") == objects


class TestReaders:
    def test_a_reader_in_a_long_transaction_does_not_hold_up_a_new_attribute(
        self, postgres_url, caplog
    ):
        """Until it lets go, the values are kept elsewhere; nobody notices a difference."""
        with Repository(postgres_url) as repository:
            old = define_type("Story", [], {"title": str})
            repository.store([old(title="old")])
            new = define_type("Story", [], {"title": str, "rank": int})
            reader = create_engine(postgres_url)
            with reader.connect() as connection, connection.begin():
                assert connection.execute(text("SELECT title FROM story")).all() == [("old",)]
                repository.store([new(title="new", rank=3)])
                assert "no column for Story.rank yet" in caplog.text
                assert connection.execute(text("SELECT count(*) FROM story")).scalar() == 2
                assert len(repository.query("Story", where="rank == 3")) == 1
            repository._grown_at_s.clear()  # as if some time had passed
            repository.store([new(title="newer", rank=4)])
            with reader.connect() as connection:
                rows = connection.execute(text("SELECT title, rank FROM story")).all()
                assert sorted(rows) == [("new", None), ("newer", 4), ("old", None)]
            found = repository.query("Story", where="rank > 2", order="title")
            assert [one.rank for one in found] == [3, 4]
            reader.dispose()

    def test_a_reader_of_sqlite_sees_its_state_while_a_new_attribute_comes(self, tmp_path):
        url = f"sqlite:///{tmp_path}/r.db"
        with Repository(url) as repository:
            repository.store([define_type("Story", [], {"title": str})(title="old")])
            reader = create_engine(url)
            with reader.connect() as connection, connection.begin():
                connection.exec_driver_sql("BEGIN")
                assert connection.execute(text("SELECT title FROM story")).all() == [("old",)]
                new = define_type("Story", [], {"title": str, "rank": int})
                repository.store([new(title="new", rank=3)])
                assert connection.execute(text("SELECT title FROM story")).all() == [("old",)]
            reader.dispose()
            assert len(repository.query("Story", where="rank == 3")) == 1


ALTERATIONS = {
    "ALTER TABLE story DROP COLUMN rank": "rank is missing; ALTER TABLE story ADD COLUMN",
    "ALTER TABLE story RENAME COLUMN title TO headline": "column title is missing",
    "DROP TABLE story_topics": "there is no table story_topics",
    "ALTER TABLE story ADD COLUMN mine INTEGER NOT NULL DEFAULT 5": None,
    "ALTER TABLE story ADD COLUMN mine TEXT": None,
}


class TestAlteredByHand:
    @pytest.fixture
    def story(self, repository):
        cls = define_type("Story", [], {"title": str, "rank": int, "topics": "list[str]"})
        repository.store([cls(title="first", rank=1, topics=["a"])])
        return cls

    @pytest.mark.parametrize("statement", ALTERATIONS, ids=lambda s: s.partition("story")[2])
    def test_it_is_said_what_to_mend(self, url, repository, database, story, statement):
        expected = ALTERATIONS[statement]
        for view in ("every_story_topics", "every_data_object", "every_story"):
            database(f"DROP VIEW IF EXISTS {view}")
        database(statement)
        second = story(title="second", rank=2, topics=["b"])
        if expected is None:
            repository.store([second])
            assert len(repository.query("Story")) == 2
            return
        with pytest.raises(StoreCorrupt, match=expected):
            repository.store([second])
        with Repository(url) as fresh, pytest.raises(StoreCorrupt, match=expected):
            fresh.query("Story")
        other = define_type("Other", [], {"n": int})
        repository.store([other(n=1)])
        assert len(repository.query("Other")) == 1

    def test_a_column_of_another_width_is_said(self, postgres_url):
        """Text of any type will do; of numbers, PostgreSQL is sent as many bytes as they had."""
        cls = define_type("Number", [], {"title": str, "rank": int, "ratio": float})
        engine = create_engine(postgres_url)
        with Repository(postgres_url) as repository, engine.connect() as connection:
            repository.store([cls(title="first", rank=1, ratio=0.5)])
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            for view in ("every_number", "every_data_object"):
                connection.exec_driver_sql(f"DROP VIEW IF EXISTS {view}")
            connection.exec_driver_sql("ALTER TABLE number ALTER title TYPE VARCHAR(200)")
            repository.store([cls(title="second", rank=2, ratio=0.5)])
            connection.exec_driver_sql("ALTER TABLE number ALTER rank TYPE INTEGER")
            with pytest.raises(StoreCorrupt, match=r"number\.rank is INTEGER.*rank BIGINT"):
                repository.store([cls(title="third", rank=3, ratio=0.5)])
            connection.exec_driver_sql("ALTER TABLE number ALTER rank TYPE BIGINT")
            connection.exec_driver_sql("ALTER TABLE number ALTER ratio TYPE REAL")
            with pytest.raises(StoreCorrupt, match=r"number\.ratio is REAL.*ratio DOUBLE"):
                repository.store([cls(title="third", rank=3, ratio=0.5)])
            connection.exec_driver_sql("ALTER TABLE number ALTER ratio TYPE DOUBLE PRECISION")
            assert [one.title for one in repository.query("Number", order="rank")] == [
                "first",
                "second",
            ]
        engine.dispose()

    def test_after_mending_it_goes_on_and_takes_back_what_was_set_aside(
        self, repository, database, story
    ):
        for view in ("every_story_topics", "every_data_object", "every_story"):
            database(f"DROP VIEW IF EXISTS {view}")
        database("ALTER TABLE story DROP COLUMN rank")
        second = story(title="second", rank=2, topics=["b"])
        with pytest.raises(StoreCorrupt) as caught:
            repository.store([second])
        repository.set_aside([ObjectRecord(second, id_of(second), "news.x")], str(caught.value))
        assert repository.take_back() == 0
        (aside,) = repository.all_set_aside()
        assert "column rank is missing" in aside.reason and aside.subject == "news.x"
        database("ALTER TABLE story ADD COLUMN rank BIGINT")
        assert repository.take_back() == 1
        assert repository.all_set_aside() == []
        assert second in repository.query("Story")

    @pytest.mark.parametrize("is_opened_anew", [True, False])
    def test_views_that_were_dropped_are_made_again(
        self, url, repository, database, story, is_opened_anew
    ):
        for view in ("every_story_topics", "every_story"):
            database(f"DROP VIEW {view}")
        database("ALTER TABLE story DROP COLUMN rank")
        second = story(title="second", rank=2, topics=["b"])
        with pytest.raises(StoreCorrupt, match="rank is missing"):
            repository.store([second])
        with Repository(url), pytest.raises(DBAPIError):  # not of a column that is not there
            database("SELECT * FROM every_story")
        database("ALTER TABLE story ADD COLUMN rank BIGINT")
        if is_opened_anew:
            Repository(url).close()
        else:
            repository.store([second])
        count = 1 if is_opened_anew else 2
        assert len(database("SELECT title, rank FROM every_story")) == count
        assert len(database("SELECT value FROM every_story_topics")) == count

    @pytest.mark.parametrize("own", ["infobus_tables", "infobus_types"])
    def test_a_catalog_that_does_not_agree_with_itself_is_said(self, url, database, story, own):
        database(f"DELETE FROM {own}")
        with pytest.raises(StoreCorrupt, match=f"Story.*restore {own} from a backup"):
            Repository(url)

    def test_values_written_by_hand_are_shown_as_they_are(self, repository, database, story):
        database("UPDATE story SET title = NULL, rank = 77, _extra = NULL")
        (found,) = repository.query("Story")
        assert (found.rank, found.topics) == (77, ["a"])

    @pytest.mark.parametrize(
        ("statement", "said"),
        [
            ("UPDATE kinds SET i = 'abc'", r"kinds\.i is 'abc', expected int"),
            ("UPDATE kinds SET i = 2.5", r"kinds\.i is 2\.5, expected int"),
            ("UPDATE kinds SET f = 'abc'", r"kinds\.f is 'abc', expected float"),
            ("UPDATE kinds SET s = x'00'", r"kinds\.s is b'.x00', expected str"),
            ("UPDATE kinds SET o = 7", r"kinds\.o is 7, expected bytes"),
            ("UPDATE kinds SET o = 'abc'", r"kinds\.o is 'abc', expected bytes"),
            ("UPDATE kinds SET b = 'abc'", r"kinds\.b is 'abc', expected bool"),
            ("UPDATE kinds SET d = 'abc'", r"kinds\.d is 'abc', expected datetime"),
            ("UPDATE kinds SET _l_size = 'abc'", r"kinds\._l_size is 'abc', expected a number"),
            ("UPDATE kinds_l SET value = 'abc'", r"kinds_l\.value is 'abc', expected int"),
        ],
    )
    def test_a_value_that_does_not_fit_is_said(self, tmp_path, statement, said):
        """Only SQLite takes such values."""
        kinds = {"i": int, "f": float, "s": str, "o": bytes, "b": bool, "d": datetime}
        cls = define_type("Kinds", [], {**kinds, "l": "list[int]"})
        moment = datetime(2024, 5, 1, tzinfo=UTC)
        one = cls(i=1, f=2.0, s="x", o=b"y", b=True, d=moment, l=[1])
        with Repository(f"sqlite:///{tmp_path}/kinds.db") as repository:
            repository.store([one])
            assert repository.query("Kinds") == [one]
            other = sqlite3.connect(tmp_path / "kinds.db", isolation_level=None)
            other.execute(statement)
            other.close()
            with pytest.raises(StoreCorrupt, match=said) as caught:
                repository.query("Kinds")
            assert id_of(one) in str(caught.value)

    def test_an_extra_that_is_no_json_is_said(self, repository, database, story):
        database("UPDATE story SET _extra = 'nonsense'")
        with pytest.raises(StoreCorrupt, match="cannot be read"):
            repository.query("Story")


class TestTheWorldFails:
    def test_a_full_disk_refuses_a_batch_as_a_whole(self, tmp_path):
        cls = define_type("Large", [], {"text": str})
        with Repository(f"sqlite:///{tmp_path}/full.db") as repository:
            repository.store([cls(text="fits")])
            repository._engine.dispose()
            pages = sqlite3.connect(tmp_path / "full.db").execute("PRAGMA page_count").fetchone()[0]
            limit = [pages + 20]
            event.listen(
                repository._engine,
                "connect",
                lambda connection, _: connection.execute(f"PRAGMA max_page_count = {limit[0]}"),
            )
            batch = [cls(text="x" * 1000) for _ in range(200)]
            with pytest.raises(StoreFull, match="nothing of this batch was kept"):
                repository.store(batch)
            assert [one.text for one in repository.query("Large")] == ["fits"]
            repository._engine.dispose()
            limit[0] += 1000
            assert repository.store(batch) == 200
            assert len(repository.query("Large")) == 201

    def test_a_database_that_cannot_be_reached_is_said(self, tmp_path):
        with pytest.raises(StoreError, match="cannot be used now") as caught:
            Repository(f"postgresql://me:secret@/news?host={tmp_path}")
        assert "secret" not in str(caught.value)
        with pytest.raises(StoreError, match="cannot be used now"):
            Repository(f"sqlite:///{tmp_path}/no/such/folder/x.db")
        (tmp_path / "text.db").write_text("this is no database, but a longer text " * 100)
        with pytest.raises(StoreError):
            Repository(f"sqlite:///{tmp_path}/text.db")
