"""The objects in which a node tells what it does: `NodeStats`, and those inside it.

Counters only grow while the node lives, so rates are differences between two reports.
"""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

from datetime import datetime

from infobus.objects import DataObject


class QueueStats(DataObject, name="infobus.QueueStats"):
    """One class of a subscription's queue, against its watermarks."""

    priority: str
    waiting: int
    high: int
    """Above it, senders are asked to wait, or the oldest events go."""
    low: int
    """Down to it, they are not asked any more."""
    is_holding: bool
    """Whether senders of this class are asked to wait now."""


class SubscriptionStats(DataObject, name="infobus.SubscriptionStats"):
    """One subscription."""

    patterns: list[str]
    where: str
    when_full: str
    queue_count_max: int
    waiting: int
    lost: int
    thinned: int
    queues: list[QueueStats]
    """Of each class that something waits in, or whose senders are asked to wait."""
    last_loss: str | None = None


class RouteStats(DataObject, name="infobus.RouteStats"):
    """What the node sends on one channel in one class."""

    channel: str
    priority: str
    sent: int
    sent_bytes: int
    unconfirmed: int
    window: int
    """So many unconfirmed events there may be."""
    receivers: int
    slowest: list[str]
    """The receivers that hold the window back."""


class InflowStats(DataObject, name="infobus.InflowStats"):
    """What comes from one sender on one channel in one class; not what is sent at best effort."""

    sender: str
    channel: str
    priority: str
    received: int
    is_waiting: bool
    """Whether something is missing that is asked for again."""


class ServedStats(DataObject, name="infobus.ServedStats"):
    """One service that the node offers."""

    subject: str
    name: str
    load: int


class LedgerStats(DataObject, name="infobus.LedgerStats"):
    """One ledger that the node serves."""

    ledger: str
    last: int
    """The number of its last event."""
    behind: dict[str, int]
    """By durable consumer: events that it has not settled."""


class NodeStats(DataObject, name="infobus.NodeStats"):
    """What one node has done since it connected, and how it is.

    Each node publishes one every second under `~stats.HOST.NODE`, while anybody wants it. The
    counters are those of `Bus.stats`. A list has the 200 entries that matter most; the numbers
    beside it count all.
    """

    node: str
    application: str
    program: str
    version: str
    host: str
    pid: int
    since: datetime
    at: datetime
    cpu_s: float
    memory_bytes: int | None
    peers: int
    published: int
    quenched: int
    sent_frames: int
    sent_events: int
    sent_bytes: int
    received_frames: int
    received_events: int
    received_bytes: int
    waiting: int
    unconfirmed: int
    asked_again: int
    replayed: int
    lost: int
    unreachable: int
    dropped_by_queue: int
    expired: int
    thinned: int
    bad_frames: int
    bad_objects: int
    mismatched: int
    unreadable_filters: int
    complaints: dict[str, str]
    endpoints: dict[str, str]
    role: str
    session: str
    links: list[str]
    subscription_count: int
    subscriptions: list[SubscriptionStats] = []
    route_count: int = 0
    routes: list[RouteStats] = []
    inflow_count: int = 0
    inflows: list[InflowStats] = []
    services: list[ServedStats] = []
    ledgers: list[LedgerStats] = []
