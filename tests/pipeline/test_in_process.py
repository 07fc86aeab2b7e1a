"""Small journals are replayed and back-tested in one process, without Spark and Java."""

import json
import uuid

import pytest

import infobus
from infobus.filters.language.values import attributes_of
from infobus.headers import Headers
from infobus.objects.data import attribute_values
from infobus.pipeline.jobs import backtest, replay
from infobus.pipeline.jobs.subscription import TrialSubscription
from tests.cli.running import Shell
from tests.pipeline import test_backtest, test_replay
from tests.stores.journals import write


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    return write(tmp_path_factory.mktemp("replay") / "j", test_replay.made())


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    events = test_backtest.made()
    return write(tmp_path_factory.mktemp("backtest") / "j", events[:25], events[25:])


def replayed(history, **options):
    """What was published in which order, and the clock afterwards."""
    chosen = replay.ReplayOptions(journal=str(history.folder), **options)
    clock = test_replay.Time()
    with infobus.connect(f"test-{uuid.uuid4().hex}", engine="memory") as bus:
        got = bus.subscribe("news.>", test=True)
        found = replay.in_process(history.select(), chosen)
        assert replay.publish(bus, found, chosen, clock=clock) == 30
        return [got.receive(20) for _ in range(30)], clock


def test_a_replay_keeps_the_objects_their_order_and_their_pace(history):
    events, clock = replayed(history, speed=2.0)
    originals = {one.id: one for one in history.select().events()}
    by_sender = {"sender0": [], "sender1": []}
    for event in events:
        mark = attributes_of(event.data)[replay.MARK]
        original = originals.pop(mark["id"])
        assert (event.subject, event.test) == (original.subject, original.test)
        assert type(event.data) is type(original.data)
        if isinstance(original.data, dict):
            assert {k: v for k, v in event.data.items() if k != replay.MARK} == original.data
        else:
            assert attribute_values(event.data) == attribute_values(original.data)
        if event.priority == "regular":
            by_sender[mark["sender"]].append(original.number)
    assert not originals
    assert all(numbers == sorted(numbers) and numbers for numbers in by_sender.values())
    assert sum(clock.waits) == pytest.approx(28 * 0.5 / 2)
    assert max(clock.waits) == pytest.approx(0.5)


def test_full_speed_waits_for_nothing(history):
    assert replayed(history, speed="full")[1].waits == []


def test_a_back_test_counts_as_if_each_subscription_were_alone(journal):
    subscriptions = [
        TrialSubscription(subject=subject, where=None if text is None else text.strip())
        for subject in (">", "news.*", "news.s1")
        for text in (None, *test_backtest.TEXTS)
    ]
    options = backtest.BacktestOptions(subscriptions=subscriptions, journal=str(journal.folder))
    rows = backtest.in_process(journal, options)
    for number, (one, row) in enumerate(zip(subscriptions, rows, strict=True)):
        expected = test_backtest.wanted(journal, one)
        asked = (row["subscription"], row["subject"], row["where"], row["events"])
        assert asked == (number, one.subject, one.where, len(expected)), one
        if expected:
            times = [event.time for event in expected]
            assert row["first"].timestamp() == pytest.approx(min(times))
            assert row["last"].timestamp() == pytest.approx(max(times))
            assert row["bytes"] > 5 * row["events"]
    numbers = {(one.subject, one.where): at for at, one in enumerate(subscriptions)}
    above = rows[numbers["news.s1", "n > 100"]]["subsumed_by"]
    assert {numbers[">", None], numbers["news.*", "n > 10"]} <= set(above)
    assert rows[numbers[">", None]]["subsumed_by"] == []


@pytest.fixture
def shell(tmp_path):
    """Commands that find neither Spark nor Java."""
    shell = Shell(tmp_path)
    (tmp_path / "pyspark.py").write_text("raise ImportError('there is no Spark')")
    shell.environment["PYTHONPATH"] = str(tmp_path)
    yield shell
    shell.close()


def test_the_commands_need_no_spark(shell, history, journal):
    code, _, err = shell.run("replay", "--journal", str(history.folder), "--speed", "full")
    assert code == 0 and err.startswith("30 events replayed"), err
    folder = str(journal.folder)
    code, out, err = shell.run("backtest", "--where", "n > 10", "--journal", folder, "--json")
    row = json.loads(out)
    assert (code, row["events"], err) == (0, 48, "")
    assert row["first"].startswith("2026-11-16T")
    assert shell.run("backtest", "--where", "n > 10", "--journal", folder, "--spark")[0] != 0


def test_a_replay_keeps_the_headers(tmp_path):
    told = [{"trace": "a", "n": 1}, {}, {"key": b"\0"}]
    events = [
        infobus.Event("news.a", {"n": n}, "sender", n, 1e9 + n, n, headers=Headers(one))
        for n, one in enumerate(told)
    ]
    history = write(tmp_path / "j", events[:2], events[2:])
    options = replay.ReplayOptions(journal=str(history.folder), speed="full")
    with infobus.connect(f"test-{uuid.uuid4().hex}", engine="memory") as bus:
        got = bus.subscribe("news.>", where="exists(n)")
        replay.publish(bus, replay.in_process(history.select(), options), options)
        assert [dict(got.receive(20).headers) for _ in told] == told
