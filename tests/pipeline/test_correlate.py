"""The event correlation engine on Spark: what history tells, live events tell as well."""

from datetime import UTC, datetime
from random import Random

import pytest

from infobus import Event
from infobus.pipeline import register
from infobus.pipeline.jobs import options_for, run
from infobus.pipeline.jobs.correlate import correlate
from tests.stores.journals import Story, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BEGIN_S = 1_700_000_000.0
LATE_S = 5.0
RULES = [
    {
        "kind": "sequence",
        "name": "forced",
        "key": "{room}",
        "within_s": 4,
        "steps": [
            {"subject": "door.>", "where": 'state == "open"'},
            {"subject": "alarm.>"},
        ],
    },
    {
        "kind": "absence",
        "name": "unanswered",
        "key": "{room}",
        "within_s": 6,
        "after": {"subject": "alarm.>"},
        "missing": {"subject": "door.>", "where": 'state == "shut"'},
    },
    {"kind": "repetition", "name": "often", "within_s": 3, "step": {"subject": "*.b"}, "count": 2},
    {
        "kind": "aggregate",
        "name": "busy",
        "within_s": 10,
        "step": {"where": "exists(n)"},
        "function": "sum",
        "of": "n",
        "having": "count > 3",
    },
    {
        "kind": "conjunction",
        "name": "told",
        "within_s": 20,
        "steps": [{"where": 'isa("journals.Story")'}, {"subject": "alarm.c"}],
    },
]


def made(count: int) -> list[Event]:
    random = Random(7)
    events = []
    for number in range(count):
        room = random.choice("abc")
        subject, data = random.choice(
            [
                (f"door.{room}", {"room": room, "state": random.choice(["open", "shut"])}),
                (f"alarm.{room}", {"room": room, "n": number}),
                ("news.x", Story(headline="h", n=number)),
            ]
        )
        # Not in order, but never too late.
        time_s = BEGIN_S + number * 0.5 + random.uniform(0, LATE_S * 0.8)
        events.append(Event(subject, data, "s", number, time_s, number))
    return events


def at(seconds: float, number: int, **data) -> Event:
    return Event("door.z", data, "s", number, BEGIN_S + seconds, number)


def rows_of(frame):
    names = ("rule", "key", "first", "last", "count", "value", "events")
    return sorted(tuple(row[name] for name in names) for row in frame.collect())


def test_live_events_give_what_history_gives_across_a_restart(spark, tmp_path):
    register(spark)
    folder, events = tmp_path / "j", made(120)
    options = options_for(
        "correlate",
        {
            "rules": RULES,
            "late_s": LATE_S,
            "subject": "found.{rule}.{key}",
            "journal": str(folder),
        },
    )
    live = []

    def run_to_the_end():
        reader = spark.readStream.format("infobus").option("journal", str(folder))
        frame = reader.option("maxEventsPerTrigger", "60").load()
        query = (
            correlate.transform(frame, options)
            .writeStream.foreachBatch(lambda part, _: live.extend(rows_of(part)))
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    write(folder, events[:60])
    run_to_the_end()
    # Some are too late to be counted, and a clock far ahead does not make all others so; the last
    # one only makes time pass.
    astray = [
        Event("door.y", {"room": "y"}, "s", 499, 9e9, 499),
        Event("door.z", {"room": "z", "state": "open"}, "s", 500, BEGIN_S - 50, 500),
        Event("alarm.z", {"room": "z", "n": 1}, "s", 501, BEGIN_S - 49, 501),
    ]
    write(folder, [*events[60:], *astray, at(500, 600)])
    run_to_the_end()

    history = spark.read.format("infobus").option("journal", str(folder)).load()
    history = history.where("_number != 499")
    found = correlate.transform(history, options)
    # The last window of an aggregate is not over yet: history has it, marked, and live waits.
    assert {row.rule for row in found.where("not complete").collect()} <= {"busy"}
    expected = rows_of(found.where("complete"))
    assert {row[0] for row in expected} == {rule["name"] for rule in RULES}
    late = [row for row in expected if row[1] == "z"]
    assert {row[0] for row in late} == {"forced", "unanswered"}
    assert sorted(live) == [row for row in expected if row not in late]
    assert all(row._subject == f"found.{row.rule}.{row.key or '_'}" for row in found.collect())


def test_test_events_take_no_part_and_keys_may_hold_anything(spark, tmp_path):
    register(spark)
    data = {"room": "a b/*.>", "state": "open"}
    events = [
        Event("door.z", data, "s", 1, BEGIN_S, 1),
        Event("alarm.z", data, "s", 2, BEGIN_S + 1, 2, test=True),
        Event("alarm.z", data, "s", 3, BEGIN_S + 2, 3),
        Event("alarm.z", {"no": "room"}, "s", 4, BEGIN_S + 2, 4),
    ]
    write(tmp_path / "j", events)
    options = options_for("correlate", {"rules": RULES[:1], "subject": "found.{key}"})
    history = spark.read.format("infobus").option("journal", str(tmp_path / "j")).load()
    sink = {
        "type": "correlate.Finding",
        "bus": "nobody-listens",
        "home": str(tmp_path / "home"),
        "guaranteed": "true",
    }
    [row] = correlate.transform(history, options).collect()
    assert row._subject == "found.a_b____"
    assert row.events == [events[0].id, events[2].id]
    # Through the runner it is published; without a sink, that is refused.
    run("correlate", history, options, query="once", sink=sink)
    run("correlate", history, options, query="once", sink=sink)
    assert published(tmp_path / "home") == 1
    with pytest.raises(Exception, match="needs a sink"):
        run("correlate", history, options, query="once")
    moment = datetime.fromtimestamp(BEGIN_S, UTC)
    assert row.first.astimezone(UTC) == moment


def published(home) -> int:
    import sqlite3

    count = 0
    for path in home.rglob("ledgers/*.db"):
        with sqlite3.connect(path) as connection:
            count += connection.execute("SELECT count(*) FROM records").fetchone()[0]
    return count
