"""What is measured over sites that routers join, one thing at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median

import msgspec

from infobus.bench.common.rounds import percentile
from infobus.bench.sites.site import routed_sites

EVENT_COUNT, PING_COUNT = 100_000, 500
BATCH_COUNT = 100
DIRECT, BESIDE = "direct", "by two routers"
KILLED, FROZEN = "killed", "frozen"
LEASE_S = 0.3
_FAILOVERS = 12
_TRICKLE_S = 6.0


class SiteTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a router sent to ten others, of which so many wanted the events."""

    interested: int
    links: int
    """That carried anything of them."""
    bytes_per_event: float
    """On all links together."""
    load: float


class ChainRate(msgspec.Struct, frozen=True, kw_only=True):
    """Small events from one program to another, as fast as it goes."""

    where: str
    events_per_s: float
    cpu_us_per_router: float
    """Of each router, for an event; 0 without routers."""
    load: float


class SiteTrip(msgspec.Struct, frozen=True, kw_only=True):
    """There and back between two programs."""

    where: str
    p50_ms: float
    p99_ms: float
    load: float


class InterestDelay(msgspec.Struct, frozen=True, kw_only=True):
    """How long a publisher did not know of a new subscription, so many routers away."""

    routers: int
    p50_ms: float
    most_ms: float
    load: float


class FailoverPause(msgspec.Struct, frozen=True, kw_only=True):
    """How long nothing came after the router on the way had failed."""

    how: str
    count: int
    p50_ms: float
    p95_ms: float
    load: float


def load() -> float:
    """How many programs of this machine had work in the last minute."""
    return os.getloadavg()[0]


def traffic(interested: int, quick: bool) -> Iterator[SiteTraffic]:
    """Publish where ten neighbours are, of whom so many have a subscriber."""
    count = 1_000
    links = [(0, other) for other in range(1, 11)]
    with routed_sites(11, links) as sites:
        publisher = sites.program(0)
        readers = [sites.program(1 + at) for at in range(interested)]
        for reader in readers:
            reader.ask("subscribe", "quotes.acme")
        if readers:
            publisher.ask("wanted", "quotes.acme")
        before = sites.sent(0)
        publisher.ask("flood", "quotes.acme", count)
        for reader in readers:
            reader.ask("wait", count)
        time.sleep(1.0)
        after = sites.sent(0)
        sent = [after[name] - before[name] for name in after]
        yield SiteTraffic(
            interested=interested,
            links=sum(one > 0 for one in sent),
            bytes_per_event=sum(sent) / count,
            load=load(),
        )


def rate(routers: int, quick: bool) -> Iterator[ChainRate]:
    """Publish as fast as it goes from one end of a chain to the other."""
    events = EVENT_COUNT // 5 if quick else EVENT_COUNT
    links = [(at, at + 1) for at in range(routers - 1)]
    with routed_sites(max(routers, 1), links) as sites:
        publisher, subscriber = sites.program(0), sites.program(-1)
        subscriber.ask("subscribe", "quotes.acme")
        publisher.ask("wanted", "quotes.acme")
        for count in (events // 10, events):
            cpu_s = sites.routers_cpu_s()
            begun_s = publisher.ask("flood_many", "quotes.acme", count, BATCH_COUNT)
            last_s = subscriber.ask("wait", count)
            cpu_s = sites.routers_cpu_s() - cpu_s
        yield ChainRate(
            where=f"chain of {routers} routers" if routers else DIRECT,
            events_per_s=events / (last_s - begun_s),
            cpu_us_per_router=cpu_s / events / routers * 1e6 if routers else 0.0,
            load=load(),
        )


def trips(routers: int, quick: bool) -> Iterator[SiteTrip]:
    """Send pings one after the other."""
    count = PING_COUNT // 5 if quick else PING_COUNT
    with routed_sites(max(routers, 1), [(0, 1)] if routers else []) as sites:
        caller, answerer = sites.program(0), sites.program(-1)
        answerer.ask("echo")
        caller.ask("subscribe", "pong")  # else the first answer is not wanted there yet
        caller.ask("wanted", "ping")
        answerer.ask("wanted", "pong")
        caller.ask("round_trips", 20)
        times_s = caller.ask("round_trips", count)
        yield SiteTrip(
            where=BESIDE if routers else DIRECT,
            p50_ms=median(times_s) * 1e3,
            p99_ms=percentile(times_s, 0.99) * 1e3,
            load=load(),
        )


def reach(routers: int, quick: bool) -> Iterator[InterestDelay]:
    """Subscribe at one end of a chain to what the other end may publish."""
    count = 5 if quick else 20
    with routed_sites(routers, [(at, at + 1) for at in range(routers - 1)]) as sites:
        publisher, subscriber = sites.program(0), sites.program(-1)
        subscriber.ask("subscribe", "quotes.first")
        publisher.ask("wanted", "quotes.first")
        times_s = []
        for number in range(count):
            publisher.order("wanted", f"quotes.n{number}")
            time.sleep(0.3)
            begun_s = time.monotonic()
            subscriber.ask("subscribe", f"quotes.n{number}")
            times_s.append(publisher.answer() - begun_s)
        yield InterestDelay(
            routers=routers,
            p50_ms=median(times_s) * 1e3,
            most_ms=max(times_s) * 1e3,
            load=load(),
        )


def failover(_: int, quick: bool) -> Iterator[FailoverPause]:
    """Kill or freeze the one of two transits that carries, again and again."""
    count = _FAILOVERS // 3 if quick else _FAILOVERS
    settings = f"patience = {{lease_s = {LEASE_S}}}\n"
    with routed_sites(4, [(0, 1), (0, 2), (1, 3), (2, 3)], settings) as sites:
        publisher, subscriber = sites.program(0), sites.program(-1)
        subscriber.ask("subscribe", "quotes.acme")
        publisher.ask("wanted", "quotes.acme")
        for how, fail in ((KILLED, sites.kill), (FROZEN, sites.freeze)):
            gaps_s = []
            for _ in range(count):
                publisher.order("trickle", "quotes.acme", _TRICKLE_S)
                before = sites.sent(0)
                time.sleep(0.5)
                after = sites.sent(0)
                used = max(after, key=lambda name: after[name] - before.get(name, 0))
                subscriber.ask("longest_pause")
                fail(sites.number_of(used))
                publisher.answer()
                gaps_s.append(subscriber.ask("longest_pause"))
                sites.mend(sites.number_of(used))
            yield FailoverPause(
                how=how,
                count=count,
                p50_ms=median(gaps_s) * 1e3,
                p95_ms=percentile(gaps_s, 0.95) * 1e3,
                load=load(),
            )
