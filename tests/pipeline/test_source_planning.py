"""What the source plans, without a Spark: batches of a stream, tasks, options, conditions."""

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from infobus import UsageError
from infobus.errors import StoreError
from infobus.pipeline.schema import spark_schema
from infobus.pipeline.source.filters import filter_of
from infobus.pipeline.source.options import SourceOptions
from infobus.pipeline.source.source import HistoryReader, InfobusSource, LiveReader
from infobus.stores.journal.journal import JournalWriter
from infobus.stores.journal.upkeep import Upkeep, compact, retain, sweep
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
    assert place == {"journal": journal.id, "offset": journal.next_offset}


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
    assert live(tmp_path, startingOffset="4").initialOffset() == end
    with pytest.raises(UsageError, match=r"startingOffset=5: the journal in .* ends at 4"):
        live(tmp_path, startingOffset="5").initialOffset()
    with pytest.raises(StoreError, match="retention has taken events from offset 0 on, up to 2"):
        reader.partitions(begin, {"journal": journal.id, "offset": 4})
    assert reader.initialOffset()["offset"] == 2


def test_small_files_are_put_together_to_tasks_of_about_one_size(tmp_path, monkeypatch):
    monkeypatch.setattr("infobus.pipeline.source.source.TASK_EVENTS_MIN", 25)
    journal = write(tmp_path, *(stories(range(n, n + 10)) for n in range(0, 100, 10)))
    given = {"journal": str(tmp_path), "type": "journals.Story"}
    schema = spark_schema(journal.select("journals.Story").schema)
    reader = HistoryReader(SourceOptions.of(given, is_stream=False), schema)
    parts = reader.partitions()
    assert [len(part.selection.segments) for part in parts] == [2, 3, 2, 3]
    assert read(reader, parts) == list(range(100))
    write(tmp_path, stories(range(100, 200)))
    parts = reader.partitions()
    assert [len(part.selection.segments) for part in parts] == [2, 3, 2, 3, 1]
    assert read(reader, parts) == list(range(200))


def test_much_is_read_in_larger_tasks_but_not_in_few(tmp_path, monkeypatch):
    given = {"journal": str(tmp_path), "type": "journals.Story"}
    journal = write(tmp_path, *(stories(range(n, n + 2)) for n in range(0, 128, 2)))
    schema = spark_schema(journal.select("journals.Story").schema)
    reader = HistoryReader(SourceOptions.of(given, is_stream=False), schema)

    def counts() -> list[int]:
        found = reader.partitions()
        return [sum(one.count for one in part.selection.segments) for part in found]

    monkeypatch.setattr("infobus.pipeline.source.source.TASK_EVENTS_MIN", 4)
    assert counts() == [8] * 16
    monkeypatch.setattr("infobus.pipeline.source.source.TASK_EVENTS_MAX", 4)
    assert counts() == [4] * 32
    size = sum(one.bytes for one in journal.manifest.segments)
    monkeypatch.setattr("infobus.pipeline.source.source.TASK_BYTES_MAX", size // 64)
    assert counts() == [2] * 64


def test_a_new_attribute_is_told_once(tmp_path, caplog):
    from infobus import define_type

    write(tmp_path, [event(1, define_type("journals.Told", [], {"x": int})(x=1))])
    reader = LiveReader(
        SourceOptions.of({"journal": str(tmp_path), "type": "journals.Told"}, is_stream=True),
        InfobusSource({"journal": str(tmp_path), "type": "journals.Told"}).schema(),
    )
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert not caplog.records
    write(tmp_path, [event(2, define_type("journals.Told", [], {"x": int, "y": int})(x=2, y=3))])
    later = reader.latestOffset(end, ReadAllAvailable())
    write(tmp_path, [event(3, {})])
    reader.latestOffset(later, ReadAllAvailable())
    (record,) = caplog.records
    assert "journals.Told has got new attributes" in record.getMessage()
    assert "y; restart the query" in record.getMessage()
    assert read(reader, reader.partitions(begin, later)) == [0, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jurnal": "x"}, "no option 'jurnal'"),
        ({"subtypes": "yes"}, "expected true or false"),
        ({"maxEventsPerTrigger": "0"}, "at least 1"),
        ({"startingOffset": "first"}, "earliest, latest or an offset"),
        ({"until": "2026-01-01T00:00:00"}, "a time with its zone"),
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
