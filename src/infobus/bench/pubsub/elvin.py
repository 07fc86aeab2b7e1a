"""`infobus bench elvin`: paper 001's own load, from one process to another.

There are ten subscriptions. Notifications have five elements (two strings, two integers, one
float), and a tenth of them match a subscription. In 1997, Elvin's server processed 500 of them in
a second on two processors of 250 MHz.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import msgspec

import infobus
from infobus.bench.common.findings import Findings, perform_as_program
from infobus.bench.common.processes import Connected, company_of
from infobus.bench.common.rounds import OnStep
from infobus.bench.common.tables import table_of

PAPER_EVENTS_PER_S = 500

_SUBJECT = "elvin.load"
_LAST = {"name": "last", "host": "", "count": -1, "size": 0, "load": 0.0}


class ElvinRun(msgspec.Struct, frozen=True):
    """One measurement: all notifications per second, and how many of them matched."""

    quenched: bool
    """Whether the producer left out what nobody wants; if not, the consumer's node did."""
    events: int
    matched: int
    events_per_s: float

    @property
    def times_the_paper(self) -> float:
        """How many times the paper's figure."""
        return self.events_per_s / PAPER_EVENTS_PER_S


def filters() -> list[str]:
    """Ten subscriptions on five elements each. Together they want a tenth of the load."""
    return [
        f'name == "disk{n}" && host == "alpha" && count >= 0 && size < 900000 && load > 0.0'
        for n in range(10)
    ]


def notifications(count: int) -> list[dict[str, object]]:
    """The load: one in ten has a name that a subscription asks for."""
    return [
        {
            "name": f"disk{n // 10 % 10}" if n % 10 == 0 else f"user{n % 97}",
            "host": "alpha",
            "count": n,
            "size": n % 10_000,
            "load": 0.5 + n % 7,
        }
        for n in range(count)
    ]


def measure(count: int, quench: bool) -> ElvinRun:
    """Publish `count` notifications here and count what matches in another process."""
    bus_name = f"bench-{uuid4().hex}"
    with company_of([_consume], None, bus_name) as [consumer], infobus.connect(bus_name) as bus:
        consumer.answer()  # it has subscribed
        load = notifications(count)
        began_ns = time.monotonic_ns()
        for notification in load:
            bus.publish(_SUBJECT, notification, quench=quench)
        bus.publish(_SUBJECT, _LAST)
        matched, ended_ns = consumer.answer()
    return ElvinRun(quench, count, matched, count / (ended_ns - began_ns) * 1e9)


def _consume(pipe: Connection, _: None, bus_name: str) -> None:
    """Hold the ten subscriptions; send back how many events they got, and when the last came."""
    matched = 0

    def count(event: infobus.Event) -> None:
        nonlocal matched
        matched += 1

    with infobus.connect(bus_name) as bus:
        end = bus.subscribe(_SUBJECT, where='name == "last"')
        subscriptions = [bus.subscribe(_SUBJECT, count, where=text) for text in filters()]
        pipe.send(Connected())
        end.receive()
        while any(subscription.is_scheduled for subscription in subscriptions):
            time.sleep(0.0001)
        pipe.send((matched, time.monotonic_ns()))
        pipe.recv()


def run(quick: bool, out: Path, on_step: OnStep) -> Findings:
    """Measure with and without quenching."""
    runs = []
    for done, quench in enumerate((True, False)):
        on_step(_how(quench), done, 2)
        runs.append(measure(20_000 if quick else 100_000, quench))
    rows = [
        (_how(run.quenched), f"{run.events_per_s:,.0f}", f"{run.times_the_paper:,.0f}")
        for run in runs
    ]
    table = table_of(
        "The load of paper 001, from one process to another",
        ["how"],
        ["notifications/s", f"times the paper's {PAPER_EVENTS_PER_S}"],
        rows,
    )
    return Findings(name="elvin", tables=[table], values={"found": runs})


def _how(quench: bool) -> str:
    return "what nobody wants is not sent" if quench else "everything is sent"


if __name__ == "__main__":
    perform_as_program(run)
