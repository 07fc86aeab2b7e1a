"""The job decompose: what the journal has is in the tables, once, whatever is repeated."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from infobus import UsageError, pipeline
from infobus.pipeline.jobs import ResultPart, options_for
from infobus.pipeline.jobs.decompose import decompose, tables
from infobus.pipeline.jobs.decompose.tables import MergeSizes
from infobus.repository import Repository
from infobus.stores.journal.journal import Journal, JournalWriter
from tests.stores.journals import NOW_S, Source, Story, Wire, event, write

ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "5"))
PROGRAM = Path(__file__).with_name("decompose_program.py")


def stories(start, stop):
    """Stories of two types, with objects and lists inside, and plain dicts in between."""
    made = []
    for n in range(start, stop):
        kind = Wire if n % 2 else Story
        story = kind(headline=f"h{n}", n=n, topics=["oil", f"t{n}"], source=Source(name=f"s{n}"))
        made.append(event(n, story, f"news.s{n % 3}") if n % 5 else event(n, {"n": n}, "raw.a"))
    return made


@pytest.fixture
def journal(tmp_path):
    return write(tmp_path / "journal", stories(0, 10), stories(10, 20))


@pytest.fixture
def repository(tmp_path):
    with Repository(f"sqlite:///{tmp_path}/objects.db") as repository:
        yield repository


def events_of(journal, start=0, stop=None):
    """Events as Spark hands them over."""
    selection = journal.select(start=start, stop=stop)
    return pa.Table.from_batches(selection.batches(), selection.schema).select(decompose.COLUMNS)


class TestIntoADatabase:
    def test_objects_are_there_as_they_were_published(self, journal, repository):
        assert decompose.store(repository, events_of(journal), str(journal.folder), "q") == 20
        published = {one.object_id: one.data for one in journal.select().events()}
        for name in ("DataObject", "dict"):
            for row in repository.query(name, rows=True):
                assert row["_subject"].startswith(("news.", "raw."))
        found = repository.query("DataObject")
        assert len(found) == 16
        assert all(one in published.values() for one in found)
        assert {type(one.source) for one in found} == {Source}
        assert len(repository.query("dict")) == 4

    def test_a_batch_that_is_repeated_is_not_stored_again(self, journal, repository):
        folder = str(journal.folder)
        assert decompose.store(repository, events_of(journal, 0, 8), folder, "q") == 8
        assert decompose.store(repository, events_of(journal, 0, 8), folder, "q") == 0
        # With a lost checkpoint batches begin anew, and may have other limits.
        assert decompose.store(repository, events_of(journal, 0, 12), folder, "q") == 4
        assert decompose.store(repository, events_of(journal, 0, 12), folder, "another") == 12

    def test_events_of_another_journal_are_other_events(self, journal, repository, tmp_path):
        other = write(tmp_path / "other", stories(0, 3))
        decompose.store(repository, events_of(journal), str(journal.folder), "q")
        assert decompose.store(repository, events_of(other), str(other.folder), "q") == 3

    def test_a_journal_that_went_back_is_refused(self, journal, repository, tmp_path):
        older = tmp_path / "older"
        shutil.copytree(journal.folder, older)
        later = write(journal.folder, stories(20, 25))
        decompose.store(repository, events_of(later), str(later.folder), "q")
        back = Journal.open(older)
        with pytest.raises(UsageError, match=r"up to offset 25, but the journal ends at 20"):
            decompose.store(repository, events_of(back), str(older), "q")
        assert decompose.store(repository, events_of(back), str(older), "another") == 20
        # Also when it has grown past that again: its offsets stand for other events now.
        grown = write(older, stories(30, 40))
        with pytest.raises(UsageError, match=r"offset 25, but the journal has other events before"):
            decompose.store(repository, events_of(grown), str(older), "q")
        assert decompose.store(repository, events_of(grown), str(older), "another") == 10

    def test_what_the_database_refuses_is_set_aside_and_the_rest_goes_on(self, journal, repository):
        folder = str(journal.folder)
        decompose.store(repository, events_of(journal, 0, 10), folder, "q")
        with repository.transaction() as connection:
            connection.exec_driver_sql("DROP TABLE journals_wire")
        with Repository(repository.url) as again:
            assert decompose.store(again, events_of(journal, 10, 20), folder, "q") == 10
            aside = again.all_set_aside()
            assert {one.record().obj.__class__ for one in aside} == {Wire}
            assert len(again.query("dict")) == 4
            assert decompose.store(again, events_of(journal, 10, 20), folder, "q") == 0

    def test_nothing_is_noted_when_the_database_fails(self, journal, repository, monkeypatch):
        folder = str(journal.folder)

        def fail(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("infobus.repository.repository.write_rows", fail)
            decompose.store(repository, events_of(journal), folder, "q")
        assert decompose.store(repository, events_of(journal), folder, "q") == 20


FEW = MergeSizes(files_max=4)


class TestMergedTables:
    """Parquet tables of a query: small files become one, and a repeated batch replaces its own."""

    @pytest.fixture
    def put(self, tmp_path):
        """A function that writes the files of a batch, each of these rows, as the driver does."""

        def write_batch(begin, *files, **more):
            for number, rows in enumerate(files):
                path = tmp_path / f"q-{begin:012}-{number:05}.parquet"
                columns = {"n": rows, **{name: [value] * len(rows) for name, value in more.items()}}
                pq.write_table(pa.table(columns), path)

        return write_batch

    def rows(self, folder):
        return sorted(ds.dataset(folder).to_table()["n"].to_pylist())

    def test_many_small_files_become_one(self, put, tmp_path):
        put(0, [0, 1])
        put(2, [2], [3])
        put(2, [2], [3])
        assert tables.merge(tmp_path, "q", FEW) == 0
        put(4, [4], more=7)
        assert tables.merge(tmp_path, "q", FEW) == 3
        [path] = tmp_path.iterdir()
        assert path.name == "q-000000000000-000000000004-merged.parquet"
        assert pq.read_table(path).to_pydict() == {
            "n": [0, 1, 2, 3, 4],
            "more": [None, None, None, None, 7],
        }
        for begin in (5, 6, 7):
            put(begin, [begin])
        assert tables.merge(tmp_path, "q", FEW) == 3
        assert self.rows(tmp_path) == list(range(8))

    def test_a_query_that_starts_again_in_the_middle_of_one_replaces_the_rest(self, put, tmp_path):
        for begin in (0, 10, 20, 30):
            put(begin, [begin], [begin + 1])
        tables.merge(tmp_path, "q", FEW)
        tables._cut(tables._files(tmp_path, "q"), 20)
        assert self.rows(tmp_path) == [0, 1, 10, 11]
        tables._cut(tables._files(tmp_path, "q"), 0)
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_process_has_left_is_not_doubled(self, put, tmp_path):
        def put_all():
            for begin in (0, 10, 20, 30):
                put(begin, [begin], [begin + 1])

        put_all()
        tables.merge(tmp_path, "q", FEW)
        [merged] = tmp_path.iterdir()
        put_all()  # killed before they were removed
        put(40, [40])
        tables._remove_merged(tables._files(tmp_path, "q"))
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            merged.name,
            "q-000000000040-00000.parquet",
        ]
        whole = merged.read_bytes()
        tables._cut(tables._files(tmp_path, "q"), 20)
        merged.write_bytes(whole)  # killed before the longer one was removed
        tables._remove_merged(tables._files(tmp_path, "q"))
        tables._cut(tables._files(tmp_path, "q"), 20)
        assert self.rows(tmp_path) == [0, 1, 10, 11]

    def test_large_files_and_those_of_other_queries_stay(self, put, tmp_path):
        for begin in range(6):
            put(begin, [begin])
        other = tmp_path / "q-2-000000000000-00000.parquet"
        pq.write_table(pa.table({"n": [99]}), other)
        size = other.stat().st_size
        assert tables.merge(tmp_path, "q", MergeSizes(4, small_bytes=size // 2)) == 0
        assert tables.merge(tmp_path, "q", MergeSizes(4, size * 2, int(size * 4.5))) == 3
        assert len(list(tmp_path.iterdir())) == 4
        tables._cut(tables._files(tmp_path, "q"), 0)
        assert list(tmp_path.iterdir()) == [other]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"journal": "j"}, "needs db, tables, or both"),
        ({"journal": "j", "dbs": "x"}, "unknown field `dbs`"),
        ({"db": "x"}, "missing required field `journal`"),
    ],
)
def test_options_that_make_no_sense_are_refused(table, complaint):
    with pytest.raises(UsageError, match=f"job decompose: .*{complaint}"):
        options_for("decompose", table)


def test_a_database_of_another_kind_is_refused_before_anything_starts():
    with pytest.raises(UsageError, match="mysql://x: expected sqlite:///FILE or postgresql://"):
        options_for("decompose", {"journal": "j", "db": "mysql://x"})


@pytest.mark.slow
@pytest.mark.timeout(300)
class TestOnSpark:
    @pytest.fixture
    def frame(self, spark, journal):
        pipeline.register(spark)
        return spark.read.format("infobus").option("journal", str(journal.folder)).load()

    def test_parquet_tables_have_the_rows_of_the_repository_once(self, frame, journal, tmp_path):
        folder, db = tmp_path / "tables", f"sqlite:///{tmp_path}/objects.db"
        options = decompose.DecomposeOptions(journal=str(journal.folder), tables=str(folder), db=db)
        result = decompose.transform(frame, options)
        for _ in range(2):  # as after a crash
            decompose.write(result, options, ResultPart("q", 0))
        assert not list(folder.glob("*/.*"))
        found = {path.name: ds.dataset(path).to_table() for path in folder.iterdir()}
        counts = {name: table.num_rows for name, table in found.items()}
        with Repository(db) as repository:
            for name, rows in counts.items():
                with repository.transaction() as connection:
                    there = connection.exec_driver_sql(f'SELECT count(*) FROM "{name}"').scalar()
                assert there == rows, name
        assert counts["journals_source"] == 16
        assert sorted(found["journals_wire_topics"]["value"].to_pylist())[:2] == ["oil", "oil"]
        assert found["journals_wire"]["n"].type == pa.int64()

    def test_events_of_one_type_only_are_refused(self, spark, journal):
        pipeline.register(spark)
        options = {"journal": str(journal.folder), "type": "journals.Story"}
        frame = spark.read.format("infobus").options(**options).load()
        with pytest.raises(UsageError, match="leave out type and columns"):
            decompose.transform(frame, decompose.DecomposeOptions(journal="j", tables="t"))


@pytest.mark.slow
@pytest.mark.timeout(120 * (ROUNDS + 5))
@pytest.mark.usefixtures("quick_java")
def test_no_row_is_lost_or_doubled_however_often_the_job_is_killed(tmp_path):
    """Killed at the worst moments: inside the transaction, and between it and Spark's own note."""
    journal = write(tmp_path / "journal", stories(0, 30), stories(30, 60))
    chance = random.Random(ROUNDS)
    for number in range(ROUNDS + 1):
        if number:  # it grows by as much as two batches take, so that none ends too early
            with JournalWriter.open(journal.folder) as writer:
                writer.append(stories(60 * number, 60 * number + 60), now_s=NOW_S)
        is_last = number == ROUNDS
        moment = "never" if is_last else chance.choice(["before", "inside", "after"])
        command = [sys.executable, str(PROGRAM), str(tmp_path), moment, str(chance.randrange(2))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wanted = 0 if is_last else -signal.SIGKILL
        assert done.returncode == wanted, done.stderr[-2000:]
    expected = Counter(
        one.data["n"] if isinstance(one.data, dict) else one.data.n
        for one in Journal.open(journal.folder).select().events()
    )
    assert len(expected) == 60 + 60 * ROUNDS
    rows: Counter[int] = Counter()
    for name in ("journals_story", "journals_wire"):
        rows.update(ds.dataset(tmp_path / "tables" / name).to_table()["n"].to_pylist())
    assert rows == Counter({n: 1 for n in expected if n % 5})
    with Repository(f"sqlite:///{tmp_path}/objects.db") as repository:
        found = Counter(one.n for one in repository.query("DataObject"))
        found.update(one["n"] for one in repository.query("dict"))
        with repository.transaction() as connection:
            [stored] = connection.exec_driver_sql("SELECT events FROM stored").one()
    assert found == expected
    assert stored == len(expected)  # objects replace each other, so this tells of doubled ones
