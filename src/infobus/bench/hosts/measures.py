"""What is measured over hosts, one thing at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import msgspec

from infobus.bench.common.rounds import percentile
from infobus.bench.hosts.site import SiteUse, host_site

EVENT_COUNT, PING_COUNT = 20_000, 500
PLACES = ("one host", "two hosts")
"""Of the two programs that call each other."""
_SETTLE_S = 3.0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """From one publisher to subscribers on another host."""

    kind: str
    subscribers: int
    events_per_s: float
    """That each of them got."""
    bytes_per_event: float
    """That the publisher's host sent."""


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """There and back between two programs."""

    kind: str
    where: str
    p50_ms: float
    p99_ms: float


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """So many programs of one host, while nothing happens."""

    kind: str
    programs: int
    cores: float
    """Processor time of all of them and the daemon, per second."""


def spread(kind: str, count: int, quick: bool) -> Iterator[Spread]:
    """Publish as fast as it goes to so many subscribers on another host."""
    events = EVENT_COUNT // 10 if quick else EVENT_COUNT
    with host_site(2, kind) as site:
        here, there = site.hosts
        subscribers = site.start(there, count)
        for subscriber in subscribers:
            subscriber.ask("subscribe", "quotes.*")
        [publisher] = site.start(here, 1)
        publisher.ask("peers", count)
        for warm_up in (events // 10, events):
            used: list[SiteUse] = []
            with site.measured(used, [here]):
                begun_s = publisher.ask("flood", "quotes.acme", warm_up)
                for subscriber in subscribers:
                    subscriber.order("wait", warm_up)
                last_s = [subscriber.answer() for subscriber in subscribers]
        yield Spread(
            kind=kind,
            subscribers=count,
            events_per_s=events / (median(last_s) - begun_s),
            bytes_per_event=used[0].sent_bytes / events,
        )


def trips(kind: str, _: int, quick: bool) -> Iterator[Trip]:
    """Send pings one after the other: within a host, then to another."""
    count = PING_COUNT // 5 if quick else PING_COUNT
    with host_site(2, kind) as site:
        here, there = site.hosts
        [caller] = site.start(here, 1)
        for where, host in zip(PLACES, (here, there), strict=True):
            [answerer] = site.start(host, 1)
            answerer.ask("echo")
            caller.ask("round_trips", 20)
            times_s = caller.ask("round_trips", count)
            yield Trip(
                kind=kind,
                where=where,
                p50_ms=median(times_s) * 1e3,
                p99_ms=percentile(times_s, 0.99) * 1e3,
            )
            answerer.end()


def idle(kind: str, count: int, quick: bool) -> Iterator[Idle]:
    """Let so many programs of one host do nothing."""
    with host_site(1, kind) as site:
        [host] = site.hosts
        programs = site.start(host, count)
        for program in programs:
            program.order("peers", count - 1)
        for program in programs:
            program.answer()
        time.sleep(_SETTLE_S)
        used: list[SiteUse] = []
        with site.measured(used, [host]):
            time.sleep(3.0 if quick else 10.0)
        yield Idle(kind=kind, programs=count, cores=used[0].cpu_s / used[0].wall_s)
