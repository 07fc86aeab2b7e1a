"""One agreement at work: interest and events pass both ways between a site and the backbone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from infobus import Bus
from infobus.bus.border.border import Border
from infobus.bus.bus import interior
from infobus.bus.deliver.event import Run
from infobus.protocols.frames import transactions
from infobus.protocols.frames.lanes import channel_in, class_in
from infobus.protocols.interest.federation import Imports
from infobus.protocols.interest.own_rows import Row
from infobus.protocols.qos.classes import RESERVED, Classes, Rate
from infobus.protocols.reliable.effects import Lost
from infobus.router.crossings import Crossings
from infobus.router.reach import PREFIX_COUNT
from infobus.router.settings import AgreementSettings, RouterSettings
from infobus.router.standby import Backlog, Duty, Recent
from infobus.router.translation import Rename, crossing, renamed, renamed_group
from infobus.subjects import TEST_SPACE, channel_of, matches, overlaps

log = logging.getLogger("infobus.router")

Judge = Callable[[str, str], str | None]


class PassageQuality(NamedTuple):
    """Who decides how events leave a site."""

    is_reserved: Callable[[str, int, str, int], bool]
    """Whether an event goes by a reservation, for which it waits: from its sender, the number of
    that, the subject, and its bytes."""
    judge: Judge | None = None
    """From a name outside and a class to the class in which it leaves; None: not at all."""


_NEIGHBOURS = "the backbone"  # all that is wanted there counts as one neighbour's
_NAMES_COUNT_MAX = 65_536
_SLICE_S = 0.1  # of what a rate allows passes at once: then a higher class need not wait longer


class Crossed(Struct):
    """What an agreement has let through one way."""

    events: int = 0
    bytes: int = 0
    lost: int = 0
    """Reports of losses that were passed on."""


class _Way(NamedTuple):
    """Where events of one side go."""

    to: Border
    crossed: Crossed
    classes: Classes  # of the side that they leave
    depth: int
    passed: Recent  # what another router of the group has passed on
    held: dict[str, Backlog]  # what this one has taken while it stands by, by class
    used: set[str]  # classes in which anything has been handed on

    @property
    def to_highest(self) -> str:
        """The highest class of the side where they go."""
        return interior(self.to.bus).runtime.node.terms.classes.names[0]

    @classmethod
    def from_bus(cls, bus: Bus, to: Border, crossed: Crossed) -> _Way:
        """The way of what leaves a bus; nothing has gone it yet."""
        terms = interior(bus).runtime.node.terms
        return cls(to, crossed, terms.classes, terms.depth, Recent(), {}, set())


class Passage:
    """The work of one agreement, until it is closed.

    Args:
        settings: The agreement.
        router: The settings of this router; its events go out under its site's name.
        inside, backbone: The two buses.
        is_ours: Whether this agreement governs a subject of the inside, and not an earlier one.
        others: The passages of all agreements of this router.
        on_wanted: Called when interest on either side has changed; then call `update`.
        ignore: Nodes inside whose interest is not told: those of other routers.
        duty: Whether this router carries, or stands by.
        note: Called with what has passed, as it is on the bus where it went.
        quality: What reservations, and the policy of a group of routers, say of what leaves.
    """

    def __init__(
        self,
        settings: AgreementSettings,
        router: RouterSettings,
        inside: Bus,
        backbone: Bus,
        *,
        is_ours: Callable[[str], bool],
        others: Callable[[], Collection[Passage]],
        on_wanted: Callable[[], None],
        ignore: Collection[str],
        duty: Duty,
        note: Callable[[Run], None],
        quality: PassageQuality,
    ) -> None:
        self.settings, self._duty, self._quality = settings, duty, quality
        self.out, self.into = Crossed(), Crossed()
        self.prefixes: tuple[str, ...] = ()
        self.rows_asked = 0
        self._last: object = None  # what the last update was made from
        self._here = here = router.place
        self._is_ours, self._others, self._note = is_ours, others, note
        self._has_refused = False
        self._prefix = f"{here.site}.{settings.reach.label}"
        self._names = settings.agreement()
        self._imports = Imports(settings.agreement(self._prefix), settings.rows_max)
        self._imported: dict[Row, None] = {}
        self._inward, self._outward = dict[str, str | None](), dict[str, str | None]()
        self._rate = None if settings.max_rate is None else Rate(settings.max_rate)
        self._pacing = threading.Lock()
        self._is_closed = threading.Event()
        self._inside = Border(
            inside,
            take=self._go_out,
            on_loss=lambda lost: self._lose(lost, self._way_out, self._outward),
            on_wanted=on_wanted,
            when_full=settings.when_full,
            ignore=ignore,
        )
        self._backbone = Border(
            backbone,
            take=self._come_in,
            on_loss=lambda lost: self._lose(lost, self._way_in, self._inward),
            on_wanted=on_wanted,
            when_full=settings.when_full,
            ignore=duty.peers,
        )
        self._way_out = _Way.from_bus(inside, self._backbone, self.out)
        self._way_in = _Way.from_bus(backbone, self._inside, self.into)
        self._come = Recent()  # what has come in from sites that may send it twice
        self._holding: dict[str, threading.Lock] = {}  # of each class, while it is handed on
        self.crossings = Crossings(
            router,
            settings,
            inside,
            backbone,
            outward=self._called_outside,
            inward=self._called_inside,
        )

    @property
    def refused(self) -> int:
        """Rows of others beyond the limits."""
        return self._imports.refused[_NEIGHBOURS]

    @property
    def rows_wanted(self) -> int:
        """How many rows others ask of this site."""
        return len(self._imported)

    def fits(self, subject: str) -> bool:
        """Whether the agreement's form of names inside fits a subject."""
        return self._names.names.outward(subject) is not None

    def wanted_by(self, subject: str) -> tuple[str, list[str]]:
        """What a subject of the inside is called on the backbone, and which nodes want it there."""
        name = self._called_outside(subject) or ""
        node = interior(self._backbone.bus).runtime
        with node.lock:
            rows = {one: record.all_rows() for one, record in node.node.rows.records.items()}
        return name, sorted(
            one for one, told in rows.items() if any(matches(pattern, name) for pattern, _ in told)
        )

    def wanting(self, pattern: str) -> set[str]:
        """The nodes of the backbone that want anything of a pattern of the inside."""
        names = self._imports.agreement.names.outward_patterns(pattern)
        node = interior(self._backbone.bus).runtime
        with node.lock:
            rows = {one: record.all_rows() for one, record in node.node.rows.records.items()}
        return {
            one
            for one, told in rows.items()
            if any(overlaps(row, name) for row, _ in told for name in names)
        }

    def forget_names(self) -> None:
        """Which agreement governs a subject may have changed."""
        self._inward.clear()
        self._outward.clear()

    def update(self, prefixes: Sequence[str]) -> None:
        """Tell each side what the other wants now; `prefixes` are those that are listened to."""
        here, there = self._inside.wanted(), self._backbone.wanted()
        carries = self._duty.carries()
        now = frozenset(here), frozenset(there), tuple(prefixes), carries
        # A table that was refused may be accepted later, though it is the same.
        if now == self._last and self._imported.keys() != set(self._imports.agreement.widest()):
            return
        self._last = now
        self.prefixes = tuple(prefixes)
        rows = self._names.exported(here)
        self.rows_asked = len(rows)
        asked = [_below(prefix, row) for prefix in prefixes for row in rows]
        added, removed = self._imports.import_rows(_NEIGHBOURS, there, time.monotonic())
        for row in removed:
            del self._imported[row]
        self._imported.update(dict.fromkeys(added))
        wanted = list(self._imported)
        if not carries:  # hear what the router that carries passes on
            asked += [_below(self._prefix, row) for row in self._names.exported(self._imported)]
            wanted += self._names.imported(rows)
        self._backbone.want(asked)
        self._inside.want(wanted)
        self.crossings.listen_to(prefixes)

    def go_on(self) -> None:
        """This router carries from now on: pass what was not passed before."""
        for way in (self._way_out, self._way_in):
            for class_ in list(way.held):
                with self._holding_lock(class_):
                    self._pass_held(way, class_)

    def close(self, timeout_s: float | None = None) -> None:
        """Let nothing pass any more. Idempotent.

        What waits is still passed on, within that time, or the patience of the inside.
        """
        patience_s = self._inside.bus.patience.close_s if timeout_s is None else timeout_s
        until_s = time.monotonic() + patience_s
        self._is_closed.set()
        self.crossings.close()
        for border in (self._inside, self._backbone):
            border.close(max(0.0, until_s - time.monotonic()))

    # Events.

    def _go_out(self, run: Run) -> None:
        if run.items.origins:  # what came from another site is not this site's to tell
            if self._duty.is_shared:
                self._way_in.passed.note(run, time.monotonic())
            places = [at for at, one in enumerate(run.items.origins) if one is None]
            if not places:
                return
            run = run.at(places)
        run = self._by_reservation(run)
        there = _renamed(run, self._called_outside)
        if there is not None and run.places and self._is_shared(run, is_out=True):
            self._refuse(there, self._way_out)
        elif there is not None:
            items = there.items.come_from(run.sender, self._here.site)
            for part in self._judged(replace(there, items=items)):
                self._hand_on(part, self._way_out)

    def _judged(self, run: Run) -> list[Run]:
        """Those events that the policy of the routers lets leave, in the classes it gives them."""
        judge = self._quality.judge
        if judge is None:
            return [run]
        is_reserved, qos = run.class_ == RESERVED, next(iter(run.items.each_qos()), None)
        own = qos.class_ if is_reserved and qos is not None else run.class_
        class_ = self._class_for(own, self._way_out)
        places: dict[str, list[int]] = {}
        for at, subject in zip(range(len(run.items)), run.items.each_subject(), strict=False):
            name = subject.removeprefix(TEST_SPACE).split(".", PREFIX_COUNT)[-1]
            if (to := judge(name, class_)) is not None:
                places.setdefault(RESERVED if is_reserved else to, []).append(at)
        if [*map(len, places.values())] == [len(run.items)]:
            return [replace(run, class_=next(iter(places)))]
        return [replace(run.at(some), class_=to) for to, some in places.items()]

    def _by_reservation(self, run: Run) -> Run:
        """An event that is to go by a reservation goes in the class for that, or in its own."""
        if not run.items.qos or (qos := run.items.qos[0]) is None or not qos.reserved:
            return run
        own = qos.class_ or run.class_ or self._way_out.classes.default
        size = sum(map(len, run.items.bodies))
        is_kept = self._quality.is_reserved(run.sender, qos.reserved, run.items.subjects[0], size)
        class_ = self._class_for(own, self._way_out)
        qos = replace(qos, class_=class_, reserved=qos.reserved if is_kept else 0)
        items = replace(run.items, qos=[qos])
        return replace(run, items=items, class_=RESERVED if is_kept else own)

    def _come_in(self, run: Run) -> None:
        site = _site_of(run.items.subjects[0])
        if self._duty.is_shared and site == self._here.site:
            self._way_out.passed.note(run, time.monotonic())
            return
        if site in self._duty.doubled:
            new = self._come.note(run, time.monotonic())
            if not new:
                return
            run = run if len(new) == len(run.items) else run.at(new)
        here = _renamed(run, self._called_inside)
        if here is not None and run.places and self._is_shared(run, is_out=False):
            self._refuse(here, self._way_in)
        elif here is not None:
            self._hand_on(here, self._way_in)

    def would_take(self, run: Run, *, is_out: bool) -> bool:
        """Whether anything of a run crosses by this agreement, out of the site or into it."""
        asked = (self._inside if is_out else self._backbone).asked_for(run)
        rename = self._called_outside if is_out else self._called_inside
        return asked is not None and _renamed(asked, rename) is not None

    def _is_shared(self, run: Run, *, is_out: bool) -> bool:
        """Whether another agreement takes a part of the same transaction."""
        if len(others := self._others()) < 2:
            return False
        count = len(transactions.decode(run.items.bodies[0]).events)
        whole = replace(run, places=tuple(range(count)))
        return any(one.would_take(whole, is_out=is_out) for one in others if one is not self)

    def _refuse(self, run: Run, way: _Way) -> None:
        """Each agreement would make a transaction of its own: there are no incomplete ones."""
        if not self._duty.carries():
            return
        way.crossed.lost += 1
        subjects = transactions.decode(run.items.bodies[0]).events.subjects
        if not self._has_refused:
            self._has_refused = True
            log.error(
                "a transaction that several agreements share does not cross, and others like it "
                "neither; let one agreement govern all of %s",
                ", ".join(dict.fromkeys(subjects)),
            )
        depth = interior(way.to.bus).runtime.node.terms.depth
        for subject in {channel_of(one, depth): one for one in subjects}.values():
            way.to.lose(subject, self._class_for(run.class_, way), 1)

    def _hand_on(self, run: Run, way: _Way) -> None:
        """Pass a run if this router carries; else keep it, in case it soon does."""
        if not self._duty.is_shared:
            self._pass(run, way)
            return
        with self._holding_lock(run.class_):
            if self._duty.carries():
                self._pass_held(way, run.class_)
                self._pass(run, way)
            else:
                held = way.held.setdefault(run.class_, Backlog())
                held.hold(run, way.passed, time.monotonic())

    def _holding_lock(self, class_: str) -> threading.Lock:
        return self._holding.setdefault(class_, threading.Lock())

    def _pass_held(self, way: _Way, class_: str) -> None:
        held = way.held.get(class_)
        if not held:
            return
        if held.dropped:
            way.crossed.lost += 1
            log.error(
                "no router of site %s carried, and up to %d events did not cross: there was no "
                "room for them",
                self._here.site,
                held.dropped,
            )
        for run in held.take(way.passed):
            self._pass(run, way)

    def _pass(self, run: Run, way: _Way) -> None:
        """Hand events on, as fast as is agreed; wait while the other side has no room."""
        items = run.items
        if items.qos and not self.settings.guaranteed:  # no ledger on the other side has them
            items = replace(items, qos=[one and replace(one, kept=False) for one in items.qos])
        count = step = len(items)
        if self.settings.max_rate is not None:
            step = max(1, int(self.settings.max_rate * _SLICE_S))
        class_ = self._class_for(run.class_, way)
        way.used.add(class_)
        for start in range(0, count, step):
            part = items if step >= count else items[start : start + step]
            self._wait_for_turn(len(part))
            way.to.send(part, class_, reliable=run.seqs[0] != 0)
        way.crossed.events += count
        way.crossed.bytes += sum(map(len, items.bodies))
        self._note(run)

    def _wait_for_turn(self, count: int) -> None:
        rate = self._rate
        if rate is None:
            return
        with self._pacing:
            wait_s = rate.allow(time.monotonic(), count, 0)
            rate.take(time.monotonic() + wait_s, count, 0)
        if wait_s > 0:
            self._is_closed.wait(wait_s)

    def _class_for(self, class_: str, way: _Way) -> str:
        """The class in which events of one go on the other side."""
        name = class_ or way.classes.default
        if name == RESERVED:  # by reservation there, and beside all other classes here
            return RESERVED if way is self._way_out else self._way_in.to_highest
        allowed, there = self.settings.classes, interior(way.to.bus).runtime.node.terms.classes
        return name if name in there.names and name in (allowed or (name,)) else there.default

    def _lose(self, lost: Lost, way: _Way, called: dict[str, str | None]) -> None:
        """Tell the other side of a loss: wherever anything it may concern has gone before."""
        if not self._duty.carries():
            return
        way.crossed.lost += 1
        channel = channel_in(lost.lane)
        depth = interior(way.to.bus).runtime.node.terms.depth
        subjects = {
            channel_of(name, depth): name
            for subject, name in called.copy().items()
            if name is not None and (not channel or channel_of(subject, way.depth) == channel)
        }
        if not subjects and channel:  # nothing has crossed yet
            subjects = {one: one for one in self._channels_of(channel, way, depth)}
        count = 1 if lost.last is None else lost.last - lost.first + 1
        # What concerns all of a sender says no lane: then it may be of any class.
        classes = {self._class_for(class_in(lost.lane), way)} if lost.lane else way.used.copy()
        for subject in subjects.values():
            for class_ in classes:
                way.to.lose(subject, class_, count)

    def _channels_of(self, channel: str, way: _Way, depth: int) -> list[str]:
        """The channels on the other side of one on this side, as far as they can be named."""
        if way is self._way_out:
            translate, beginning = self._imports.agreement.names.outward_patterns, channel
        else:
            translate = self._names.names.inward_patterns
            beginning = ".".join(channel.split(".")[PREFIX_COUNT:])
        wide = f"{beginning}.>" if beginning else ">"
        found = [one for form in (beginning, wide) if form for one in translate(form)]
        names = (one.split(".")[:depth] for one in found)
        return [".".join(name) for name in names if not {"*", ">"} & set(name)]

    # Names.

    def _called_outside(self, subject: str) -> str | None:
        return _known(self._outward, subject, self._outside_name)

    def _called_inside(self, subject: str) -> str | None:
        return _known(self._inward, subject, self._inside_name)

    def _outside_name(self, subject: str) -> str | None:
        if not self._is_ours(subject):
            return None
        return self._imports.agreement.names.outward(subject)

    def _inside_name(self, subject: str) -> str | None:
        space = TEST_SPACE if subject.startswith(TEST_SPACE) else ""
        site, _, name = subject.removeprefix(space).split(".", PREFIX_COUNT)
        # What this site has sent itself does not come in again, by whatever agreement.
        found = self._names.names.inward(space + name) if site != self._here.site else None
        return found if found is not None and self._is_ours(found) else None


def _known(names: dict[str, str | None], subject: str, find: Rename) -> str | None:
    try:
        return names[subject]
    except KeyError:
        if len(names) >= _NAMES_COUNT_MAX:
            names.clear()
        found = names[subject] = find(subject)
        return found


def _renamed(run: Run, rename: Rename) -> Run | None:
    """The events of a run that cross, under their other names; None if there are none."""
    if run.places:
        group = renamed_group(run.items, run.places, rename)
        if group is None:
            return None
        count = len(transactions.decode(group.bodies[0]).events)
        return replace(run, items=group, places=tuple(range(count)))
    crosses = crossing(run.items, rename)
    if crosses is not None:
        if not crosses:
            return None
        run = run.at(crosses)
    return replace(run, items=renamed(run.items, rename))


def _site_of(subject: str) -> str:
    """The site whose events have this name on the backbone; all of a frame are of one."""
    return subject.removeprefix(TEST_SPACE).partition(".")[0]


def _below(prefix: str, row: Row) -> Row:
    """A row under a beginning of names on the backbone; test events keep their space."""
    pattern, where = row
    space = TEST_SPACE if pattern.startswith(TEST_SPACE) else ""
    return f"{space}{prefix}.{pattern.removeprefix(space)}", where
