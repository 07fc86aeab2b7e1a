"""What a bus has done so far, in numbers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING

from msgspec import Struct, field

from infobus.bounds import DEFAULT_BOUNDS
from infobus.subjects import OWN

if TYPE_CHECKING:
    from infobus.bus.runtime.runtime import Runtime

log = logging.getLogger("infobus")


class Stats(Struct, frozen=True, kw_only=True):
    """A snapshot of one node's counters, since it connected. See `Bus.stats`."""

    node: str
    application: str  # the name given to `connect`, or empty
    peers: tuple[str, ...]
    subscriptions: int
    published: int  # events given to publish
    quenched: int  # of these, wanted by nobody: neither encoded nor sent
    sent_frames: int
    sent_events: int
    sent_bytes: int
    received_frames: int
    received_events: int
    received_bytes: int
    waiting: int  # events in the queues of subscriptions
    unconfirmed: int  # sent events that some receiver has not confirmed yet
    asked_again: int  # repairs this node asked for
    replayed: int  # frames this node sent again
    lost: int  # losses on the way, reported to subscriptions
    unreachable: int  # times that a node whose events had come was out of reach
    dropped_by_queue: int  # events let go by subscriptions with a full queue
    expired: int  # events let go, here or before they left, because they had grown too old
    thinned: int  # events that subscriptions left out because of their `max_rate`
    bad_frames: int  # frames from outside that could not be read
    bad_objects: int  # events whose object could not be read
    mismatched: int  # events whose object does not fit its type here, for each subscription
    unprotected: int  # received events left out because the policy asks for more protection
    forged: int  # events left out by subscriptions because their signature does not count
    denied: int  # events, rows and calls of others that the policy does not allow, and own ones
    against_tags: int  # received events left out because they have another type than their tag
    unreadable_filters: int  # times that filters of peers were not understood: all is sent then
    complaints: dict[str, str] = field(default_factory=dict)  # source -> the last thing wrong
    endpoints: dict[str, str] = field(default_factory=dict)  # `listening`, `linked`, or why not


def numbers() -> Iterator[int]:
    """Numbers from 0 on. Threads may share them without a lock: each is taken in one step."""
    return iter(range(sys.maxsize))


def skip(numbers: Iterator[int], count: int) -> None:
    """Take `count` numbers."""
    for _ in islice(numbers, count):
        pass


def taken(numbers: Iterator[int]) -> int:
    """How many of `numbers` were taken; none is by this."""
    return sys.maxsize - length_hint(numbers)


class Counters(Struct):
    """The numbers while they are being counted."""

    received_frames: int = 0
    received_events: int = 0
    received_bytes: int = 0
    asked_again: int = 0
    replayed: int = 0
    lost: int = 0
    unreachable: int = 0
    dropped_by_queue: int = 0
    expired: int = 0
    thinned: int = 0  # by subscriptions that are closed
    bad_frames: int = 0
    bad_objects: int = 0
    mismatched: int = 0
    forged: int = 0
    unprotected: int = 0
    denied: int = 0
    against_tags: int = 0
    complaints: dict[str, str] = field(default_factory=dict)
    complaints_count_max: int = DEFAULT_BOUNDS.complaints_count_max  # names come from outside, too

    def complain(self, source: str, what: str) -> None:
        """Log once per `source`, and note, that it did something wrong."""
        source = source[:200]
        if source not in self.complaints:
            if len(self.complaints) >= self.complaints_count_max:
                return
            log.warning("%s: %s (said once)", source, what)
        self.complaints[source] = what


def snapshot(runtime: Runtime, published: int, quenched: int, sent_frames: int) -> Stats:
    """The counters of a node as they are now."""
    counters = runtime.counters
    with runtime.lock:
        routes = [route for lane, route in runtime.node.routes.items() if lane[:1] != OWN]
        alive = sorted(name for name, peer in runtime.node.peers.items() if peer.alive)
        return Stats(
            node=runtime.name,
            application=runtime.node.application,
            peers=tuple(alive),
            subscriptions=len(runtime.subscriptions),
            published=published,
            quenched=quenched,
            sent_frames=sent_frames,
            sent_events=sum(route.next - 1 for route in routes),
            sent_bytes=sum(route.sent_bytes for route in routes),
            received_frames=counters.received_frames,
            received_events=counters.received_events,
            received_bytes=counters.received_bytes,
            waiting=sum(s.waiting_count for s in runtime.subscriptions),
            unconfirmed=sum(r.next - r.buffer[0][0] for r in routes if r.buffer),
            asked_again=counters.asked_again,
            replayed=counters.replayed,
            lost=counters.lost,
            unreachable=counters.unreachable,
            dropped_by_queue=counters.dropped_by_queue,
            expired=counters.expired,
            thinned=counters.thinned + sum(s.thinned for s in runtime.subscriptions),
            bad_frames=counters.bad_frames,
            bad_objects=counters.bad_objects,
            mismatched=counters.mismatched,
            forged=counters.forged,
            unprotected=counters.unprotected,
            denied=counters.denied,
            against_tags=counters.against_tags,
            unreadable_filters=runtime.node.rows.unreadable,
            complaints=dict(counters.complaints),
            endpoints=runtime.engine.endpoints(),
        )
