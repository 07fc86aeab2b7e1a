"""One measurement from start to end: server, processes, warm-up, the round that counts.

Processes are spawned, never forked: engines with native threads do not survive a fork. Rounds
grow until one lasts long enough to tell the rate; the last one is sized to take `seconds`.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from infobus.bench import workers
from infobus.bench.model import Run, Scenario
from infobus.bench.payload import FIRST_NUMBER, HELLO_NUMBER, encoded_bytes, venue_for
from infobus.bench.peers import load
from infobus.bench.statistics import percentile
from infobus.bench.workers import Role, What
from infobus.errors import BusError, EngineError

ANSWER_S_MAX = 120.0
"""Longer than any round takes, even on a machine that swaps."""

GREETING_S_MAX = 20.0
"""All processes are connected by then, so an event that does not come will not."""

WARM_UP_EVENTS = 500
ROUND_EVENTS_MAX = 200_000
ROUND_BYTES_MAX = 256_000_000


def measure(scenario: Scenario, repetition: int = 0, seconds: float = 1.0) -> Run:
    """Measure `scenario` once. What goes wrong comes back as the run's `failure`."""
    take = _measure_rate if scenario.kind == "rate" else _measure_round_trip
    run = Run(
        scenario=scenario,
        repetition=repetition,
        payload_bytes=encoded_bytes(venue_for(scenario.size)),
    )
    try:
        with load(scenario.engine).server() as address:
            return take(run, address, seconds)
    except (BusError, OSError, ImportError) as error:
        return msgspec.structs.replace(run, failure=f"{type(error).__name__}: {error}")


class Worker:
    """A spawned process and the pipe over which it takes orders."""

    def __init__(self, role: Role[What], what: What, address: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.role = role.__name__
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=workers.work, args=(role, theirs, what, address), daemon=True
        )
        self.process.start()
        # Only the child may hold this end, or its death would not be seen as the end of file.
        theirs.close()

    def order(self, what: tuple[object, ...] | str | int | None) -> None:
        """A round to do, the word to begin it, or None to end."""
        try:
            self.pipe.send(what)
        except OSError:
            # It has ended early, and its last words say why.
            while True:
                self.answer()

    def answer(self) -> Any:
        """The next thing that the process says."""
        if not self.pipe.poll(ANSWER_S_MAX):
            raise EngineError(f"{self.role}: no answer in {ANSWER_S_MAX:.0f} s")
        try:
            said = self.pipe.recv()
        except EOFError:
            raise EngineError(f"{self.role}: the process died") from None
        if isinstance(said, workers.Failed):
            raise EngineError(said.reason)
        return said


@contextmanager
def company_of(roles: Sequence[Role[What]], what: What, address: str) -> Iterator[list[Worker]]:
    """All processes of a measurement, started together; none is left behind."""
    company: list[Worker] = []
    try:
        for role in roles:
            company.append(Worker(role, what, address))
        yield company
        for worker in company:
            worker.order(None)
        for worker in company:
            worker.process.join(10)
    finally:
        for worker in company:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _measure_rate(run: Run, address: str, seconds: float) -> Run:
    scenario = run.scenario
    roles = [workers.consume] * scenario.consumers + [workers.publish]
    with company_of(roles, scenario, address) as company:
        *consumers, publisher = company
        publisher.answer()
        connected: list[workers.Connected] = [consumer.answer() for consumer in consumers]
        _greet(publisher, consumers)
        first, count, took_s = FIRST_NUMBER, WARM_UP_EVENTS, 0.0
        while took_s < seconds / 4 and count < _events_max(run):
            began_ns, tallies = _round(publisher, consumers, first, count)
            if not all(tally.received for tally in tallies):
                raise EngineError(f"a consumer received none of {count} events while warming up")
            took_s = _took_s(began_ns, tallies)
            first, count = first + count, count * 4
        # `count` has already grown past the round that lasted `took_s`.
        count = min(_events_max(run), max(1, int(count / 4 * seconds / took_s)))
        began_ns, tallies = _round(publisher, consumers, first, count)
    return msgspec.structs.replace(
        run,
        events=count,
        events_per_s=min(_rate(began_ns, tally) for tally in tallies),
        delivered_share=sum(tally.received for tally in tallies) / (count * len(tallies)),
        misordered=sum(tally.misordered for tally in tallies),
        declared_s=max(one.took_s for one in connected),
        threads=max(one.threads for one in connected),
    )


def _greet(publisher: Worker, consumers: list[Worker]) -> None:
    """Publish greetings until every consumer has heard one.

    This holds for any engine, also for those that cannot say when a subscription is in place.
    """
    waiting: dict[Connection, Worker] = {consumer.pipe: consumer for consumer in consumers}
    deadline_s = time.monotonic() + GREETING_S_MAX
    while waiting:
        if time.monotonic() > deadline_s:
            raise EngineError(f"{len(waiting)} consumers heard nothing in {GREETING_S_MAX:.0f} s")
        publisher.order((HELLO_NUMBER, 1))
        for pipe in wait(list(waiting), timeout=0.1):
            assert isinstance(pipe, Connection)
            waiting.pop(pipe).answer()


def _round(
    publisher: Worker, consumers: list[Worker], first: int, count: int
) -> tuple[int, list[workers.Tally]]:
    """Publish `count` events once all are ready; returns the start and what each consumer saw."""
    for worker in (*consumers, publisher):
        worker.order((first, count))
    for worker in (*consumers, publisher):
        worker.answer()
    publisher.order("go")
    began_ns: int = publisher.answer()
    return began_ns, [consumer.answer() for consumer in consumers]


def _rate(began_ns: int, tally: workers.Tally) -> float:
    return tally.received * 1e9 / (tally.last_ns - began_ns) if tally.received else 0.0


def _took_s(began_ns: int, tallies: list[workers.Tally]) -> float:
    return max(1e-6, (max(tally.last_ns for tally in tallies) - began_ns) / 1e9)


def _events_max(run: Run) -> int:
    return min(ROUND_EVENTS_MAX, ROUND_BYTES_MAX // run.payload_bytes)


def _measure_round_trip(run: Run, address: str, seconds: float) -> Run:
    scenario = run.scenario
    roles = [workers.listen] * (scenario.consumers - 1) + [workers.pong, workers.ping]
    with company_of(roles, scenario, address) as company:
        for worker in company:
            worker.answer()
        pinger = company[-1]
        pinger.order((FIRST_NUMBER, 100))
        count = max(100, int(seconds / percentile(pinger.answer(), 0.5)))
        pinger.order((FIRST_NUMBER + 100, count))
        times_s: list[float] = pinger.answer()
    return msgspec.structs.replace(
        run,
        events=count,
        delivered_share=1.0,
        p50_s=percentile(times_s, 0.5),
        p99_s=percentile(times_s, 0.99),
    )
