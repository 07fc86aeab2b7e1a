"""The status of a router: its links, the routers that it knows, and what passes."""

from __future__ import annotations

from msgspec import Struct

from infobus.router.quality.policy import QualityStatus

Path = tuple[str, ...]


class NeighbourStatus(Struct, frozen=True, kw_only=True):
    """A link to a neighbour."""

    name: str
    is_up: bool
    waiting_bytes: int = 0
    """That wait here for the link."""
    load_bytes: int = 0
    """That wait at the neighbour, as it says."""
    held: tuple[str, ...] = ()
    """Classes that the neighbour asks to hold."""
    sent_frames: int = 0
    """Frames of events, also those that this router only carries for others."""
    sent_bytes: int = 0
    bytes_per_s: float | None = None
    """What the link carries, as the settings say."""
    reserved: dict[str, float] = {}
    """Bytes a second that are reserved of it, by the router of the site that reserves them."""


class KnownRouter(Struct, frozen=True, kw_only=True):
    """Another router of the backbone, and the shortest ways to it."""

    name: str
    domain: str
    hops: int
    paths: tuple[Path, ...]
    """All shortest paths, by names of routers, up to a number."""
    neighbours: tuple[str, ...] = ()
    """Whom it says it is linked with."""


class CrossedStatus(Struct, frozen=True, kw_only=True):
    """What an agreement has let through one way."""

    events: int
    bytes: int
    lost: int
    """Reports of losses that were passed on."""


class GuaranteedStatus(Struct, frozen=True, kw_only=True):
    """How guaranteed events stand on one way."""

    state: str
    """`unwanted` while no durable consumer was heard of, `open`, or `waiting`."""
    carried: int
    error: str
    """Why it waits, or did the last time."""


class AgreementStatus(Struct, frozen=True, kw_only=True):
    """An agreement, and what it does."""

    inside: str
    outside: str
    where: str
    reach: str
    listens_to: tuple[str, ...]
    """Beginnings of names on the backbone that it listens to."""
    rows_asked: int
    """That this site asks of others."""
    rows_wanted: int
    """That others ask of this site."""
    rows_refused: int
    out: CrossedStatus
    into: CrossedStatus
    guaranteed: tuple[GuaranteedStatus, GuaranteedStatus] | None = None
    """Out and in; none if guaranteed events do not cross."""
    stand_ins: tuple[int, int] = (0, 0)
    """Servers of this site that others find, and of others that are found here."""


class RouterStatus(Struct, frozen=True, kw_only=True):
    """What a router is doing. Newer versions may add fields."""

    name: str
    group: str
    domain: str
    inside: str
    backbone: str
    pid: int
    host: str
    version: str
    since: float
    """Wall clock of its start."""
    is_carrying: bool
    """Whether it carries between the site and the backbone; of a group, one does."""
    endpoints: dict[str, str]
    neighbours: tuple[NeighbourStatus, ...]
    routers: tuple[KnownRouter, ...]
    agreements: tuple[AgreementStatus, ...]
    remarks: tuple[str, ...] = ()
    counts: dict[str, int] = {}
    """Of the backbone's engine, by what happened."""
    complaints: dict[str, str] = {}
    quality: QualityStatus | None = None


class SubjectPaths(Struct, frozen=True, kw_only=True):
    """Where events of a subject go."""

    subject: str
    """As it is called inside."""
    outside: str
    """What it is called on the backbone; empty if no agreement fits it."""
    wanted_by: tuple[KnownRouter, ...]
    """The routers that want it, with the ways to them."""
