"""Makes the report of a node from its parts, as they are now."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infobus.bus.deliver.subscription import Subscription
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.statistics.records import (
    InflowStats,
    LedgerStats,
    NodeStats,
    QueueStats,
    RouteStats,
    ServedStats,
    SubscriptionStats,
)
from infobus.bus.stats import Stats
from infobus.protocols.frames.lanes import channel_in, class_in
from infobus.protocols.reliable.channel import Receiver
from infobus.protocols.reliable.peer import Route
from infobus.subjects import OWN

if TYPE_CHECKING:
    from infobus.bus.durable.stores import KeptLedger
    from infobus.services import Offered

ROWS_COUNT_MAX = 200
"""Entries of each list in a report; those that matter most."""

_COMPLAINTS_COUNT_MAX = 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ReportSources:
    """Where a report comes from.

    Args:
        runtime: Of the node.
        application: What the program is called, if anything.
        stats: `Bus.stats`.
        offered: The services of the node.
        ledgers: The ledgers that it serves, by id.
        since_s: When it connected.
    """

    def __init__(
        self,
        runtime: Runtime,
        application: str,
        stats: Callable[[], Stats],
        offered: Callable[[], Iterable[Offered]],
        ledgers: Callable[[], Mapping[str, KeptLedger]],
        since_s: float,
    ) -> None:
        self.runtime = runtime
        self._application = application
        self._stats = stats
        self._offered = offered
        self._ledgers = ledgers
        self._since_s = since_s

    def report(self) -> NodeStats:
        """How the node is now."""
        stats, runtime = self._stats(), self.runtime
        host, pid = host_and_pid(runtime.name)
        links = runtime.engine.links()
        counters = {
            name: value
            for name, value in zip(stats.__struct_fields__, _values(stats), strict=True)
            if name in NodeStats.__annotations__ and isinstance(value, int)
        }
        with runtime.lock:
            subscriptions = nlargest(
                ROWS_COUNT_MAX, runtime.subscriptions, key=lambda one: (one.lost, one.waiting_count)
            )
            told = [_subscription(one, runtime.node.terms.classes.names) for one in subscriptions]
            routes = [one for one in runtime.node.routes.items() if one[0][:1] != OWN]
            busiest = nlargest(ROWS_COUNT_MAX, routes, key=lambda one: one[1].next)
            out = [_route(*one, runtime.node.terms.classes.default) for one in busiest]
            inflows = [
                (name, lane, receiver)
                for name, peer in runtime.node.peers.items()
                for lane, receiver in peer.receivers.items()
                if receiver.next is not None and lane[:1] != OWN
            ]
            most = nlargest(ROWS_COUNT_MAX, inflows, key=_received)
            into = [_inflow(*one, runtime.node.terms.classes.default) for one in most]
        return NodeStats(
            node=runtime.name,
            application=self._application,
            program=_program(),
            version=_version(),
            host=host,
            pid=pid,
            since=datetime.fromtimestamp(self._since_s, UTC),
            at=datetime.now(UTC),
            cpu_s=time.process_time(),
            memory_bytes=_memory_bytes(),
            peers=len(stats.peers),
            subscription_count=stats.subscriptions,
            route_count=len(routes),
            inflow_count=len(inflows),
            complaints=dict(list(stats.complaints.items())[-_COMPLAINTS_COUNT_MAX:]),
            endpoints=dict(list(stats.endpoints.items())[:ROWS_COUNT_MAX]),
            role=links.role,
            session=links.own,
            links=list(links.others[:ROWS_COUNT_MAX]),
            subscriptions=told,
            routes=out,
            inflows=into,
            services=[_served(one) for one in list(self._offered())[:ROWS_COUNT_MAX]],
            ledgers=[_ledger(*one) for one in list(self._ledgers().items())[:ROWS_COUNT_MAX]],
            **{name: value for name, value in counters.items() if name != "subscriptions"},
        )


def host_and_pid(node: str) -> tuple[str, int]:
    """The host and the process in the name of a node.

    >>> host_and_pid("floor-7-4242-9f3a61c2e0b4")
    ('floor-7', 4242)
    """
    host, _, rest = node.rpartition("-")[0].rpartition("-")
    return (host, int(rest)) if host and rest.isdigit() else (node, 0)


def _values(stats: Stats) -> list[Any]:
    return [getattr(stats, name) for name in stats.__struct_fields__]


def _subscription(one: Subscription, classes: Iterable[str]) -> SubscriptionStats:
    queue = one.queue
    return SubscriptionStats(
        patterns=list(one.patterns[:ROWS_COUNT_MAX]),
        where="" if one.where is None else one.where.text,
        when_full=one.when_full,
        queue_count_max=queue.queue_count_max,
        waiting=one.waiting_count,
        lost=one.lost,
        thinned=one.thinned,
        queues=[
            QueueStats(
                priority=class_,
                waiting=queue.waiting_in(class_),
                high=queue.high_count,
                low=queue.low_count,
                is_holding=class_ in queue.holding,
            )
            for class_ in classes
            if queue.waiting_in(class_) or class_ in queue.holding
        ],
        last_loss=None if one.loss is None else str(one.loss),
    )


def _route(lane: str, route: Route, default: str) -> RouteStats:
    return RouteStats(
        channel=channel_in(lane),
        priority=class_in(lane) or default,
        sent=route.next - 1,
        sent_bytes=route.sent_bytes,
        unconfirmed=route.next - route.buffer[0][0] if route.buffer else 0,
        window=min(route.window_count_max, route.limit),
        receivers=len(route.receivers),
        slowest=route.lagging()[:ROWS_COUNT_MAX],
    )


def _received(one: tuple[str, str, Receiver]) -> int:
    return (one[2].next or 0) - one[2].began


def _inflow(sender: str, lane: str, receiver: Receiver, default: str) -> InflowStats:
    return InflowStats(
        sender=sender,
        channel=channel_in(lane),
        priority=class_in(lane) or default,
        received=_received((sender, lane, receiver)),
        is_waiting=receiver.has_hole(),
    )


def _served(one: Offered) -> ServedStats:
    return ServedStats(subject=one.subject, name=one.interface.name, load=one.load)


def _ledger(id: str, ledger: KeptLedger) -> LedgerStats:
    last = ledger.next - 1
    positions = list(ledger.positions().items())[:ROWS_COUNT_MAX]
    return LedgerStats(
        ledger=id,
        last=last,
        behind={name: last - one.position for name, one in positions},
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("information-bus")
    except PackageNotFoundError:  # it runs from its sources
        return ""


def _program() -> str:
    """What was started: a file, or with `python -m` a module."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        return str(spec.name.removesuffix(".__main__"))
    return Path(sys.argv[0]).name if sys.argv else ""


def _memory_bytes() -> int | None:
    """What the process has in memory; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
