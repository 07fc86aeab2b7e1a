"""The sink: staged rows are published once, whatever is repeated and whoever dies."""

import sqlite3
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from pyspark.sql.types import DateType, DecimalType, NullType, StringType, StructType

import infobus
from infobus import UsageError, id_of, type_of
from infobus.errors import StoreCorrupt
from infobus.pipeline.sink import SinkOptions
from infobus.pipeline.sink_ledger import SinkLedger
from infobus.pipeline.sink_publishing import Job, publish_batch
from tests.bus.helpers import wait_until


@pytest.fixture
def job(tmp_path):
    return Job(
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


def kept(job: Job) -> list[bytes]:
    """The records of all ledgers, in order."""
    found = []
    for path in sorted(Path(job.home).rglob("ledgers/*.db")):
        with sqlite3.connect(path) as connection:
            found += connection.execute("SELECT record FROM records ORDER BY number").fetchall()
    return found


def received(job: Job, do, count: int, pattern: str = ">"):
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
    assert publish_batch(structs.replace(again, batch=-1)) == 0
    assert len(kept(job)) == 5
    assert publish_batch(structs.replace(job, batch=1, files=[stage(tmp_path, range(2))])) == 2
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

    monkeypatch.setattr("infobus.pipeline.sink_publishing.CHUNK_COUNT", 2)
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
