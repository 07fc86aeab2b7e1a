"""The status of a routed engine: neighbours, paths, tables, counters."""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.routing.reserved import LinkClaim


class NeighbourState(Struct, frozen=True):
    """A router to which there is a link, or could be."""

    node: str
    name: str
    domain: str
    is_up: bool
    is_refused: bool  # by either side
    load: int  # bytes that wait there for further links
    held: tuple[str, ...]  # classes of which it takes nothing now
    waiting: dict[str, int]  # bytes that wait here for it, by class
    under_way: int  # bytes that were sent, and that it has not confirmed
    dropped: int
    events_count: int  # frames of events that have left for it
    events_bytes: int
    bytes_per_s: float | None  # what the link carries; None: no limit
    reserved: dict[str, LinkClaim]  # of that, by the name of the router that reserves it
    reserved_waiting: int  # bytes of that, which wait here


class DestinationState(Struct, frozen=True):
    """A router that can be reached."""

    node: str
    name: str
    domain: str
    version: int
    neighbours: tuple[str, ...]
    entries_count: int
    paths: tuple[tuple[str, ...], ...]  # all shortest ones, up to 8, without this router


class RoutingState(Struct, frozen=True):
    """How one router stands."""

    node: str
    name: str
    domain: str
    neighbours: tuple[NeighbourState, ...]
    destinations: tuple[DestinationState, ...]
    lost_count: int  # routers that are known, and cannot be reached
    flows_count: int
    counts: dict[str, int]
