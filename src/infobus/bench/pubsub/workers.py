"""The processes of a measurement: each connects, says so, and does rounds as the harness orders.

The order for a round is `(first number, count)`; the order None ends the process. All times are
taken with `time.monotonic_ns`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from infobus.bench.common.processes import Connected
from infobus.bench.pubsub.payload import HELLO_NUMBER, make_quote, subject_names, venue_for
from infobus.bench.pubsub.peers import load
from infobus.bench.pubsub.scenario import Scenario
from infobus.errors import EngineError

PATIENCE_S = 5.0
"""A consumer that has received nothing new for so long reports what it has."""

STAMP_COUNT = 64
"""A consumer looks at the clock once in so many events. More often would distort the result."""


class RoundTally(msgspec.Struct, frozen=True):
    """What one consumer saw of one round."""

    received: int
    misordered: int
    last_ns: int
    """When the last event came; up to `STAMP_COUNT` events earlier if some never came."""


def publish(pipe: Connection, scenario: Scenario, address: str) -> None:
    """Makes the objects of a round, waits for the word to begin, publishes, and answers its start.

    A round that begins with `HELLO_NUMBER` is a greeting, sent at once and not answered.
    """
    peer, venue = load(scenario.engine), venue_for(scenario.size)
    # Last first: a greeting, which goes to the first subject here, then proves that the whole
    # list of a consumer that subscribes to each subject is in place.
    subjects = subject_names(scenario.subjects)[::-1]
    with peer.publisher(address, subjects) as publish_all:
        pipe.send(Connected())
        while order := pipe.recv():
            first, count = order
            # Objects are made beforehand: encoding them is measured, constructing them is not.
            quotes = [make_quote(peer.quote, venue, first + index) for index in range(count)]
            if first == HELLO_NUMBER:
                publish_all(quotes)
                continue
            with _quiet_collector():
                pipe.send("armed")
                pipe.recv()
                began_ns = time.monotonic_ns()
                publish_all(quotes)
            pipe.send(began_ns)


def consume(pipe: Connection, scenario: Scenario, address: str) -> None:
    """Subscribes, reports the first greeting, then awaits each round and answers a `RoundTally`."""
    peer, greeted, finished = load(scenario.engine), threading.Event(), threading.Event()
    note, begin, tally = meter(greeted, finished)
    subjects = None if scenario.subscriptions == 1 else subject_names(scenario.subscriptions)
    # A receiving thread that dies would otherwise look like an engine that delivers nothing.
    broken: list[str] = []
    threading.excepthook = lambda died: broken.append(repr(died.exc_value))
    began_s = time.monotonic()
    with peer.consumer(address, subjects, note):
        pipe.send(Connected(time.monotonic() - began_s, _thread_count()))
        greeted.wait()
        pipe.send("greeted")
        while order := pipe.recv():
            finished.clear()
            begin(*order)
            pipe.send("armed")
            seen = -1
            while not finished.wait(PATIENCE_S) and tally().received != seen:
                seen = tally().received
            if broken:
                raise EngineError(f"a receiving thread died of {broken[0]}")
            pipe.send(tally())


def meter(
    greeted: threading.Event, finished: threading.Event
) -> tuple[Callable[[int], None], Callable[[int, int], None], Callable[[], RoundTally]]:
    """Returns what a consumer calls for each event's number, and to begin and to end a round.

    It is the same for all engines, and takes so little time that it hardly affects the result.
    """
    now_ns = time.monotonic_ns
    expected = end = wanted = misordered = last_ns = 0

    def note(number: int) -> None:
        nonlocal expected, end, misordered, last_ns
        if number != expected:
            if number == HELLO_NUMBER:
                greeted.set()
                return
            misordered += 1
            end += number - expected  # so that it stays as far away as events are missing
        expected = number + 1
        if expected == end:
            last_ns = now_ns()
            finished.set()
        elif not expected % STAMP_COUNT:
            last_ns = now_ns()

    def begin(first: int, count: int) -> None:
        nonlocal expected, end, wanted, misordered, last_ns
        expected, end, wanted, misordered, last_ns = first, first + count, count, 0, 0

    def tally() -> RoundTally:
        return RoundTally(wanted - (end - expected), misordered, last_ns or now_ns())

    return note, begin, tally


def ping(pipe: Connection, scenario: Scenario, address: str) -> None:
    """Sends and waits, one object at a time; answers how long each round trip took."""
    peer, venue = load(scenario.engine), venue_for(scenario.size)
    with peer.pinger(address) as round_trip:
        pipe.send(Connected())
        while order := pipe.recv():
            first, count = order
            while round_trip(make_quote(peer.quote, venue, HELLO_NUMBER), 1.0) is None:
                pass  # A socket that connects late lets the first greetings fall.
            times_s = []
            for number in range(first, first + count):
                quote = make_quote(peer.quote, venue, number)
                began_ns = time.monotonic_ns()
                answer = round_trip(quote, PATIENCE_S)
                times_s.append((time.monotonic_ns() - began_ns) / 1e9)
                if answer != number:
                    raise EngineError(f"ping {number} was answered by {answer}")
            pipe.send(times_s)


def pong(pipe: Connection, scenario: Scenario, address: str) -> None:
    """Answers pings until told to stop."""
    with load(scenario.engine).ponger(address):
        pipe.send(Connected())
        pipe.recv()


def listen(pipe: Connection, scenario: Scenario, address: str) -> None:
    """Receives pings and pongs, as one of many consumers, until told to stop."""
    with load(scenario.engine).consumer(address, None, lambda number: None):
        pipe.send(Connected())
        pipe.recv()


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Keep the garbage collector from walking the prepared objects, which no real program has."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _thread_count() -> int:
    """The threads of this process, including native ones if the system lists them."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()
