"""The sink: staged rows are published once, whatever is repeated and whoever dies."""

import json
import sqlite3
import subprocess
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from pyspark.sql.types import (
    DateType,
    DecimalType,
    LongType,
    NullType,
    StringType,
    StructType,
)

import infobus
from infobus import UsageError, id_of, type_of
from infobus.errors import DeliveryError, StoreCorrupt
from infobus.pipeline.sink import sink
from infobus.pipeline.sink.ledger import SinkLedger
from infobus.pipeline.sink.publisher import StagedBatch, publish_batch
from infobus.pipeline.sink.sink import BatchSink, SinkOptions, StreamSink
from tests.bus.helpers import wait_until


@pytest.fixture
def job(tmp_path):
    return StagedBatch(
        query="q",
        batch=0,
        files=[stage(tmp_path, range(3)), stage(tmp_path, range(3, 5))],
        type="sink.Alert",
        subject="alerts.{symbol}",
        guaranteed=True,
        bus=f"test-{uuid.uuid4().hex}",
        home=str(tmp_path / "home"),
        connect=[],
        listen=[],
        journal=None,
        is_stream=True,
    )


def stage(folder: Path, numbers: range) -> str:
    rows = [
        {"symbol": f"s{n % 2}", "n": n, "tags": ["a"], "by": {"k": 1.5}, "_subject": f"other.s{n}"}
        for n in numbers
    ]
    schema = pa.schema(
        {
            "symbol": pa.string(),
            "n": pa.int32(),
            "tags": pa.list_(pa.string()),
            "by": pa.map_(pa.string(), pa.float64()),
            "at": pa.timestamp("us", tz="UTC"),
            "_subject": pa.string(),
        }
    )
    moment = {"at": datetime(2026, 1, 1, tzinfo=UTC)}
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(pa.Table.from_pylist([row | moment for row in rows], schema), path)
    return str(path)


def kept(job: StagedBatch) -> list[bytes]:
    """The records of all ledgers, in order."""
    found = []
    for path in sorted(Path(job.home).rglob("ledgers/*.db")):
        with sqlite3.connect(path) as connection:
            found += connection.execute("SELECT record FROM records ORDER BY number").fetchall()
    return found


def received(job: StagedBatch, do, count: int, pattern: str = ">"):
    """What a durable consumer gets of what `do` publishes."""
    with infobus.connect(job.bus, home=job.home) as bus:
        subscription = bus.subscribe(pattern, durable="reader")
        do()
        return [subscription.receive(30) for _ in range(count)]


def test_rows_become_typed_objects_under_computed_subjects(job):
    events = received(job, lambda: publish_batch(job), 5)
    assert [event.subject for event in events] == [f"alerts.s{n % 2}" for n in range(5)]
    first = events[0].data
    assert (first.n, first.tags, first.by) == (0, ["a"], {"k": 1.5})
    assert first.at == datetime(2026, 1, 1, tzinfo=UTC)
    assert type_of(first).name == "sink.Alert"
    assert type_of(first).attributes["n"].type == "int | None"
    assert [id_of(event.data) for event in events] == [f"q.0:{n}" for n in range(5)]
    assert not any(Path(path).exists() for path in job.files)


def test_a_repeated_commit_publishes_nothing_twice(job, tmp_path):
    assert publish_batch(job) == 5
    again = structs.replace(job, files=[stage(tmp_path, range(5))])
    assert publish_batch(again) == 0
    assert len(kept(job)) == 5
    assert publish_batch(structs.replace(job, batch=1, files=[stage(tmp_path, range(2))])) == 2
    # The checkpoint went back a batch: these rows are known, others would be lost without a word.
    back = structs.replace(job, files=[stage(tmp_path, range(5))])
    assert publish_batch(back) == 0
    with pytest.raises(UsageError, match=r"other rows as batch 0 .* with a new checkpoint"):
        publish_batch(structs.replace(job, files=[stage(tmp_path, range(4))]))
    # A new checkpoint is another query.
    assert publish_batch(structs.replace(job, query="r", files=[stage(tmp_path, range(2))])) == 2
    assert len(kept(job)) == 9


def test_a_dataframe_that_is_written_again_is_published_once_and_another_one_is_refused(
    job, tmp_path
):
    job = structs.replace(job, is_stream=False)
    assert publish_batch(job) == 5
    again = [stage(tmp_path, range(2, 5)), stage(tmp_path, range(2))]  # in another order
    assert publish_batch(structs.replace(job, files=again)) == 0
    other = structs.replace(job, files=[stage(tmp_path, range(4))])
    with pytest.raises(UsageError, match=r"other rows as batch 0 .* the option batch, such as 1"):
        publish_batch(other)
    assert not Path(other.files[0]).exists()
    assert publish_batch(structs.replace(job, batch=1, files=[stage(tmp_path, range(4))])) == 4
    again = [stage(tmp_path, range(5))]
    assert publish_batch(structs.replace(job, files=again)) == 0
    assert publish_batch(structs.replace(job, batch=5, files=[stage(tmp_path, range(1))])) == 1
    for batch, complaint in ((0, "has written other rows"), (3, "as batch 3 is not known")):
        with pytest.raises(UsageError, match=rf"{complaint}.* the option batch, such as 6"):
            publish_batch(structs.replace(job, batch=batch, files=[stage(tmp_path, range(2))]))


def test_a_dataframe_without_rows_is_not_taken_for_one_with_rows(job):
    job = structs.replace(job, is_stream=False)
    assert publish_batch(structs.replace(job, files=[])) == 0
    with pytest.raises(UsageError, match="other rows as batch 0"):
        publish_batch(job)


def test_a_row_without_a_part_of_its_subject_is_refused(job, tmp_path):
    table = pa.table({"symbol": ["s", None]})
    pq.write_table(table, tmp_path / "nulls.parquet")
    with pytest.raises(UsageError, match="a row has no subject"):
        publish_batch(structs.replace(job, files=[str(tmp_path / "nulls.parquet")]))
    assert kept(job) == []


@pytest.mark.parametrize(
    ("type_", "subject", "message"),
    [
        (DateType(), "a.{symbol}", r"column more: objects hold no values of date32"),
        (DecimalType(9, 2), "a.{symbol}", "column more: .* decimal"),
        (NullType(), "a.{symbol.__class__}", "columns stand in braces"),
        (NullType(), "a.{symbol!r}", "columns stand in braces"),
        (NullType(), "a.{}", "columns stand in braces"),
        (NullType(), "a.{symbol", "expected '}'"),
    ],
)
def test_columns_and_subjects_that_cannot_be_are_refused_before_anything_is_staged(
    type_, subject, message
):
    schema = StructType().add("symbol", StringType()).add("more", type_)
    with pytest.raises(UsageError, match=message):
        SinkOptions.of({"type": "sink.Alert", "subject": subject}, schema)
    nothing = StructType().add("symbol", StringType()).add("more", NullType())
    assert SinkOptions.of({"type": "sink.Alert", "subject": "a.{symbol}"}, nothing)


class Died(BaseException):
    pass


@pytest.mark.parametrize("step", ["intend", "settle", "save"])
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_commit_that_dies_anywhere_is_finished_by_the_next(
    job, tmp_path, monkeypatch, step, is_late, at
):
    original = getattr(SinkLedger, step)
    calls = 0

    def die(self, *arguments):
        nonlocal calls
        calls += 1
        if calls == at and not is_late:
            raise Died
        original(self, *arguments)
        if calls == at:
            raise Died

    monkeypatch.setattr("infobus.pipeline.sink.publisher.CHUNK_COUNT", 2)
    with monkeypatch.context() as patch:
        patch.setattr(SinkLedger, step, die)
        with pytest.raises(Died):
            publish_batch(job)
    # The repetition has the rows in another order, and in other files.
    again = [stage(tmp_path, range(2, 5)), stage(tmp_path, range(2))]
    publish_batch(structs.replace(job, files=again))
    records = kept(job)
    assert len(records) == len(set(records)) == 5
    assert publish_batch(structs.replace(job, files=[])) == 0


def test_reliable_events_go_at_most_once(job, monkeypatch):
    events = []
    with infobus.connect(job.bus, home=job.home) as bus:
        bus.subscribe("alerts.>", events.append)
        assert publish_batch(structs.replace(job, guaranteed=False)) == 5
        wait_until(lambda: len(events) >= 5, 30)
        assert publish_batch(structs.replace(job, guaranteed=False)) == 0
    assert [event.data.n for event in events] == [0, 1, 2, 3, 4]


def test_options_that_cannot_be_read_are_refused():
    schema = StructType().add("symbol", StringType())
    given = {"type": "sink.Alert", "subject": "a.{symbol}"}
    for option, message in (
        ({"guaranteed": "yes"}, "guaranteed='yes': expected true or false"),
        ({"batch": "x"}, "batch='x': expected a whole number"),
        ({"batch": "-1"}, "batch='-1': expected a whole number"),
    ):
        with pytest.raises(UsageError, match=message):
            SinkOptions.of({**given, **option}, schema)
    assert SinkOptions.of({**given, "guaranteed": "TRUE", "batch": "3"}, schema).job.guaranteed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subject": "alerts.{symbl}"}, "columns stand in braces"),
        ({"subject": "alerts..x"}, "empty"),
        ({"type": "Property"}, "Property"),
        ({"type": "not a name"}, "identifiers"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_published(job, change, message):
    with pytest.raises(UsageError, match=message):
        publish_batch(structs.replace(job, **change))
    assert kept(job) == []
    assert publish_batch(job) == 5


def test_a_ledger_that_cannot_be_read_is_told(job, tmp_path):
    publish_batch(job)
    (path,) = Path(job.home).rglob("sinks/*.json")
    path.write_text("{")
    with pytest.raises(StoreCorrupt, match="rows may be published twice"):
        publish_batch(structs.replace(job, batch=1, files=[stage(tmp_path, range(2))]))


DYING = """
import os, signal
from infobus.pipeline.sink import publisher as sink_publishing
from infobus.pipeline.sink.ledger import SinkLedger

settle = SinkLedger.settle

def die(self, count):
    settle(self, count)
    os.kill(os.getpid(), signal.SIGKILL)

SinkLedger.settle = die
sink_publishing.CHUNK_COUNT = 2
sink_publishing.main()
"""
SCHEMA = StructType().add("_subject", StringType()).add("n", LongType())


def write_checkpoint(folder: Path) -> None:
    """What Spark writes when a query begins."""
    folder.mkdir(exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def sink_in(tmp_path: Path, **more: str) -> SinkOptions:
    given = {"type": "sink.Row", "guaranteed": "true", "bus": "test", "home": str(tmp_path)}
    return SinkOptions.of({**given, **more}, SCHEMA)


@pytest.fixture
def stream(tmp_path):
    """Makes a stream of a named query, as after each start, and stages two files of five rows."""
    checkpoint = tmp_path / "checkpoint"
    write_checkpoint(checkpoint)

    def start(numbers: range = range(5)):
        made = StreamSink(sink_in(tmp_path, query="p.job", checkpointLocation=str(checkpoint)))
        parts = [rows(numbers[:3]), rows(numbers[3:])]
        return made, [made.write(iter([part])) for part in parts]

    return start


def rows(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"_subject": f"a.{n}", "n": n} for n in numbers])


def dying(command, *, run=subprocess.run, **more):
    return run([command[0], "-c", DYING], **more)


def staged(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]


def published(tmp_path: Path) -> list[bytes]:
    found = []
    for path in sorted(tmp_path.rglob("ledgers/*.db")):
        with sqlite3.connect(path) as connection:
            found += connection.execute("SELECT record FROM records").fetchall()
    return found


def test_a_stream_whose_publishing_process_is_killed_goes_on_after_a_restart(
    stream, tmp_path, monkeypatch
):
    for count in (2, 4):
        made, messages = stream()
        lost = made.write(iter([rows(range(9))]))  # of a task that was killed
        with monkeypatch.context() as patch:
            patch.setattr(sink.subprocess, "run", dying)
            with pytest.raises(DeliveryError, match=r"not published: its process ended with -9"):
                made.commit(messages, 0)
        made.abort(messages, 0)  # as Spark does
        assert not Path(lost.path).exists()
        assert len(published(tmp_path)) == count
    made, messages = stream()
    made.commit(messages, 0)
    records = published(tmp_path)
    assert len(records) == len(set(records)) == 5
    assert staged(tmp_path) == []


def test_what_killed_tasks_have_staged_is_removed_with_the_next_batch(stream, tmp_path):
    stream()  # killed before it could say anything
    made, messages = stream()
    assert len(staged(tmp_path)) == 4
    other = StreamSink(sink_in(tmp_path, query="p.other", checkpointLocation=str(tmp_path / "o")))
    beside = other.write(iter([rows(range(5))]))
    made.commit(messages, 0)
    assert staged(tmp_path) == [Path(beside.path)]
    # Nothing of it was published, so nothing is needed any more.
    write_checkpoint(tmp_path / "o")
    other.abort([beside, None], 0)
    assert staged(tmp_path) == []


def test_a_dataframe_whose_publishing_process_is_killed_goes_on_when_it_is_written_again(
    tmp_path, monkeypatch
):
    def write() -> None:
        made = BatchSink(sink_in(tmp_path, query="once"))
        messages = [made.write(iter([rows(range(5))]))]
        try:
            made.commit(messages)
        except BaseException:
            made.abort(messages)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(sink.subprocess, "run", dying)
        with pytest.raises(DeliveryError):
            write()
    write()
    records = published(tmp_path)
    assert len(records) == len(set(records)) == 5
    assert staged(tmp_path) == []


def test_rows_that_are_gone_are_told_with_what_to_do(job, monkeypatch):
    monkeypatch.setattr(SinkLedger, "intend", lambda self, count: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        publish_batch(job)
    Path(job.files[0]).unlink()
    with pytest.raises(StoreCorrupt, match=r"0 are published; move .*q\.json away"):
        publish_batch(job)


def test_a_failure_is_told_by_the_last_line_of_its_traceback(stream):
    made, messages = stream()
    Path(messages[0].path).unlink()
    with pytest.raises(DeliveryError) as caught:
        made.commit(messages, 0)
    assert ": FileNotFoundError: " in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_new_checkpoint_is_a_new_query_whatever_its_name(stream, tmp_path):
    made, messages = stream()
    made.commit(messages, 0)
    write_checkpoint(tmp_path / "checkpoint")  # as if the old one was removed
    made, messages = stream(range(10, 15))
    made.commit(messages, 0)
    assert len(set(published(tmp_path))) == 10


def test_a_name_alone_does_not_make_other_rows_the_same(tmp_path):
    """As where the checkpoint is on another file system."""
    made = StreamSink(sink_in(tmp_path, query="p.job", checkpointLocation="far://x/y"))
    for _ in range(2):
        made.commit([made.write(iter([rows(range(5))]))], 0)
    assert len(published(tmp_path)) == 5
    with pytest.raises(UsageError, match="has written other rows as batch 0 before"):
        made.commit([made.write(iter([rows(range(4))]))], 0)


class TestLedgersOfVersionsThatKnewNoCheckpoint:
    """They are named by the query alone."""

    @pytest.fixture
    def new(self, job, tmp_path):
        return structs.replace(job, query="q.id", former="q", files=[stage(tmp_path, range(5))])

    def test_its_last_batch_is_not_published_again(self, job, new, tmp_path):
        for batch in range(3):
            files = [stage(tmp_path, range(5))]
            publish_batch(structs.replace(job, batch=batch, files=files))
        assert publish_batch(structs.replace(new, batch=2)) == 0
        files = [stage(tmp_path, range(5))]
        assert publish_batch(structs.replace(new, batch=3, files=files)) == 5

    def test_its_first_batch_is_told_by_its_rows(self, job, new, tmp_path):
        publish_batch(job)
        other = structs.replace(new, query="q.other", files=[stage(tmp_path, range(4))])
        assert publish_batch(other) == 4
        assert publish_batch(new) == 0

    @pytest.mark.parametrize("batch", [0, 4])
    def test_what_was_begun_is_finished(self, job, new, monkeypatch, batch):
        monkeypatch.setattr("infobus.pipeline.sink.publisher.CHUNK_COUNT", 2)
        for is_published in (False, True):
            with monkeypatch.context() as patch:
                settle = SinkLedger.settle

                def die(self, count, settle=settle, is_published=is_published):
                    if is_published:
                        settle(self, count)
                    raise Died

                patch.setattr(SinkLedger, "settle", die)
                with pytest.raises(Died):
                    publish_batch(structs.replace(job, batch=batch))
        publish_batch(structs.replace(new, batch=batch))
        records = kept(job)
        assert len(records) == len(set(records)) == 5

    def test_it_does_not_stand_for_a_checkpoint_that_begins_after_it(self, job, new, tmp_path):
        publish_batch(job)
        assert publish_batch(structs.replace(new, batch=1)) == 5
        files = [stage(tmp_path, range(5))]
        assert publish_batch(structs.replace(new, query="q.next", files=files)) == 5

    def test_the_same_dataframe_is_known_and_another_is_published(self, job, new, tmp_path):
        publish_batch(structs.replace(job, is_stream=False))
        again = structs.replace(new, batch=17, is_stream=False)
        assert publish_batch(again) == 0
        files = [stage(tmp_path, range(4))]
        assert publish_batch(structs.replace(again, batch=18, files=files)) == 4


def test_a_column_of_headers_gives_each_event_its_own(job, tmp_path):
    value = pa.struct({"kind": pa.string(), "text": pa.string(), "int": pa.int64()})
    typed = [[("trace", {"kind": "str", "text": "a"}), ("n", {"kind": "int", "int": 2})], None]
    plain = [[("trace", "b"), ("gone", None)], []]
    files = []
    for kind, rows in ((value, typed), (pa.string(), plain)):
        columns = {
            "symbol": pa.array(["s0"] * 2),
            "_headers": pa.array(rows, pa.map_(pa.string(), kind)),
        }
        files.append(str(tmp_path / f"{uuid.uuid4().hex}.parquet"))
        pq.write_table(pa.table(columns), files[-1])
    events = received(job, lambda: publish_batch(structs.replace(job, files=files)), 4)
    told = [dict(event.headers) for event in events]
    assert told == [{"trace": "a", "n": 2}, {}, {"trace": "b"}, {}]
