"""`format("infobus")`: journals as DataFrames, once as history and once as they grow."""

import math
import shutil
from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from infobus import UsageError, pipeline
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.upkeep import compact, sweep
from tests.bus.helpers import wait_until
from tests.stores.journals import NOW_S, Source, Story, Wire, event, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def made(start: int, stop: int):
    """Stories, some of them from a wire, with plain dicts in between."""
    events = []
    for n in range(start, stop):
        kind = Wire if n % 2 else Story
        story = kind(
            headline=f"h{n}",
            n=n,
            price=math.nan if n == 3 else n * 1.5,
            topics=["oil"] if n % 3 == 0 else [],
            source=Source(name=f"s{n % 2}"),
            value={"deep": [n]},
            when=datetime.fromtimestamp(NOW_S + n, UTC),
        )
        events.append(event(n, story, f"news.s{n % 3}") if n % 5 else event(n, {"n": n}, "raw.a"))
    return events


@pytest.fixture
def journal(tmp_path):
    return write(tmp_path / "j", *(made(n, n + 10) for n in range(0, 40, 10)))


@pytest.fixture
def source(spark):
    pipeline.register(spark)

    def load(journal, **options):
        reader = spark.read.format("infobus").option("journal", str(journal.folder))
        return reader.options(**options).load()

    return load


def offsets(frame) -> list[int]:
    return sorted(row["_offset"] for row in frame.select("_offset").collect())


def as_json(frame) -> list[str]:
    return sorted(row[0] for row in frame.select(F.to_json(F.struct("*"))).collect())


def test_history_as_a_dataframe(journal, source, spark):
    frame = source(journal, type="journals.Story")
    expected = journal.select("journals.Story").table()
    rows = sorted(frame.collect(), key=lambda row: row["_offset"])
    assert frame.columns == expected.column_names
    for name in ("_offset", "_subject", "_type", "_event_id", "headline", "n", "topics"):
        assert [row[name] for row in rows] == expected[name].to_pylist(), name
    assert {row["source"]["name"] for row in rows} == {"s0", "s1"}
    assert frame.where("value['deep[0]'].int = 7").count() == 1
    # All events, whatever their type, have the same columns.
    every = source(journal)
    assert offsets(every) == list(range(40))
    assert every.where("_attributes['n'].int > 36").count() == 3
    # A schema of one's own, and the option, narrow what is read.
    narrow = source(journal, type="journals.Story", columns="n,_offset", where='"oil" in topics')
    assert narrow.columns == ["n", "_offset"]
    assert offsets(narrow) == [n for n in range(0, 40, 3) if n % 5]
    own = spark.read.format("infobus").schema("_offset bigint, price double")
    assert own.option("journal", str(journal.folder)).option("type", "journals.Story").load().where(
        "price = 55.5"
    ).collect()[0].asDict() == {"_offset": 37, "price": 55.5}
    # Spark's own reader gives the same rows.
    native = pipeline.events(spark, journal.folder, "journals.Story")
    assert native.columns == frame.columns
    assert as_json(native) == as_json(frame)
    assert offsets(pipeline.events(spark, journal.folder)) == list(range(40))


CONDITIONS = """
    price > 50
    price <= 3
    price = 1.5
    price != 1.5
    n in (1, 2, 39) or n = 7
    headline like 'h1%' and n < 15
    headline like '%7'
    price is null
    price is not null and _subject = 'news.s1'
    source.name = 's1'
    when > timestamp'2026-11-16 00:00:00'
    _type = 'journals.Wire'
    not (n >= 5)
""".strip().splitlines()


def test_conditions_handed_down_change_no_result(journal, source, spark):
    kept = source(journal, type="journals.Story").localCheckpoint()
    for condition in CONDITIONS:
        frame = source(journal, type="journals.Story", pushdown="true")
        assert offsets(frame.where(condition)) == offsets(kept.where(condition)), condition
    # Without that option a DataFrame can be used again with other conditions, or with none.
    frame = source(journal, type="journals.Story")
    assert [frame.where(some).count() for some in ("n > 30", "n < 3", "true")] == [8, 2, 32]
    native = pipeline.events(
        spark, journal.folder, "journals.Story", where='headline matches("[37]$") && n > 5'
    )
    assert offsets(native) == [7, 13, 17, 23, 27, 33, 37]
    typed = pipeline.events(
        spark, journal.folder, "journals.Story", where='isa("journals.Wire")', subject="*.s1"
    )
    assert offsets(typed) == [n for n in range(40) if n % 2 and n % 3 == 1 and n % 5]


def test_files_that_cannot_match_are_not_even_opened(journal, source):
    for segment in journal.manifest.segments[:-3]:  # all but those of the last commit
        (journal.folder / segment.path).write_bytes(b"not a Parquet file")
    frame = source(journal, type="journals.Story", pushdown="true")
    assert offsets(frame.where("n > 35")) == [36, 37, 38, 39]
    assert offsets(source(journal, type="journals.Story", where="n > 35")) == [36, 37, 38, 39]
    assert offsets(source(journal, since=str(NOW_S + 36))) == [36, 37, 38, 39]
    with pytest.raises(PySparkException, match="infobus journal repair"):
        source(journal, type="journals.Story").count()


def test_versions_and_mistakes(tmp_path, source, spark):
    from infobus import define_type

    versions = [{"x": int}, {"x": str}, {"x": float, "y": ("list[int]", [])}]
    values = [1, "one", 1.5]
    kinds = [define_type("journals.Versions", [], one) for one in versions]
    made = [[event(n, kinds[n](x=values[n]))] for n in range(3)]
    journal = write(tmp_path / "j", *made)
    for frame in (
        source(journal, type="journals.Versions"),
        pipeline.events(spark, journal.folder, "journals.Versions"),
    ):
        rows = sorted(frame.collect(), key=lambda row: row["_offset"])
        assert [row["x"] for row in rows] == [1.0, None, 1.5]
        assert [row["x__str"] for row in rows] == [None, "one", None]
        assert [row["y"] for row in rows] == [None, None, []]
    assert offsets(source(journal, type="journals.Versions").where("x is null")) == [1]
    for options, message in [
        ({"type": "journals.Version"}, "did you mean journals.Versions"),
        ({"wher": "x > 1"}, "no option 'wher'"),
        ({"type": "journals.Versions", "where": "x >"}, "expected"),
        ({"since": "yesterday"}, "expected a time with its zone"),
    ]:
        with pytest.raises(PySparkException, match=message):
            source(journal, **options).count()
    with pytest.raises(UsageError, match="unless a type is given"):
        pipeline.events(spark, journal.folder, columns=["_attributes"])


ABOUT_ANY = """
    value == 1
    value > 1
    value
    int32(value)
    value in [1, 2]
    2 in value
    datatype(value) == string
    value matches("[A-Z]")
    value matches("G") || headline == "none"
    value == 1 && headline == "h0"
    exists(value)
    !exists(value)
    size(value) == 2
    value.deep == 1
    exists(source.staff)
""".strip().splitlines()


def test_filters_on_values_of_any_kind_find_the_same_rows_in_every_way(tmp_path, source, spark):
    from infobus import define_type

    values = [1, 2.5, "GM", "gm", [1, 2], None, True, {"deep": 1}]
    told = [event(n, Story(headline=f"h{n}", value=one)) for n, one in enumerate(values)]
    journal = write(tmp_path / "j", told)
    loose = define_type("journals.Loose", [], {"headline": str, "value": "any", "n": int})
    below = define_type("journals.Looser", [loose], {"source": "any"})
    write(journal.folder, [event(9, below(headline="h9", value="GM", n=1, source={"staff": 1}))])
    journal = Journal.open(journal.folder)
    for type in ("journals.Story", "journals.Loose"):
        for where in ABOUT_ANY:
            expected = sorted(one.offset for one in journal.select(type, where=where).events())
            native = pipeline.events(spark, journal.folder, type, where=where)
            assert offsets(native) == expected, where
    assert offsets(source(journal, type="journals.Story", where="value == 1")) == [0]


def test_values_that_do_not_fit_their_column_are_seen_by_filters(tmp_path, spark):
    from infobus import define_type
    from infobus.objects import type_of
    from infobus.objects.codec import set_tag
    from infobus.objects.data import Foreign

    kind = define_type("journals.Misfit", [], {"n": int})
    fits, other = kind(n=1), kind(n=0)
    sent = Foreign(type_of(other).fingerprint, extra={"n": "many", "more": 1}, filled={"n": 0})
    set_tag(other, sent)
    journal = write(tmp_path / "j", [event(0, fits), event(1, other)])
    for where, expected in [('n == "many"', [1]), ("n == 1", [0]), ("exists(n)", [0, 1])]:
        native = pipeline.events(spark, journal.folder, "journals.Misfit", where=where)
        assert offsets(native) == expected, where


@pytest.mark.parametrize(
    ("kinds", "columns"),
    [
        (["list[int]", "int"], ["v", "v__list_int"]),
        (["list[str]", "str"], ["v", "v__list_str"]),
        (["list[str]", "list[int]"], ["v", "v__list_str"]),
        (["list[int]", "list[float]"], ["v"]),
        (
            ["dict[str, int]", "dict[str, float]", "dict[str, str]"],
            ["v", "v__dict_float", "v__dict_int"],
        ),
        (["any", "list[str]"], ["v", "v__any"]),
    ],
)
def test_lists_that_change_their_type_are_the_same_in_every_way(
    tmp_path, source, spark, kinds, columns
):
    from infobus import define_type

    values = {
        "int": 1,
        "str": "x",
        "any": "x",
        "list[int]": [1],
        "list[str]": ["x"],
        "list[float]": [1.5],
        "dict[str, int]": {"a": 1},
        "dict[str, float]": {"a": 1.5},
        "dict[str, str]": {"a": "x"},
    }
    made = [
        [event(n, define_type("journals.Turns", [], {"v": kind})(v=values[kind]))]
        for n, kind in enumerate(kinds)
    ]
    journal = write(tmp_path / "j", *made)
    frame = source(journal, type="journals.Turns")
    native = pipeline.events(spark, journal.folder, "journals.Turns")
    assert [name for name in native.columns if name.startswith("v")] == columns
    assert native.schema == frame.schema
    assert as_json(native) == as_json(frame)
    assert all(any(row[name] is not None for name in columns) for row in native.collect())
    some = pipeline.events(spark, journal.folder, "journals.Turns", where="exists(v)")
    assert as_json(some) == as_json(frame)


class Batches:
    """Runs a query over a journal until it has read all that is there; collects its batches."""

    def __init__(self, spark, folder, checkpoint, **options):
        pipeline.register(spark)
        self.seen: list[list[int]] = []
        reader = spark.readStream.format("infobus").option("journal", str(folder))
        self.frame = reader.options(**options).load()
        self.checkpoint = str(checkpoint)

    def run(self, fail_at: int | None = None) -> list[list[int]]:
        self.seen = []

        def take(frame, number):
            self.seen.append(offsets(frame))
            if len(self.seen) == fail_at:
                raise RuntimeError("on purpose")

        writer = self.frame.writeStream.foreachBatch(take)
        query = (
            writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(240)
        return self.seen


def test_a_stream_reads_each_event_once_and_the_same_ones_again(journal, spark, tmp_path):
    batches = Batches(
        spark, journal.folder, tmp_path / "c", type="journals.Story", maxEventsPerTrigger="12"
    )
    typed = [n for n in range(40) if n % 5]
    with pytest.raises(PySparkException, match="on purpose"):
        batches.run(fail_at=2)
    first, failed = batches.seen
    assert len(first) <= 12 and len(failed) <= 12
    # What was begun comes again, whatever has become of the files; what is new comes, too.
    with JournalWriter.open(journal.folder) as writer:
        compact(writer, NOW_S, fan=2)
        sweep(writer, NOW_S + 1, 0)
        writer.append(made(40, 44), now_s=NOW_S)
    rest = batches.run()
    assert rest[0] == failed
    assert [*first, *chain(*rest)] == [*typed, 41, 42, 43]
    assert all(len(batch) <= 12 for batch in rest)
    assert batches.run() == []
    # Nothing of the type, but the place moves on.
    write(journal.folder, [event(1, {"n": 1})])
    assert list(chain(*batches.run())) == []


def test_a_journal_that_went_back_is_refused(journal, spark, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(journal.folder, older)
    write(journal.folder, made(40, 44))
    batches = Batches(spark, journal.folder, tmp_path / "c")
    assert list(chain(*batches.run())) == list(range(44))
    shutil.rmtree(journal.folder)
    older.rename(journal.folder)
    with pytest.raises(PySparkException, match=r"at offset 44, but the journal .* ends at 40"):
        batches.run()
    again = Batches(spark, journal.folder, tmp_path / "new", startingOffset="38")
    assert again.run() == [[38, 39]]
    beyond = Batches(spark, journal.folder, tmp_path / "beyond", startingOffset="41")
    with pytest.raises(PySparkException, match=r"startingOffset=41: .* ends at 40"):
        beyond.run()


def test_a_new_version_is_told_and_read_as_far_as_the_columns_go(spark, tmp_path):
    from infobus import define_type

    old = define_type("journals.Grows", [], {"x": int})
    journal = write(tmp_path / "j", [event(1, old(x=1))])
    batches = Batches(spark, journal.folder, tmp_path / "c", type="journals.Grows")
    assert batches.run() == [[0]]
    new = define_type("journals.Grows", [], {"x": int, "y": int})
    below = define_type("journals.GrowsMore", [new], {"z": int})
    write(journal.folder, [event(2, new(x=2, y=3)), event(3, below(x=4, y=5, z=6))])
    assert batches.run() == [[1, 2]]
    again = Batches(spark, journal.folder, tmp_path / "c", type="journals.Grows")
    assert "y" in again.frame.columns  # after a restart
    assert again.frame.select(F.col("y")).columns == ["y"]


def test_a_type_that_changes_ends_a_live_query_and_a_restart_reads_on(spark, tmp_path):
    from infobus import define_type

    folder, seen = tmp_path / "j", []
    old = define_type("journals.Turned", [], {"a": int})
    write(folder, [event(1, old(a=2**60 + 1))])
    pipeline.register(spark)

    def start():
        reader = spark.readStream.format("infobus").option("journal", str(folder))
        frame = reader.option("type", "journals.Turned").load()
        writer = frame.writeStream.foreachBatch(
            lambda part, _: seen.extend(row.a for row in part.collect())
        )
        return writer.option("checkpointLocation", str(tmp_path / "c")).start()

    query = start()
    wait_until(lambda: seen or query.exception(), 120)
    new = define_type("journals.Turned", [], {"a": float})
    write(folder, [event(2, new(a=2.5))])
    with pytest.raises(PySparkException, match=r"journals.Turned has got other attributes .* a \("):
        query.awaitTermination(120)
    query = start()
    query.processAllAvailable()
    query.stop()
    assert seen == [2**60 + 1, 2.5]


def test_times_are_points_in_time(journal, source):
    at = datetime.fromtimestamp(NOW_S, UTC) + timedelta(seconds=30)
    frame = source(journal, since=at.isoformat(), until=str(NOW_S + 32))
    assert offsets(frame) == [30, 31]
    assert Journal.open(journal.folder).next_offset == 40
