"""The live bus in Spark: what is published comes, and rows that Spark makes are published."""

import time
import uuid

import pytest
from pyspark.sql import functions as F

import infobus
from infobus import DataObject, pipeline
from infobus.pipeline.source.live import is_written
from infobus.pipeline.source.options import live_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Quote(DataObject, name="live.Quote"):
    symbol: str
    price: float


def wait_until(is_so, timeout_s=120.0):
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.1)


def test_from_the_bus_through_spark_and_back(spark, tmp_path):
    pipeline.register(spark)
    name, home = f"test-{uuid.uuid4().hex}", tmp_path / "home"
    bus_options = {"bus": name, "home": str(home)}
    folder = live_folder(home, name, "quotes.>")
    quotes = spark.readStream.format("infobus").options(**bus_options, subject="quotes.>").load()
    attribute = F.col("_attributes")
    alerts = quotes.where(attribute["price"]["float"] > 40).select(
        attribute["symbol"]["text"].alias("symbol"),
        attribute["price"]["float"].alias("price"),
        F.col("_object_id").alias("about"),
    )
    sink = {"type": "live.Alert", "subject": "alerts.{symbol}", "guaranteed": "true"}
    query = (
        alerts.writeStream.format("infobus")
        .options(**bus_options, **sink, checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        with infobus.connect(name, home=home) as bus:
            received = bus.subscribe("alerts.>", durable="trader")
            wait_until(lambda: (folder / "recording.txt").exists() or query.exception())
            bus.publish_many(
                [(f"quotes.s{n}", Quote(symbol=f"s{n}", price=n)) for n in range(39, 43)]
            )
            bus.publish("quotes.g", Quote(symbol="g", price=99), guaranteed=True)
            events = [received.receive(120) for _ in range(3)]
            assert {event.subject for event in events} == {"alerts.s41", "alerts.s42", "alerts.g"}
            assert {event.data.price for event in events} == {41.0, 42.0, 99.0}
            assert all(event.data.about for event in events)
            assert query.exception() is None
            assert is_written(folder)
    finally:
        query.stop()
    wait_until(lambda: not is_written(folder), 60)
    history = spark.read.format("infobus").options(**bus_options, subject="quotes.>").load()
    assert history.count() == 5


def test_a_dataframe_is_published_once_under_its_name(spark, tmp_path):
    pipeline.register(spark)
    name, home = f"test-{uuid.uuid4().hex}", tmp_path / "home"
    frame = spark.createDataFrame([("a.x", 1), ("a.y", 2)], "_subject string, n long")
    writer = frame.write.format("infobus").mode("append")
    writer = writer.options(bus=name, home=str(home), type="live.Row", query="once")
    writer = writer.option("guaranteed", "true")
    with infobus.connect(name, home=home) as bus:
        received = bus.subscribe("a.>", durable="reader")
        writer.save()
        writer.save()
        assert sorted(received.receive(60).data.n for _ in range(2)) == [1, 2]
        with pytest.raises(TimeoutError):
            received.receive(1.0)
