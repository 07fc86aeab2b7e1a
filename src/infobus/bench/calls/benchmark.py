"""`infobus bench call`: calls of a service beside Zenoh queries, NATS requests and gRPC.

Each engine has a server process and a client process, which stay for the whole run. The engines
take short turns in an order that changes from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.table import Table

from infobus.bench.calls import peers
from infobus.bench.calls.peers import AT_A_TIME, ENGINES, call, hold, serve
from infobus.bench.common.bar import Bar
from infobus.bench.common.engines import GRPC, INFOBUS, NATS, ZENOH, missing
from infobus.bench.common.findings import Findings
from infobus.bench.common.plots import rounds_figure
from infobus.bench.common.processes import WorkerProcess, company_of
from infobus.bench.common.rounds import (
    Key,
    OnStep,
    Rounds,
    ignore_step,
    percentile,
    ratios,
    rounds_of,
    take_shuffled_turns,
)
from infobus.bench.common.tables import table_of
from infobus.errors import BusError

OUTSTANDING = 10_000
LOADS = {f"{count} at a time": count for count in (1, AT_A_TIME)}
SINGLE, _ = LOADS

BARS = {ZENOH: 1.5, NATS: 1.0, GRPC: 1.3}
"""The median round trip may take at most this many times as long as the engine's."""


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure a single short round, or fifteen longer ones."""
    rounds, turn_s = (1, 0.3) if quick else (15, 1.0)
    found, (held, held_s), left_out = measure(rounds=rounds, turn_s=turn_s, on_step=on_step)
    p50s_us = [
        (one.engine, one.engine == INFOBUS, [value * 1e6 for value in one.values["p50_s"]])
        for one in found
        if one.load == SINGLE
    ]
    label = "Round trip of one call at a time, p50 of each round (microseconds)"
    return Findings(
        name="calls",
        tables=[table(found)],
        values={"found": found, "outstanding": held, "outstanding_s": held_s},
        bars=bars_of(found, held),
        notes=[f"{held:,} calls were outstanding at once, and returned in {held_s:.1f} s."],
        left_out=left_out,
        drawings={"calls": lambda: rounds_figure(p50s_us, label, row_height=0.5)},
    )


def measure(
    *, rounds: int, turn_s: float, outstanding: int = OUTSTANDING, on_step: OnStep = ignore_step
) -> tuple[list[Rounds], tuple[int, float], dict[str, str]]:
    """Measure all engines.

    Returns the rounds, how many outstanding calls returned and in which time, and what was left
    out.
    """
    left_out: dict[str, str] = {}
    clients: dict[str, WorkerProcess] = {}
    held = (0, 0.0)
    with ExitStack() as opened:
        for engine in ENGINES:
            if reason := missing(engine):
                left_out[engine] = reason
                continue
            try:
                address = opened.enter_context(peers.load(engine).address())
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
        turns: dict[Key, Callable[[], Mapping[str, float]]] = {
            (load, engine): partial(_turn, client, turn_s, count)
            for engine, client in clients.items()
            for load, count in LOADS.items()
        }
        taken = take_shuffled_turns(turns, rounds=rounds, on_step=on_step)
    return rounds_of(taken), held, left_out


def _turn(client: WorkerProcess, turn_s: float, at_a_time: int) -> dict[str, float]:
    waits_s: list[float] = client.ask(turn_s, at_a_time)
    return {
        "p50_s": percentile(waits_s, 0.5),
        "p99_s": percentile(waits_s, 0.99),
        "rate": len(waits_s) / turn_s,
    }


def bars_of(found: Sequence[Rounds], outstanding: int) -> list[Bar]:
    """The median round trip against the other engines' in the same round; and no call is lost."""
    bars = []
    for engine, bar in BARS.items():
        times = ratios(found, (SINGLE, INFOBUS), (SINGLE, engine), "p50_s")
        bars.append(Bar.over_rounds(f"p50 of a call / {engine}", times, bar, at_least=False))
    held = Bar(
        what="calls outstanding at once", measured=float(outstanding), bar=OUTSTANDING, unit=""
    )
    return [*bars, held]


def table(found: Sequence[Rounds]) -> Table:
    """One row for each engine, first one call at a time, then many."""
    rows = [
        (
            one.load,
            one.engine,
            f"{one.median('p50_s') * 1e6:,.0f}",
            f"{one.median('p99_s') * 1e6:,.0f}",
            f"{one.median('rate'):,.0f}",
        )
        for one in sorted(found, key=lambda one: LOADS[one.load])
    ]
    words, numbers = ["calls", "engine"], ["p50 us", "p99 us", "calls per s"]
    return table_of("Calls (medians of all rounds)", words, numbers, rows, grouped=True)
