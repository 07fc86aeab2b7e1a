"""What the source plans, without a Spark: batches of a stream, tasks, options, conditions."""

import shutil
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from infobus import Event, UsageError, define_type
from infobus.errors import DeliveryError, StoreError
from infobus.pipeline.schema import spark_schema
from infobus.pipeline.source.filters import filter_of
from infobus.pipeline.source.options import SourceOptions
from infobus.pipeline.source.source import HistoryReader, InfobusSource, LiveReader
from infobus.stores.journal.journal import JournalWriter
from infobus.stores.journal.upkeep import Upkeep, _replace, compact, retain, sweep
from tests.stores.journals import NOW_S, Story, event, stories, write


def live(folder, **options) -> LiveReader:
    given = {"journal": str(folder), "columns": "_offset", **options}
    schema = InfobusSource(given).schema()
    return LiveReader(SourceOptions.of(given, is_stream=True), schema)


def read(reader, parts) -> list[int]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(offset for batch in batches for offset in batch["_offset"].to_pylist())


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=8),
    st.integers(1, 12),
    st.booleans(),
)
def test_batches_are_within_their_limit_and_come_to_everything(new_folder, commits, most, typed):
    folder = new_folder()
    mixed = [
        [event(0, Story(headline="x")) if is_story else event(0, {}) for is_story in commit]
        for commit in commits
    ]
    journal = write(folder, *mixed)
    reader = live(folder, **({"type": "journals.Story"} if typed else {}))
    reader.prepareForTriggerAvailableNow()
    write(folder, [event(0, Story(headline="later"))])
    seen, again, place = [], [], reader.initialOffset()
    plans = []
    while (end := reader.latestOffset(place, ReadMaxRows(most))) != place:
        batch = read(reader, reader.partitions(place, end))
        assert len(batch) <= most
        seen += batch
        plans.append((place, end))
        place = end
    kinds = [is_story for commit in commits for is_story in commit]
    assert seen == [at for at, is_story in enumerate(kinds) if is_story or not typed]
    # The same places are the same events, whatever has become of the files.
    with JournalWriter.open(folder) as writer:
        compact(writer, NOW_S, fan=2)
        sweep(writer, NOW_S + 1, 0)
    for start, end in plans:
        again += read(reader, reader.partitions(start, end))
    assert again == seen
    assert (place["journal"], place["offset"]) == (journal.id, journal.next_offset)


def test_limits_and_beginnings(tmp_path):
    journal = write(tmp_path, stories(range(20)))
    reader = live(tmp_path, maxEventsPerTrigger="7")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, ReadAllAvailable())["offset"] == 20
    assert reader.latestOffset(begin, ReadMaxBytes(1))["offset"] == 1
    size = journal.manifest.segments[0].bytes
    assert reader.latestOffset(begin, ReadMaxBytes(size // 2))["offset"] == 10
    assert reader.reportLatestOffset()["offset"] == 20
    assert live(tmp_path, startingOffset="latest").initialOffset()["offset"] == 20
    assert live(tmp_path, startingOffset="5").initialOffset()["offset"] == 5
    assert live(tmp_path, maxBytesPerTrigger="7").getDefaultReadLimit() == ReadMaxBytes(7)


def test_places_that_are_gone_or_foreign_are_refused(tmp_path):
    journal = write(tmp_path, *(stories(range(n, n + 1)) for n in range(4)))
    reader = live(tmp_path)
    begin = reader.initialOffset()
    with pytest.raises(UsageError, match="the checkpoint belongs to the journal other"):
        reader.latestOffset({"journal": "other", "offset": 0}, ReadAllAvailable())
    with JournalWriter.open(tmp_path) as writer:
        keep = sum(one.bytes for one in journal.manifest.segments[2:])
        retain(writer, NOW_S, Upkeep(keep_bytes=keep))
    end, beyond = ({"journal": journal.id, "offset": offset} for offset in (4, 5))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    for ask in (
        lambda: reader.latestOffset(beyond, ReadAllAvailable()),
        lambda: reader.partitions(end, beyond),
    ):
        with pytest.raises(UsageError, match=r"at offset 5, but .* ends at 4: it seems to have"):
            ask()
    assert live(tmp_path, startingOffset="4").initialOffset()["offset"] == 4
    with pytest.raises(UsageError, match=r"startingOffset=5: the journal in .* ends at 4"):
        live(tmp_path, startingOffset="5").initialOffset()
    with pytest.raises(StoreError, match="retention has taken events from offset 0 on, up to 2"):
        reader.partitions(begin, {"journal": journal.id, "offset": 4})
    assert reader.initialOffset()["offset"] == 2


def test_small_files_are_put_together_to_tasks_of_about_one_size(tmp_path, monkeypatch):
    monkeypatch.setattr("infobus.pipeline.source.tasks.TASK_EVENTS_MIN", 25)
    journal = write(tmp_path, *(stories(range(n, n + 10)) for n in range(0, 100, 10)))
    given = {"journal": str(tmp_path), "type": "journals.Story"}
    schema = spark_schema(journal.select("journals.Story").schema)
    reader = HistoryReader(SourceOptions.of(given, is_stream=False), schema)
    parts = reader.partitions()
    assert [len(part.selection.segments) for part in parts] == [2, 3, 2, 3]
    assert read(reader, parts) == list(range(100))
    write(tmp_path, stories(range(100, 200)))
    parts = reader.partitions()
    assert [len(part.selection.segments) for part in parts] == [2, 3, 2, 3, 1, 1, 1, 1]
    assert read(reader, parts) == list(range(200))


def test_much_is_read_in_larger_tasks_but_not_in_few(tmp_path, monkeypatch):
    given = {"journal": str(tmp_path), "type": "journals.Story"}
    journal = write(tmp_path, *(stories(range(n, n + 2)) for n in range(0, 128, 2)))
    schema = spark_schema(journal.select("journals.Story").schema)
    reader = HistoryReader(SourceOptions.of(given, is_stream=False), schema)

    def counts() -> list[int]:
        found = reader.partitions()
        return [sum(one.count for one in part.selection.segments) for part in found]

    monkeypatch.setattr("infobus.pipeline.source.tasks.TASK_EVENTS_MIN", 4)
    assert counts() == [8] * 16
    monkeypatch.setattr("infobus.pipeline.source.tasks.TASK_EVENTS_MAX", 4)
    assert counts() == [4] * 32
    size = sum(one.bytes for one in journal.manifest.segments)
    monkeypatch.setattr("infobus.pipeline.source.tasks.TASK_BYTES_MAX", size // 64)
    assert counts() == [2] * 64


def of_type(folder, name, **options) -> LiveReader:
    given = {"journal": str(folder), "type": name, **options}
    schema = InfobusSource(given).schema()
    return LiveReader(SourceOptions.of(given, is_stream=True), schema)


def told(number: int, **kinds) -> Event:
    """An event of a version of the type `journals.Told`."""
    return event(number, define_type("journals.Told", [], kinds)(**dict.fromkeys(kinds, number)))


def test_new_attributes_end_a_query_with_a_line_that_says_how_to_go_on(tmp_path):
    write(tmp_path, [told(1, x=int)])
    reader = of_type(tmp_path, "journals.Told")
    ignoring = of_type(tmp_path, "journals.Told", newColumns="ignore")
    chosen = of_type(tmp_path, "journals.Told", columns="_offset,x")
    begin = reader.initialOffset()
    ends = [one.latestOffset(begin, ReadAllAvailable()) for one in (reader, ignoring, chosen)]
    write(tmp_path, [told(2, x=int, y=int)])
    with pytest.raises(DeliveryError, match=r"other attributes since .* y; to read on with them"):
        reader.latestOffset(ends[0], ReadAllAvailable())
    for one in (ignoring, chosen, of_type(tmp_path, "journals.Told")):
        end = one.latestOffset(begin, ReadAllAvailable())
        assert read(one, one.partitions(begin, end)) == [0, 1]


def test_an_attribute_of_another_kind_ends_a_query_and_a_restart_reads_on(tmp_path):
    write(tmp_path, [told(1, a=int)])
    reader = of_type(tmp_path, "journals.Told", columns="_offset,a")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    version = define_type("journals.Told", [], {"a": float})
    write(tmp_path, [event(2, version(a=2.5))])
    with pytest.raises(DeliveryError, match=r"a \(now double\); to read on .* restart the query"):
        reader.latestOffset(end, ReadAllAvailable())
    # Also if the change comes between planning and reading: such a failure is not for good.
    late = of_type(tmp_path, "journals.Told", columns="_offset,a")
    late._target = reader._target
    later = late.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DeliveryError, match=r"column a holds double .* restart the query"):
        read(late, late.partitions(end, later))
    again = of_type(tmp_path, "journals.Told", columns="_offset,a")
    [part] = again.partitions(begin, later)
    assert [row for one in again.read(part) for row in one["a"].to_pylist()] == [1.0, 2.5]


def test_of_two_limits_the_first_that_is_reached_counts(tmp_path):
    journal = write(tmp_path, stories(range(20)))
    size = journal.manifest.segments[0].bytes
    for events, count, end in (("7", size // 2, 7), ("15", size // 2, 10)):
        reader = live(tmp_path, maxEventsPerTrigger=events, maxBytesPerTrigger=str(count))
        limit = reader.getDefaultReadLimit()
        assert reader.latestOffset(reader.initialOffset(), limit)["offset"] == end


def test_a_batch_of_a_stream_is_several_tasks_even_from_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr("infobus.pipeline.source.tasks.MAP_EVENTS_MIN", 10)
    monkeypatch.setattr("infobus.pipeline.source.tasks.TASK_EVENTS_MIN", 30)
    write(tmp_path, stories(range(100)))
    for options, sizes in (
        ({"columns": "_offset,_attributes"}, [10, 10, 10, 10]),
        ({"columns": "_offset"}, [40]),
        ({"columns": "_offset", "minPartitions": "8"}, [5] * 8),
        ({"columns": "_offset", "minPartitions": "100"}, [1] * 40),
    ):
        reader = live(tmp_path, startingOffset="20", **options)
        begin = reader.initialOffset()
        parts = reader.partitions(begin, reader.latestOffset(begin, ReadMaxRows(40)))
        assert [len(read(reader, [part])) for part in parts] == sizes
        assert read(reader, parts) == list(range(20, 60))


def test_large_files_are_cut_where_their_row_groups_end(tmp_path, monkeypatch):
    for where in ("stores.journal.writer", "pipeline.source.tasks"):
        monkeypatch.setattr(f"infobus.{where}.ROW_GROUP_COUNT", 10)
    monkeypatch.setattr("infobus.pipeline.source.tasks.TASK_EVENTS_MIN", 24)
    write(tmp_path, stories(range(100)))
    reader = live(tmp_path)
    begin = reader.initialOffset()
    parts = reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
    assert [len(read(reader, [part])) for part in parts] == [20, 20, 20, 20, 20]
    reader = live(tmp_path, startingOffset="5")
    begin = reader.initialOffset()
    parts = reader.partitions(begin, reader.latestOffset(begin, ReadMaxRows(70)))
    assert [len(read(reader, [part])) for part in parts] == [15, 20, 20, 15]


def test_retention_of_one_type_takes_nothing_from_streams_of_another(tmp_path):
    tales = [event(n, Story(headline="x", n=n)) for n in range(0, 10, 2)]
    write(tmp_path, [one for pair in zip(tales, stories(range(5)), strict=True) for one in pair])
    early = live(tmp_path, type="journals.Story").initialOffset()
    other = of_type(tmp_path, "journals.Story").initialOffset()
    assert early["offset"] == other["offset"] == 0
    mixed = [event(0, {"n": 1}), event(1, Story(headline="y"))]
    folder = tmp_path / "mixed"
    journal = write(folder, mixed, mixed)
    untyped = [one for one in journal.manifest.segments if not one.type]
    # The file of the dict at offset 2 goes, that of the story at offset 1 stays.
    with JournalWriter.open(folder) as writer:
        _replace(writer, {untyped[-1].path}, NOW_S, is_loss=True)
    reader, typed = live(folder), live(folder, type="journals.Story")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert read(reader, reader.partitions(begin, end)) == [0, 1, 3]
    # One event at a time, the positions still know what was gone before the query began.
    step = reader.latestOffset(begin, ReadMaxRows(1))
    assert read(reader, reader.partitions(step, end)) == [1, 3]
    place = {"journal": journal.id, "offset": 1}
    assert read(typed, typed.partitions(place, end)) == [1, 3]
    with pytest.raises(StoreError, match="set the option failOnDataLoss to false"):
        reader.latestOffset(place, ReadAllAvailable())
    careless = live(folder, failOnDataLoss="false")
    later = careless.latestOffset(place, ReadAllAvailable())
    assert read(careless, careless.partitions(place, later)) == [1, 3]


def test_a_position_in_a_journal_that_was_restored_is_refused_also_when_it_has_grown(tmp_path):
    folder, copy = tmp_path / "j", tmp_path / "copy"
    write(folder, stories(range(4)))
    shutil.copytree(folder, copy)
    write(folder, stories(range(4, 8)))
    reader = live(folder)
    place = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    before = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    with pytest.raises(UsageError, match=r"at offset 6, but .* ends at 4"):
        reader.latestOffset(place, ReadAllAvailable())
    write(folder, stories(range(10, 20)))
    with pytest.raises(UsageError, match="has other events before that offset than those that"):
        reader.latestOffset(place, ReadAllAvailable())
    # What was read before the copy was made is the same in both.
    assert reader.latestOffset(before, ReadAllAvailable())["offset"] == 14
    assert reader.latestOffset({"journal": before["journal"], "offset": 6}, ReadAllAvailable())


def test_places_by_time(tmp_path):
    journal = write(tmp_path, *([event(n, Story(headline="x"))] for n in (5, 3, 7, 9)))

    def at(seconds: float) -> str:
        return str(NOW_S + seconds)

    times = [one.time - NOW_S for one in journal.select().events()]
    assert times == [5, 3, 7, 9]
    reader = live(tmp_path, startingTimestamp=at(6), endingTimestamp=at(8))
    begin = reader.initialOffset()
    assert (begin["offset"], reader.latestOffset(begin, ReadAllAvailable())["offset"]) == (2, 3)
    assert live(tmp_path, startingTimestamp=at(99)).initialOffset()["offset"] == 4
    reader = live(tmp_path, endingOffset="3")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["offset"] == 3
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    for options, offsets in (
        ({"startingOffset": "1", "endingOffset": "3"}, [1, 2]),
        ({"startingTimestamp": at(6)}, [2, 3]),
        ({"endingTimestamp": at(4)}, []),
    ):
        given = {"journal": str(tmp_path), "columns": "_offset", **options}
        history = HistoryReader(
            SourceOptions.of(given, is_stream=False), InfobusSource(given).schema()
        )
        assert read(history, history.partitions()) == offsets


def test_untyped_reads_may_name_the_attributes_that_they_need(tmp_path):
    odd = {"n": 1, "deep": {"n": 2}, "other": [3]}
    write(tmp_path, [event(0, Story(headline="x", n=4)), event(1, odd)])
    found = {}
    for names in ("n", "headline, deep", ""):
        given = {"journal": str(tmp_path), "attributes": names, "where": "n < 9"}
        schema = InfobusSource(given).schema()
        reader = HistoryReader(SourceOptions.of(given, is_stream=False), schema)
        batches = [one for part in reader.partitions() for one in reader.read(part)]
        rows = [row for one in batches for row in one.to_pylist()]
        found[names] = [sorted(dict(row["_attributes"] or ())) for row in rows]
    assert found == {
        "n": [["n"], ["n"]],
        "headline, deep": [["headline"], ["deep", "deep.n"]],
        "": [[], []],
    }


def test_a_large_journal_that_is_read_whole_is_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("infobus.pipeline.source.source.WHOLE_BYTES", 10)
    write(tmp_path, stories(range(5)))
    for options in ({}, {"pushdown": "false"}, {"where": "n > 1"}, {"columns": "_offset"}):
        given = {"journal": str(tmp_path), **options}
        schema = InfobusSource(given).schema()
        HistoryReader(SourceOptions.of(given, is_stream=False), schema).partitions()
    [record] = caplog.records
    assert "pushdown=true hands down the conditions" in record.getMessage()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jurnal": "x"}, "no option 'jurnal'"),
        ({"subtypes": "yes"}, "expected true or false"),
        ({"maxEventsPerTrigger": "0"}, "at least 1"),
        ({"startingOffset": "first"}, "earliest, latest or an offset"),
        ({"until": "2026-01-01T00:00:00"}, "a time with its zone"),
        ({"endingOffset": "earliest"}, "expected latest or an offset"),
        ({"failOnDataLoss": "no"}, "expected true or false"),
        ({"newColumns": "take"}, "expected end or ignore"),
        ({"keepDays": "-1"}, "a number above 0"),
        ({"journal": "j", "keepMb": "7"}, "are for a live query"),
        ({"attributes": "x", "type": "T"}, "attributes and type are both given"),
        ({"startingOffset": "1", "startingTimestamp": "1"}, "which of them counts"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        SourceOptions.of(given, is_stream=True)


def test_a_stream_without_a_journal_is_live(tmp_path):
    options = SourceOptions.of({"subject": "news.>", "home": str(tmp_path)}, is_stream=True)
    assert options.live
    assert options.journal.is_relative_to(tmp_path)
    history = SourceOptions.of({"subject": "news.>", "home": str(tmp_path)}, is_stream=False)
    assert (history.journal, history.live) == (options.journal, False)
    assert not SourceOptions.of({"journal": "j"}, is_stream=True).live


def test_conditions_in_the_subscription_language():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    name = ("a",)
    for condition, text in [
        (spark.EqualTo(name, "x"), 'a == "x"'),
        (spark.Not(spark.EqualTo(name, 1)), "a != 1"),
        (spark.GreaterThan(name, 1.5), "a > 1.5 || nan(a)"),
        (spark.GreaterThan(name, at), 'a > datetime("2026-01-01T00:00:00Z")'),
        (spark.LessThanOrEqual(("o", "b"), 3), "o.b <= 3"),
        (spark.In(name, (1, 2)), "a in [1, 2]"),
        (spark.In(name, (1,)), "a == 1"),
        (spark.IsNull(name), "!exists(a)"),
        (spark.StringStartsWith(name, "x"), 'begins-with(a, "x")'),
        (spark.EqualTo(name, None), None),
        (spark.EqualTo(name, float("nan")), None),
        (spark.LessThan(name, datetime(2026, 1, 1)), None),
        (spark.In(name, (1, None)), None),
        (spark.EqualNullSafe(name, 1), None),
    ]:
        assert filter_of([condition]) == text, condition
    assert filter_of([spark.IsNotNull(name), spark.EqualTo(("b",), 1)]) == "exists(a) && b == 1"
