"""One measurement from start to end: server, processes, warm-up, and the round that counts.

Rounds grow until one is long enough to estimate the rate. The last round is sized to take
`seconds`.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection, wait

import msgspec

from infobus.bench.common.processes import Connected, WorkerProcess, company_of
from infobus.bench.common.rounds import percentile
from infobus.bench.pubsub import workers
from infobus.bench.pubsub.payload import FIRST_NUMBER, HELLO_NUMBER, encoded_bytes, venue_for
from infobus.bench.pubsub.peers import load
from infobus.bench.pubsub.scenario import BenchRun, Scenario
from infobus.errors import BusError, EngineError

GREETING_S_MAX = 20.0
"""All processes are connected by then. An event that has not arrived will not arrive."""

WARM_UP_EVENTS = 500
ROUND_EVENTS_MAX = 200_000
ROUND_BYTES_MAX = 256_000_000


def measure(scenario: Scenario, repetition: int = 0, seconds: float = 1.0) -> BenchRun:
    """Measure `scenario` once. If something goes wrong, the run's `failure` says what."""
    take = _measure_rate if scenario.kind == "rate" else _measure_round_trip
    run = BenchRun(
        scenario=scenario,
        repetition=repetition,
        payload_bytes=encoded_bytes(venue_for(scenario.size)),
    )
    try:
        with load(scenario.engine).server() as address:
            return take(run, address, seconds)
    except (BusError, OSError, ImportError) as error:
        return msgspec.structs.replace(run, failure=f"{type(error).__name__}: {error}")


def _measure_rate(run: BenchRun, address: str, seconds: float) -> BenchRun:
    scenario = run.scenario
    roles = [workers.consume] * scenario.consumers + [workers.publish]
    with company_of(roles, scenario, address) as company:
        *consumers, publisher = company
        publisher.answer()
        connected: list[Connected] = [consumer.answer() for consumer in consumers]
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


def _greet(publisher: WorkerProcess, consumers: list[WorkerProcess]) -> None:
    """Publish greetings until every consumer has heard one.

    This works for any engine, even if it cannot say when a subscription is in place.
    """
    waiting: dict[Connection, WorkerProcess] = {consumer.pipe: consumer for consumer in consumers}
    deadline_s = time.monotonic() + GREETING_S_MAX
    while waiting:
        if time.monotonic() > deadline_s:
            raise EngineError(f"{len(waiting)} consumers heard nothing in {GREETING_S_MAX:.0f} s")
        publisher.order((HELLO_NUMBER, 1))
        for pipe in wait(list(waiting), timeout=0.1):
            assert isinstance(pipe, Connection)
            waiting.pop(pipe).answer()


def _round(
    publisher: WorkerProcess, consumers: list[WorkerProcess], first: int, count: int
) -> tuple[int, list[workers.RoundTally]]:
    """Publish `count` events once all are ready; returns the start and what each consumer saw."""
    for worker in (*consumers, publisher):
        worker.order((first, count))
    for worker in (*consumers, publisher):
        worker.answer()
    publisher.order("go")
    began_ns: int = publisher.answer()
    return began_ns, [consumer.answer() for consumer in consumers]


def _rate(began_ns: int, tally: workers.RoundTally) -> float:
    return tally.received * 1e9 / (tally.last_ns - began_ns) if tally.received else 0.0


def _took_s(began_ns: int, tallies: list[workers.RoundTally]) -> float:
    return max(1e-6, (max(tally.last_ns for tally in tallies) - began_ns) / 1e9)


def _events_max(run: BenchRun) -> int:
    return min(ROUND_EVENTS_MAX, ROUND_BYTES_MAX // run.payload_bytes)


def _measure_round_trip(run: BenchRun, address: str, seconds: float) -> BenchRun:
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
