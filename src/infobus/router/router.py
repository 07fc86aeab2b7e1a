"""The information router: an application on two buses, that of its site and the backbone.

It subscribes here on behalf of other sites, and asks them for what is wanted here. Events go where
they are wanted, under the names and through the filters of the agreements. An event that came in
from another site never leaves again, so no event goes in circles, whatever links there are.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import infobus
from infobus import Bus, BusClosed, BusError, EngineError, UsageError
from infobus.bounds import Bounds
from infobus.bus.bus import interior
from infobus.bus.deliver.event import Run
from infobus.bus.publish.paths import PATHS_SUBJECT
from infobus.bus.threads import SYSTEM_THREADS
from infobus.engines.base import Engine
from infobus.engines.routed.engine import RoutedEngine, Waits
from infobus.engines.routed.status import RoutingState
from infobus.protocols.qos.classes import RESERVED, Classes
from infobus.protocols.routing.terms import RoutingTerms
from infobus.router.control import ControlSocket, Question
from infobus.router.links import NeighbourLinks
from infobus.router.passage import Passage, PassageQuality
from infobus.router.quality.policy import RouterQuality
from infobus.router.quality.reservations import ReservationDesk
from infobus.router.reach import PREFIX_COUNT, Notice, prefixes
from infobus.router.settings import AgreementSettings, RouterSettings, load_router
from infobus.router.standby import Duty
from infobus.router.status import (
    AgreementStatus,
    CrossedStatus,
    KnownRouter,
    NeighbourStatus,
    RouterStatus,
    SubjectPaths,
)
from infobus.subjects import check_publishable

log = logging.getLogger("infobus.router")

_TOKEN = "router"  # of a node inside that is a router; the node follows
_STATUS_KEY = "router"  # the first element of the key at which routers answer; the name follows
_LOOK_S = 1.0  # between looks at distances, and at what limits refuse
_GATHER_S = 0.005  # changes of interest that come within it are told together
_FRAME_S = 0.02  # of the slowest link, a frame of several events takes no more
_FAREWELL_S = 0.5  # of closing, for others to hear of it
_MAP_S = 1.0  # for the answers of all routers

_FIXED = (
    *("name", "inside", "backbone", "domain", "group", "journal"),
    *("listen", "insecure", "link", "patience", "zenoh"),
)
"""Settings that count from the start of a router until its end."""


class Router:
    """One router; use it as a context manager.

    Args:
        settings: What it joins, whom it links with, and what passes.
        path: The file that `reload` reads; none if there is no such file.
        inside: The bus of the site, if the caller has joined it already.
        links: What carries frames to neighbours, instead of what the settings say.
    """

    def __init__(
        self,
        settings: RouterSettings,
        *,
        path: Path | None = None,
        inside: Bus | None = None,
        links: Engine | None = None,
    ) -> None:
        self.settings = settings
        self._path = path
        self._given = inside
        self._links = links
        self._since = time.time()
        self._inside: Bus | None = None
        self._backbone: Bus | None = None
        self._engine: RoutedEngine | None = None
        self._passages: list[Passage] = []
        self._notices: dict[str, Notice] = {}  # of other routers, by key
        self._shown: dict[str, Any] = {}  # own notices
        self._others: dict[str, None] = {}  # nodes inside that are routers, too
        self._lives: dict[str, str] = {}  # the node of each other router, by name
        self._earlier: dict[str, None] = {}  # nodes of those that were started again
        self._duty = Duty(is_shared=bool(settings.group))
        self._is_new = threading.Event()
        self._is_ending = threading.Event()
        self._changing = threading.Lock()
        self._note: Callable[[Run], None] = lambda run: None
        self._desk: ReservationDesk | None = None
        self._quality: RouterQuality | None = None
        self._ends = ExitStack()
        self._until_s = float("inf")  # when it is to be closed

    # Life.

    def open(self) -> None:
        """Join both buses, and let pass what is agreed. Neighbours may be started later.

        Raises:
            EngineError: An endpoint is taken, or this host has a router of that name already.
            UsageError: An endpoint lets in whoever reaches it, and the settings do not say so.
        """
        settings = self.settings
        with ExitStack() as ends:
            control = ControlSocket(settings.name, self._answer)
            control.open()
            ends.callback(control.close)
            inside = self._given
            if inside is None:
                inside = infobus.connect(**settings.inside_options, name=settings.name, test=False)
                ends.callback(lambda: inside.close(self._left_s()))
            self._inside = inside
            self._backbone = backbone = self._join_backbone(inside)
            ends.callback(lambda: backbone.close(self._left_s()))
            assert self._engine is not None
            self._note = self._noting(ends)
            inside_engine = interior(inside).runtime.engine
            for shown in (
                inside_engine.announce(f"{_TOKEN}/{inside.node}"),
                inside_engine.watch(f"{_TOKEN}/*", self._on_other),
            ):
                ends.callback(shown.undeclare)
            self._engine.watch("reach/**", self._on_notice)
            self._engine.answer(f"{_STATUS_KEY}/{settings.name}", self._tell)
            for remark in settings.remarks():
                log.warning("router %s: %s", settings.name, remark)
            if settings.quality is not None:
                classes = Classes(settings.backbone_options.classes)
                self._quality = RouterQuality(self._backbone, settings.quality, classes)
                ends.callback(self._quality.close)
            with self._changing:
                self._begin_passages()
            if settings.group:
                self._stand_by(inside, ends)
            worker = threading.Thread(target=self._run, daemon=True)
            worker.name = f"infobus-{settings.name}-interest"
            worker.start()
            ends.callback(worker.join, 2.0)
            ends.callback(self._stop)
            self._desk = ReservationDesk(
                settings.name, self._engine, self._wanting, lambda: self._duty.carries()
            )
            if self._quality is not None:
                self._desk.keep, self._desk.give_back = self._quality.keep, self._quality.give_back
            self._offered = inside.serve(
                PATHS_SUBJECT, self._desk, info={"router": settings.name}, concurrency=10_000
            )
            ends.callback(self._offered.retire, 2.0)
            ends.callback(self._desk.close)
            self._ends = ends.pop_all()

    def close(self) -> None:
        """Let nothing pass any more, and leave both buses. Idempotent.

        What waits is still passed on, within the time that the inside's patience allows.
        """
        self._until_s = time.monotonic() + self.inside.patience.close_s
        self._ends.close()

    def __enter__(self) -> Router:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def inside(self) -> Bus:
        """The bus of the site."""
        if self._inside is None:
            raise BusClosed("the router is not open yet")
        return self._inside

    def _noting(self, ends: ExitStack) -> Callable[[Run], None]:
        """What to call with events that have passed."""
        if not self.settings.journal:
            return lambda run: None
        from infobus.router.journal import ForwardedJournal  # it needs an extra

        assert self._backbone is not None
        beside = Path() if self._path is None else self._path.parent
        journal = ForwardedJournal(beside / self.settings.journal, self._backbone)
        ends.callback(journal.close)
        return journal.note

    def _join_backbone(self, inside: Bus) -> Bus:
        settings, options = self.settings, self.settings.backbone_options
        patience = settings.link_patience
        links = self._links or NeighbourLinks(
            options.bus,
            settings.name,
            listen=settings.listen,
            connect=_calls(settings),
            insecure=settings.insecure,
            patience=patience,
            config=settings.zenoh,
        )
        self._links = links
        classes = Classes(options.classes)
        self._engine = RoutedEngine(
            links,
            threads=SYSTEM_THREADS,
            name=settings.name,
            domain=settings.domain,
            accepts=self._accepts,
            rate_of=self._rate_of,
            terms=RoutingTerms(classes=classes, lease_s=patience.lease_s),
            waits=Waits(close_s=_FAREWELL_S),  # the bus above waits for what it has put
        )
        return infobus.connect(
            options.bus,
            name=settings.name,
            home=inside.home,
            engine=self._engine,
            depth=options.depth + PREFIX_COUNT,
            classes=(*options.classes, RESERVED),
            patience=patience,
            bounds=_bounds(settings),
            test=False,
            group="",
        )

    def _accepts(self, name: str) -> bool:
        """Whether the settings name that neighbour."""
        return any(name == one.name for one in self.settings.neighbour)

    def _rate_of(self, name: str) -> float | None:
        """What the link to that neighbour carries, as the settings say."""
        return next((n.bytes_per_s for n in self.settings.neighbour if n.name == name), None)

    # Changing what is agreed.

    def reload(self) -> list[str]:
        """Read the settings again, and do what they say; links and agreements that stay go on.

        Returns what has changed.

        Raises:
            UsageError: The settings are wrong, or change what counts for a router's whole life.
                Nothing was changed.
        """
        self._opened()
        if self._path is None:
            raise UsageError("this router was not started from a file, so there is none to read")
        return self.change(load_router(self._path))

    def change(self, settings: RouterSettings) -> list[str]:
        """Go by other settings from now on; see `reload`."""
        old = self.settings
        fixed = [name for name in _FIXED if getattr(settings, name) != getattr(old, name)]
        if settings.quality_part != old.quality_part:
            fixed.append("quality (but for the rules of the policy)")
        if fixed:
            raise UsageError(
                f"{', '.join(fixed)}: changed, which counts from a router's start: stop this "
                "router and run it again"
            )
        told = []
        with self._changing:
            self.settings = settings
            ours, theirs = _calls(old), _calls(settings)
            changed = [name for name in ours if theirs.get(name) != ours[name]]
            if isinstance(self._links, NeighbourLinks):
                self._links.call(theirs, changed)
            told += [f"neighbour {name} is called no more" for name in ours if name not in theirs]
            told += [f"neighbour {name} is called" for name in theirs if name not in ours]
            told += [f"neighbour {name} is called elsewhere" for name in changed if name in theirs]
            if self._quality is not None and settings.quality is not None:
                self._quality.change(settings.quality)
                if settings.quality != old.quality:
                    told.append(f"the policy of group {settings.quality.group}")
            told += self._begin_passages()
        self._is_new.set()
        return told

    def _begin_passages(self) -> list[str]:
        """Let pass what the agreements say; those that stay as they are go on."""
        assert self._inside is not None and self._backbone is not None
        wanted = self.settings.agreement
        held = {passage.settings: passage for passage in self._passages}
        ended = [passage for passage in self._passages if passage.settings not in wanted]
        for passage in ended:
            passage.close()
        self._passages = [
            held.get(one)
            or Passage(
                one,
                self.settings,
                self._inside,
                self._backbone,
                is_ours=partial(self._governs, one),
                others=lambda: self._passages,
                on_wanted=self._is_new.set,
                ignore=self._others,
                duty=self._duty,
                note=self._note,
                quality=PassageQuality(
                    self._is_reserved, None if self._quality is None else self._quality.judge
                ),
            )
            for one in dict.fromkeys(wanted)
        ]
        for passage in self._passages:
            passage.forget_names()
        self._show_notices()
        return [
            *(f"ended: {_called(passage.settings)}" for passage in ended),
            *(f"begun: {_called(one)}" for one in wanted if one not in held),
        ]

    def _governs(self, agreement: AgreementSettings, subject: str) -> bool:
        """Whether an agreement is the first that fits a subject of the inside."""
        for passage in self._passages:
            if passage.fits(subject):
                return passage.settings == agreement
        return False

    # Several routers of one site.

    def _stand_by(self, inside: Bus, ends: ExitStack) -> None:
        """Carry while this router is the primary of its group, and else stand by."""
        role = inside.primary(f"router.{self.settings.group}")
        ends.callback(role.close)
        self._duty.carries = lambda: role.is_primary

        def follow() -> None:
            for carries in role.changes():
                log.info("router %s %s", self.settings.name, "carries" if carries else "stands by")
                self._is_new.set()
                if carries:
                    for passage in list(self._passages):
                        passage.go_on()

        worker = threading.Thread(target=follow, daemon=True)
        worker.name = f"infobus-{self.settings.name}-duty"
        worker.start()

    def _note_groups(self, nodes: dict[str, str]) -> None:
        """Note who else is in the group, and which other sites have several routers."""
        routers: dict[str, set[str]] = {}
        for notice in list(self._notices.values()):
            routers.setdefault(notice.place.site, set()).add(notice.router)
        ours = routers.pop(self.settings.place.site, set())
        peers = {nodes[name] for name in ours if name in nodes}
        for node in peers - self._duty.peers.keys():
            self._duty.peers[node] = None
        for node in self._duty.peers.keys() - peers:
            del self._duty.peers[node]
        self._duty.doubled.update({site: None for site, names in routers.items() if len(names) > 1})

    def _note_lives(self, nodes: dict[str, str]) -> None:
        """What is held back of a router that was started again must not come after what is new."""
        for name, node in nodes.items():
            if (before := self._lives.get(name, node)) != node:
                self._earlier[before] = None
        self._lives.update(nodes)
        assert self._backbone is not None
        runtime = interior(self._backbone).runtime
        for before in self._earlier.keys() - nodes.values():
            runtime.say_replaced(before)
            peer = runtime.node.peers.get(before)
            if peer is None or peer.left:  # else it can still be seen: once more, later
                del self._earlier[before]

    # Interest.

    def _show_notices(self) -> None:
        """Show how far the agreements of this router reach; `all` in any case."""
        settings, engine = self.settings, self._engine
        assert engine is not None
        reaches = {one.reach.label: one.reach for one in settings.agreement}
        keys = {
            Notice(settings.name, settings.place, label, reach).key
            for label, reach in reaches.items()
        }
        for key in self._shown.keys() - keys:
            self._shown.pop(key).undeclare()
        for key in keys - self._shown.keys():
            self._shown[key] = engine.announce(key)

    def _on_other(self, token: str, is_alive: bool) -> None:
        """What another router of the site wants is wanted elsewhere: it is not told there."""
        node = token.rpartition("/")[2]
        if is_alive:
            self._others[node] = None
        else:
            self._others.pop(node, None)
        self._is_new.set()

    def _on_notice(self, key: str, is_shown: bool) -> None:
        try:
            notice = Notice.of(key)
        except ValueError:
            log.warning("router %s: %r is no notice of a router", self.settings.name, key[:200])
            return
        if is_shown:
            self._notices[key] = notice
        else:
            self._notices.pop(key, None)
        self._is_new.set()

    def _run(self) -> None:
        while not self._is_ending.is_set():
            self._is_new.wait(_LOOK_S)
            self._is_new.clear()
            if self._is_ending.is_set():
                return
            try:
                with self._changing:
                    self._update()
            except BusClosed:
                return
            except BusError:
                log.exception("router %s: interest was not told", self.settings.name)
            self._is_ending.wait(_GATHER_S)

    def _update(self) -> None:
        assert self._engine is not None
        routing = self._engine.routing()
        nodes = {one.name: one.node for one in routing.destinations if one.paths}
        self._note_groups(nodes)
        self._note_lives(nodes)
        hops = _hops(routing)
        notices = list(self._notices.values())
        for passage in self._passages:
            reach = passage.settings.reach
            passage.update(prefixes(reach, self.settings.place, notices, hops))
        if self._desk is not None:
            self._desk.update()

    def _wanting(self, pattern: str) -> set[str]:
        """The nodes of the backbone that want anything of a pattern of the inside."""
        return {node for passage in self._passages for node in passage.wanting(pattern)}

    def _is_reserved(self, sender: str, number: int, subject: str, size: int) -> bool:
        desk = self._desk
        return desk is not None and desk.is_reserved(sender, number, subject, size)

    def _stop(self) -> None:
        self._is_ending.set()
        self._is_new.set()
        for passage in self._passages:
            passage.close(max(0.0, self._left_s() - _FAREWELL_S))
        if self._engine is not None:
            self._engine.wait_no_more()

    def _left_s(self) -> float:
        """How long the next step of closing may take."""
        return max(_FAREWELL_S, self._until_s - time.monotonic())

    # What it tells.

    def status(self) -> RouterStatus:
        """What it is doing now."""
        settings, (inside, backbone, engine) = self.settings, self._opened()
        routing = engine.routing()
        return RouterStatus(
            name=settings.name,
            group=settings.group,
            domain=settings.domain,
            inside=inside.name,
            backbone=backbone.name,
            pid=os.getpid(),
            host=os.uname().nodename,
            version=infobus.__version__,
            since=self._since,
            is_carrying=self._duty.carries(),
            endpoints=engine.endpoints(),
            neighbours=_neighbours(routing, settings),
            routers=_known(routing),
            agreements=tuple(map(_agreement, self._passages)),
            remarks=tuple(settings.remarks()),
            counts=routing.counts,
            quality=None if self._quality is None else self._quality.status(),
            complaints={**inside.stats().complaints, **backbone.stats().complaints},
        )

    def statuses(self, timeout_s: float = _MAP_S) -> list[RouterStatus]:
        """What all routers of the backbone are doing; those that do not answer are missing."""
        _, _, engine = self._opened()
        found = [self.status()]
        for answer in engine.query(f"{_STATUS_KEY}/*", b"", timeout_s):
            try:
                found.append(msgspec.json.decode(answer, type=RouterStatus))
            except msgspec.DecodeError:  # of a version that tells something else
                continue
        return sorted(found, key=lambda one: one.name)

    def paths(self, subject: str) -> SubjectPaths:
        """Where events of a subject of the inside go, and by which ways.

        Raises:
            BadSubject: It is malformed, or holds a wildcard.
        """
        check_publishable(subject)
        routing = self._opened()[2].routing()
        for passage in self._passages:
            if passage.fits(subject):
                name, nodes = passage.wanted_by(subject)
                known = {one.node: one for one in routing.destinations if one.paths}
                found = {known[node].name for node in nodes if node in known}
                wanted_by = tuple(one for one in _known(routing) if one.name in found)
                return SubjectPaths(subject=subject, outside=name, wanted_by=wanted_by)
        return SubjectPaths(subject=subject, outside="", wanted_by=())

    def _tell(self, _: bytes) -> bytes:
        return msgspec.json.encode(self.status())

    def _answer(self, question: Question) -> Any:
        match question.get("ask"):
            case "status":
                return self.status()
            case "map":
                return self.statuses()
            case "reload":
                return self.reload()
            case "paths":
                return self.paths(str(question.get("subject", "")))
            case unknown:
                raise UsageError(f"it does not know the question {unknown!r}")

    def _opened(self) -> tuple[Bus, Bus, RoutedEngine]:
        if self._inside is None or self._backbone is None or self._engine is None:
            raise EngineError("it is not open yet, or not any more")
        return self._inside, self._backbone, self._engine


def _bounds(settings: RouterSettings) -> Bounds | None:
    """What the backbone holds: on slow links, frames so small that an emergency soon has its turn.

    None is what is usual.
    """
    rates = [one.bytes_per_s for one in settings.neighbour if one.bytes_per_s is not None]
    if not rates:
        return None
    usual = Bounds()
    return replace(usual, gather_bytes=int(min(max(1, min(rates) * _FRAME_S), usual.gather_bytes)))


def _calls(settings: RouterSettings) -> dict[str, tuple[str, ...]]:
    return {one.name: one.connect for one in settings.neighbour if one.connect}


def _called(one: AgreementSettings) -> str:
    return f"{one.inside or 'all'} as {one.outside or 'it is'}"


def _hops(routing: RoutingState) -> dict[str, int]:
    return {one.name: len(one.paths[0]) for one in routing.destinations if one.paths}


def _neighbours(routing: RoutingState, settings: RouterSettings) -> tuple[NeighbourStatus, ...]:
    found = {
        one.name: NeighbourStatus(
            name=one.name,
            is_up=one.is_up,
            waiting_bytes=sum(one.waiting.values()) + one.reserved_waiting,
            load_bytes=one.load,
            held=one.held,
            sent_frames=one.events_count,
            sent_bytes=one.events_bytes,
            bytes_per_s=one.bytes_per_s,
            reserved={who: claim.bytes_per_s for who, claim in one.reserved.items()},
        )
        for one in routing.neighbours
        if one.name
    }
    for one in settings.neighbour:
        found.setdefault(one.name, NeighbourStatus(name=one.name, is_up=False))
    return tuple(found[name] for name in sorted(found))


def _known(routing: RoutingState) -> tuple[KnownRouter, ...]:
    names = {one.node: one.name for one in routing.destinations} | {routing.node: routing.name}
    return tuple(
        KnownRouter(
            name=one.name,
            domain=one.domain,
            hops=len(one.paths[0]),
            paths=tuple(tuple(names.get(node, node) for node in path) for path in one.paths),
            neighbours=tuple(names.get(node, node) for node in one.neighbours),
        )
        for one in routing.destinations
        if one.paths
    )


def _agreement(passage: Passage) -> AgreementStatus:
    one = passage.settings
    return AgreementStatus(
        inside=one.inside,
        outside=one.outside,
        where=one.where,
        reach=one.reach.words,
        listens_to=passage.prefixes,
        rows_asked=passage.rows_asked,
        rows_wanted=passage.rows_wanted,
        rows_refused=passage.refused,
        out=CrossedStatus(**msgspec.structs.asdict(passage.out)),
        into=CrossedStatus(**msgspec.structs.asdict(passage.into)),
        guaranteed=passage.crossings.guaranteed,
        stand_ins=passage.crossings.stand_ins,
    )
