"""How fast calls are: against Zenoh's own queries, NATS requests and gRPC, turn by turn.

Each engine has a server and a client, processes of their own that stay for the whole run. The
engines take short turns in an order that changes, so that whatever disturbs the machine disturbs
all of them, and are compared within a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from multiprocessing.connection import Connection
from random import Random
from statistics import median

import msgspec

from infobus.bench import calls_peers, peers
from infobus.bench.calls_peers import AT_A_TIME, ENGINES, GRPC
from infobus.bench.harness import Worker, company_of
from infobus.bench.model import INFOBUS, NATS, ZENOH, Bar
from infobus.bench.statistics import percentile
from infobus.bench.workers import Connected
from infobus.errors import BusError

OUTSTANDING = 10_000

OnTurn = Callable[[int, int], object]
"""Told how many turns are done, and how many there are."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one engine with so many calls at a time, in each round."""

    engine: str
    at_a_time: int
    p50s_s: list[float]
    p99s_s: list[float]
    rates: list[float]
    """Calls per second."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one call of `infobus bench call` found out."""

    machine: dict[str, str]
    found: list[Found]
    outstanding: int
    """How many of 10,000 calls that were outstanding at the same time returned."""
    outstanding_s: float
    bars: list[Bar]
    left_out: dict[str, str]


def serve(pipe: Connection, engine: str, address: str) -> None:
    """The process that answers."""
    with calls_peers.load(engine).server(address):
        pipe.send(Connected())
        pipe.recv()


def call(pipe: Connection, engine: str, address: str) -> None:
    """The process that calls; takes turns as ordered, and answers how long each call took."""
    with calls_peers.load(engine).client(address) as take_turn:
        pipe.send(Connected())
        while order := pipe.recv():
            pipe.send(take_turn(*order))


def hold(pipe: Connection, engine: str, address: str) -> None:
    """The process that has very many calls outstanding."""
    while count := pipe.recv():
        pipe.send(calls_peers.hold_many(address, count))


def missing(engine: str) -> str:
    """What is not installed that this engine needs, as a sentence; empty if all is there."""
    if engine == GRPC and find_spec("grpc") is None:
        return "grpcio not installed: pip install 'information-bus[bench]'"
    return "" if engine == GRPC else peers.missing(engine)


def measure(
    *,
    rounds: int,
    turn_s: float,
    outstanding: int = OUTSTANDING,
    on_turn: OnTurn = lambda done, all: None,
) -> tuple[list[Found], tuple[int, float], dict[str, str]]:
    """Measure all engines; also how many of 10,000 calls returned, and what was left out."""
    turns: dict[tuple[str, int], list[list[float]]] = {}
    left_out: dict[str, str] = {}
    clients: dict[str, Worker] = {}
    with ExitStack() as opened:
        held = (0, 0.0)
        for engine in ENGINES:
            if reason := missing(engine):
                left_out[engine] = reason
                continue
            try:
                address = opened.enter_context(calls_peers.load(engine).address())
                server = opened.enter_context(company_of([serve], engine, address))[0]
                server.answer()
                if engine == INFOBUS:
                    with company_of([hold], engine, address) as company:
                        company[0].order(outstanding)
                        held = company[0].answer()
                client = opened.enter_context(company_of([call], engine, address))[0]
                client.answer()
            except (BusError, OSError) as error:
                left_out[engine] = f"{type(error).__name__}: {error}"
            else:
                clients[engine] = client
        chance, keys = Random(1), [(engine, n) for engine in clients for n in (1, AT_A_TIME)]
        order = [key for _ in range(rounds) for key in chance.sample(keys, len(keys))]
        turns = {key: [] for key in keys}
        for done, (engine, at_a_time) in enumerate(order):
            on_turn(done, len(order))
            clients[engine].order((turn_s, at_a_time))
            turns[engine, at_a_time].append(clients[engine].answer())
    return [_found(*key, taken, turn_s) for key, taken in turns.items()], held, left_out


def _found(engine: str, at_a_time: int, turns: Sequence[list[float]], turn_s: float) -> Found:
    return Found(
        engine=engine,
        at_a_time=at_a_time,
        p50s_s=[percentile(waits_s, 0.5) for waits_s in turns],
        p99s_s=[percentile(waits_s, 0.99) for waits_s in turns],
        rates=[len(waits_s) / turn_s for waits_s in turns],
    )


def judge(found: Sequence[Found], outstanding: int) -> list[Bar]:
    """The bars: the median round trip against the other engines' in the same round."""
    p50s = {one.engine: one.p50s_s for one in found if one.at_a_time == 1}
    bars = []
    for engine, bar in ((ZENOH, 1.5), (NATS, 1.0), (GRPC, 1.3)):
        times: list[float] = []
        if engine in p50s and INFOBUS in p50s:
            times = [a / b for a, b in zip(p50s[INFOBUS], p50s[engine], strict=True)]
        bars.append(
            Bar(
                what=f"p50 of a call / {engine}",
                measured=median(times) if times else None,
                bar=bar,
                at_least=False,
                spread=(min(times), max(times)) if times else None,
            )
        )
    held = Bar(
        what="calls outstanding at once", measured=float(outstanding), bar=OUTSTANDING, unit=""
    )
    return [*bars, held]
