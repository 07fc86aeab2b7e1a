"""Guaranteed events across the border of two buses: kept there before they are settled here.

On the bus that events come from, a router is a durable consumer. It keeps them in a ledger of the
bus that they go to, where durable consumers get them, and only then settles them. How far it has
come in each ledger that it reads is written in the same transaction as the events themselves. So it
may be killed at any moment: what it takes again after that is left out, and nothing is lost.

Nothing crosses unless a durable consumer on the other side wants some of it. Once one has been
heard of, the router owes it everything since its registration, whether it is connected or not: the
router's own registration, which is on disk, keeps that word for all later lives of the router. If
one that is registered earlier is heard of later, the router goes back for what it is owed (`eras`).

Events are forwarded as they are kept. They keep their name (first ledger and number), time, object,
headers, class, age and test mark; only their subjects are translated. An event that came from
another site is never taken in again from the inside, and none goes back to its own site.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from infobus.bus.bus import Bus, interior
from infobus.bus.durable.feed import Fed, LedgerFeed
from infobus.bus.durable.names_in_use import decode_record
from infobus.bus.publish.records import descriptors_of
from infobus.errors import BadFrame, BusClosed, BusError, StoreError
from infobus.objects import find_type
from infobus.protocols.frames import transactions
from infobus.protocols.frames.guaranteed import Durable, Entry
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.guaranteed.ledger_port import choosing, types_of
from infobus.router.eras import Spans, era_name, eras_of
from infobus.stores.ledger.record import Record, SourcePlace
from infobus.subjects import overlaps

log = logging.getLogger("infobus")

OF_ROUTERS = "~router."
"""Durable names of routers begin so. What routers want of an inside is no reason to carry it there:
it was there before."""

_BATCH_COUNT = 256
_PAUSE_S = 1.0  # after a failure
_APART_S = 0.01
_GATHER_S = 2.0
"""How long registrations are heard before the first event crosses, so that the earliest counts."""
_LOOK_S = 0.5  # how often an idle passage looks whether it is to end

Translate = Callable[[str], str | None]
"""The subject on the other side; None if it does not cross."""


@dataclass(frozen=True, kw_only=True)
class GuaranteedWay:
    """What may cross in one direction.

    Attributes:
        patterns: What is taken, in the names of the bus that it is taken from.
        kept: What durable consumers of the other bus may get of it, in the names of that bus.
        translate: From a subject of the one to that of the other.
        where: A filter that what crosses must pass; empty if there is none.
    """

    patterns: Sequence[str]
    kept: Sequence[str]
    translate: Translate
    where: str = ""


class GuaranteedCrossing:
    """Joins the guaranteed events of two buses; one for each agreement of a router.

    Args:
        inside: The bus of a site.
        outside: The bus that joins sites.
        site: The site's name, which no other site has. What comes from there stays outside.
        name: Tells this crossing from all others on both buses. Of several routers with the same
            name, one at a time carries.
        outward: What may leave the site.
        inward: What may come in.
        on_error: Called with losses, and with other errors that carrying survives.
    """

    def __init__(
        self,
        inside: Bus,
        outside: Bus,
        *,
        site: str,
        name: str,
        outward: GuaranteedWay,
        inward: GuaranteedWay,
        on_error: Callable[[BusError], object] | None = None,
    ) -> None:
        durable = f"{OF_ROUTERS}{name}"
        report = on_error or _log_error
        self.outward = GuaranteedPassage(
            inside,
            outside,
            durable,
            outward,
            home=site,
            carries=lambda entry: entry.origin is None,
            heeds=lambda told: told.sender != outside.node,
            on_error=report,
        )
        self.inward = GuaranteedPassage(
            outside,
            inside,
            durable,
            inward,
            home=outside.name,
            carries=lambda entry: entry.origin is None or entry.origin[2] != site,
            heeds=lambda told: not told.name.startswith(OF_ROUTERS),
            on_error=report,
        )

    def close(self) -> None:
        """Carry no more; what was not kept on the other side comes again the next time."""
        self.outward.close()
        self.inward.close()


class GuaranteedPassage:
    """One direction of a crossing.

    Attributes:
        carried: How many records it has kept on the other side; some may have come again.
        state: `unwanted` while no durable consumer has been heard of, `open` while it carries,
            `waiting` while it cannot: see `error`.
        error: Why it waits, or did the last time.
    """

    def __init__(
        self,
        source: Bus,
        target: Bus,
        name: str,
        way: GuaranteedWay,
        *,
        home: str,
        carries: Callable[[Entry], bool],
        heeds: Callable[[Durable], bool],
        on_error: Callable[[BusError], object],
    ) -> None:
        self.name = name
        self.way = way
        self.source, self.target = interior(source).guaranteed, interior(target).guaranteed
        self.home = home  # of what comes from no other site
        self.carries = carries
        self.on_error = on_error
        self.spans = Spans(name)
        self.keeping = threading.Lock()  # of one era at a time
        self.node = source.node
        self._heeds = heeds
        self._eras: list[_Era] = []
        self._since = float("inf")  # the earliest registration that events were asked for since
        self._heard = float("inf")  # the earliest that was heard of
        self._is_heard = threading.Event()
        self._is_closed = threading.Event()
        self._hear_no_more = self.target.watch_consumers(self._hear)
        self._thread = threading.Thread(
            target=self._run, name=f"infobus-{self.node}-passage", daemon=True
        )
        self._thread.start()

    @property
    def carried(self) -> int:
        """See above."""
        return sum(era.carried for era in self._eras)

    @property
    def state(self) -> Literal["unwanted", "open", "waiting"]:
        """See above."""
        states = {era.state for era in self._eras}
        return "waiting" if "waiting" in states else "open" if "open" in states else "unwanted"

    @property
    def error(self) -> BusError | None:
        """See above."""
        return next((era.error for era in self._eras if era.error is not None), None)

    def change(self, way: GuaranteedWay) -> None:
        """Carry something else from now on, as when other routers come and go."""
        if way != self.way:
            self.way = way
            for era in self._eras.copy():
                era.begin_anew()

    def close(self) -> None:
        """Carry no more. Closing twice is fine."""
        self._hear_no_more()
        self._is_closed.set()
        self._is_heard.set()  # who waits for that wakes up
        self._thread.join()
        for era in self._eras:
            era.close()

    def _hear(self, told: Durable) -> None:
        """A durable consumer of the other bus says what it wants; on the strand there."""
        if told.registered_at >= min(self._heard, self._since) or not self._heeds(told):
            return
        if any(overlaps(one, kept) for one in told.patterns for kept in self.way.kept):
            self._heard = told.registered_at
            self._is_heard.set()

    # On the passage's own thread.

    def _run(self) -> None:
        with suppress(BusClosed):
            self._go_on()
            while not self._is_closed.is_set():
                self._is_heard.wait()
                # Others may be registered earlier, and are about to say so.
                if self._is_closed.wait(_GATHER_S):
                    return
                self._is_heard.clear()
                if self._heard < self._since:
                    self._go_back()

    def _go_on(self) -> None:
        """An earlier life of the router has given its word."""
        registered = self.source.registrations()
        eras = eras_of(self.name, registered)
        if eras:
            self.spans.load(self.target.kept_from())  # before any of them keeps anything
        for era in eras:
            self._begin(era, registered[era_name(self.name, era)])

    def _go_back(self) -> None:
        # Not to the same instant: homes are told apart by when they registered a name.
        since = self._heard - _APART_S * random.random()
        era = self._eras[-1].number + 1 if self._eras else 0
        if era:
            log.warning(
                "a durable consumer that was registered %.1f s earlier is heard of now (%s): what "
                "it is owed comes behind what has crossed already",
                *(self._since - since, self.name),
            )
        self._begin(era, since)

    def _begin(self, era: int, since: float) -> None:
        self._since = min(since, self._since)
        self._eras.append(_Era(self, era, since))


class _Era:
    """What a passage carries under one of its durable names, on a thread of its own."""

    def __init__(self, passage: GuaranteedPassage, number: int, since: float) -> None:
        self.number = number
        self.carried = 0
        self.state: Literal["unwanted", "open", "waiting"] = "unwanted"
        self.error: BusError | None = None
        self._passage = passage
        self._name = era_name(passage.name, number)
        self._since = since
        self._is_closed = threading.Event()
        self._is_changed = False
        self._feed: LedgerFeed | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"infobus-{passage.node}-crossing", daemon=True
        )
        self._thread.start()

    def begin_anew(self) -> None:
        """What is to be carried has changed."""
        self._is_changed = True
        self._wake()

    def close(self) -> None:
        """Carry no more."""
        self._is_closed.set()
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        if (feed := self._feed) is not None:
            feed.wake()

    def _run(self) -> None:
        while not self._is_closed.is_set():
            try:
                self._carry()
            except BusClosed:
                return  # one of the buses was closed
            except BusError as error:
                self._fail(error)
            self._is_closed.wait(_PAUSE_S if self.state == "waiting" else 0.0)

    def _carry(self) -> None:
        """Carry until the way changes or the passage is closed."""
        self._is_changed = False
        passage = self._passage
        way = passage.way
        if not way.patterns:  # no other router is there yet
            self._is_closed.wait(_LOOK_S)
            return
        feed = self._feed = passage.source.feed(
            way.patterns,
            self._name,
            where=way.where,
            since=self._since,
            on_error=passage.on_error,
        )
        self.state = "open"
        pack = Pack(way, passage.home)
        try:
            while not (self._is_closed.is_set() or self._is_changed):
                taken = feed.take(_BATCH_COUNT, _LOOK_S)
                if taken and not self._keep(feed, pack, taken):
                    return
        finally:
            self._feed = None
            with suppress(BusClosed):
                feed.close()

    def _keep(self, feed: LedgerFeed, pack: Pack, taken: Sequence[Fed]) -> bool:
        """Keep events there, then settle them here; False if the passage was closed before."""
        passage = self._passage
        with passage.keeping:
            sources, records, begun = self._packed(pack, taken)
            while records:
                try:
                    passage.target.keep_from(sources, records, pack.descriptors(records), begun)
                    break
                except StoreError as error:  # such as a full disk: nothing was kept
                    self._fail(error)
                if self._is_closed.wait(_PAUSE_S):
                    return False
        self.state = "open"
        self.carried += len(records)
        feed.settle(taken)
        return True

    def _packed(
        self, pack: Pack, taken: Iterable[Fed]
    ) -> tuple[list[SourcePlace], list[Record], dict[str, int]]:
        """The records to keep, each with its source, and where this era begins in new ledgers."""
        spans, era = self._passage.spans, self.number
        sources: list[SourcePlace] = []
        records: list[Record] = []
        begun: dict[str, int] = {}
        for ledger, entry in ((one.ledger, one.entry) for one in taken):
            if not (self._passage.carries(entry) and spans.is_new(era, ledger, entry.number)):
                continue
            if (record := pack.record(ledger, entry)) is not None:
                begun |= spans.keep(era, ledger, entry.number)
                sources.append(SourcePlace(spans.stream(era, ledger), entry.number))
                records.append(record)
        return sources, records, begun

    def _fail(self, error: BusError) -> None:
        if self.state != "waiting" or str(error) != str(self.error):  # once for each of them
            log.error("guaranteed events do not cross (%s): %s", self._name, error)
        self.state, self.error = "waiting", error


class Pack:
    """Makes records for one side of what the ledgers of the other hold."""

    def __init__(self, way: GuaranteedWay, home: str) -> None:
        self._translate = way.translate
        self._home = home
        self._places = choosing(way.patterns, way.where, decode_record)

    def descriptors(self, records: Iterable[Record]) -> dict[int, bytes]:
        """The descriptors of all types in these records, as far as they are known."""
        types = types_of(records)
        known = [kind for one in types if (kind := find_type(one)) is not None]
        return descriptors_of(types.union(*(kind.closure for kind in known)))

    def record(self, ledger: str, entry: Entry) -> Record | None:
        """The record to keep; None if it may not cross."""
        if entry.type == GROUP:
            found = self._group(entry)
            if found is None:
                return None
            subject, body = found
        else:
            there = self._translate(entry.subject) if self._places(entry) else None
            if there is None:
                return None
            subject, body = there, entry.body
        return Record(
            subject,
            entry.time,
            entry.type,
            body,
            entry.object_id,
            entry.expires,
            entry.test,
            entry.priority,
            entry.headers,
            entry.origin or (ledger, entry.number, self._home),
        )

    def _group(self, entry: Entry) -> tuple[str, bytes] | None:
        """The part of a transaction that may cross, and its first subject; None if none may."""
        try:
            group = transactions.decode(entry.body)
        except BadFrame:
            return None  # nobody can read it there either
        subjects = [item.subject for item in group.events]
        there = {at: self._translate(subjects[at]) for at in self._places(entry)}
        crossing = {at: subject for at, subject in there.items() if subject is not None}
        if not crossing:
            return None
        names = [*crossing.values()]
        events = replace(group.events.at([*crossing]), subjects=names)
        part = Group(group.number, group.epoch, group.channels, events, len(names))
        return names[0], transactions.encode(part)


def _log_error(error: BusError) -> None:
    log.error("guaranteed events across sites: %s", error)
