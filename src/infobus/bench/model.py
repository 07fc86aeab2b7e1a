"""What is measured and what came out: plain values that go to JSON as they are."""

from __future__ import annotations

from typing import Literal

import msgspec

INFOBUS = "infobus"
INFOBUS_BATCHED = "infobus batched"
ZENOH = "zenoh"
NATS = "nats"
ZMQ = "zmq"
PEERS = (ZENOH, NATS, ZMQ)

MANY = 10_000
"""The paper's number of subjects (figure 8), used for subscriptions too."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure on one engine.

    A `rate` has one publisher process and `consumers` consumer processes. A `round trip` has one
    process that sends and waits, one that answers, and `consumers - 1` that only listen.
    """

    engine: str
    kind: Literal["rate", "round trip"] = "rate"
    size: int = 16
    """Bytes of the encoded object that were asked for; `Run.payload_bytes` is what was sent."""
    consumers: int = 1
    subjects: int = 1
    subscriptions: int = 1
    """1 is one pattern over all subjects; more is one subscription for each subject."""

    @property
    def work(self) -> tuple[str, int, int, int, int]:
        """What has to be done, whoever does it: equal for scenarios that may be compared."""
        return (self.kind, self.consumers, self.subjects, self.subscriptions, self.size)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of a scenario.

    `events_per_s` counts from the start of publishing to the last arrival, at the slowest
    consumer. Fields that the scenario's kind does not measure are 0.
    """

    scenario: Scenario
    repetition: int
    events: int = 0
    payload_bytes: int = 0
    events_per_s: float = 0.0
    delivered_share: float = 0.0
    misordered: int = 0
    declared_s: float = 0.0
    threads: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    failure: str = ""
    """Why there are no numbers, or empty."""

    @property
    def bytes_per_s(self) -> float:
        """Object bytes that each consumer received in a second."""
        return self.events_per_s * self.payload_bytes


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One promise about speed, and what was measured. `measured` is None if it could not be."""

    what: str
    measured: float | None
    bar: float
    at_least: bool = True
    unit: str = "x"
    spread: tuple[float, float] | None = None
    """Of a ratio: the lowest and the highest of the repetitions, whose median is `measured`."""

    @property
    def ok(self) -> bool | None:
        """Whether the promise holds; None if it was not measured."""
        if self.measured is None:
            return None
        return self._passes(self.measured)

    @property
    def is_sure(self) -> bool:
        """Whether every repetition came to the same verdict; if not, the machine was too noisy."""
        return self.spread is None or self._passes(self.spread[0]) == self._passes(self.spread[1])

    def _passes(self, value: float) -> bool:
        return value >= self.bar if self.at_least else value <= self.bar


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one call of `infobus bench` found out."""

    machine: dict[str, str]
    runs: list[Run]
    import_s: float
    bars: list[Bar]
    left_out: dict[str, str]
    """Peers that were not measured, and why."""
