"""Services across the border of two buses: each server on one of them has a stand-in on the other.

A stand-in says what the server says: operations, version, tags and info; and also at which `site`
the server is, and by which routers it is reached (`via`). Arguments, results, items of streams and
exceptions pass as they came, unread. A call runs at most once: the router hands it on once, to the
one server that the stand-in is for. If the server does not take it, the caller may try another
one, as within a bus; if the server or the router dies meanwhile, the call may have run.

A supplier of sessions has a stand-in of another kind: see `router.sessions`.

A stand-in has no stand-in back on the bus of its server, nor do servers of the own site come home
from outside.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from infobus.bus.bus import Bus, interior
from infobus.errors import BadValue, BusError, CallMayHaveRun
from infobus.objects import codec, find_type
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.caller import SERVER
from infobus.protocols.invocation.discovery import Participant
from infobus.protocols.invocation.effects import Bound, GivenUp, Outgoing
from infobus.protocols.invocation.offers import Id, Offer
from infobus.protocols.invocation.rules import Key
from infobus.router.guaranteed import Translate
from infobus.router.sessions import (
    UNLIMITED,
    SessionPairs,
    SessionStandIn,
    SessionTerms,
    supplies_sessions,
)
from infobus.services.discovery import Found
from infobus.services.exchange import Exchange
from infobus.services.failures import write_error
from infobus.subjects import matches
from infobus.waiters import Mailbox

log = logging.getLogger("infobus")

_RUNNING_COUNT_MAX = 10_000  # calls that a stand-in hands on at a time; its server decides more
_PATIENCE_S = 86_400.0  # with a caller that does not say how long it waits
_LEFT_S_MIN = 0.1  # for the way to another site and back
_MARGIN = 0.1  # of a caller's time, so that it hears what became of the call over there
_MARGIN_S_MAX = 0.5


@dataclass(frozen=True, kw_only=True)
class ServiceWay:
    """What services of one bus are found on the other, under which subjects."""

    patterns: Sequence[str]
    translate: Translate


class ServiceCrossing:
    """Joins the services of two buses; one for each agreement of a router.

    Args:
        inside: The bus of a site.
        outside: The bus that joins sites.
        site: The site's name, which no other site has. What is there is not found again by way of
            outside.
        router: The router's name, for who finds a service through it.
        outward: What the site offers.
        inward: What others offer to it.
        terms: What sessions may agree to at most.
    """

    def __init__(
        self,
        inside: Bus,
        outside: Bus,
        *,
        site: str,
        router: str,
        outward: ServiceWay,
        inward: ServiceWay,
        terms: SessionTerms = UNLIMITED,
    ) -> None:
        self.outward = ServicePassage(
            inside,
            outside,
            outward,
            lambda found: None if "via" in found.info else {"site": site, "via": [router]},
            terms,
        )
        self.inward = ServicePassage(
            outside,
            inside,
            inward,
            lambda found: (
                None
                if found.node == outside.node or found.info.get("site") == site
                else {"via": [*_routers(found), router]}
            ),
            terms,
        )

    def close(self) -> None:
        """Take the stand-ins away; calls that run there may have run."""
        self.outward.close()
        self.inward.close()


def _routers(found: Found) -> list[str]:
    via = found.info.get("via")
    return [str(one) for one in via] if isinstance(via, list) else []


class ServicePassage:
    """The stand-ins on one bus for servers on another.

    Attributes:
        stand_ins: Those that are there now, by the node and the presence of their servers.
        session_pairs: The sessions that cross now.
    """

    def __init__(
        self,
        source: Bus,
        target: Bus,
        way: ServiceWay,
        tell: Callable[[Found], Mapping[str, Any] | None],
        terms: SessionTerms,
    ) -> None:
        self.stand_ins: dict[Key, StandIn | SessionStandIn] = {}
        self.session_pairs = SessionPairs(source, target, terms)
        self._way = self._told = way
        self._tell = tell
        self._there = interior(source).services.exchange
        self._here = interior(target).services.exchange
        self._requests: list[int] = []
        # What is heard on one bus is done on the other by a thread that may wait for its links.
        self._jobs: Mailbox[Callable[[], None] | None] = Mailbox()
        self._thread = threading.Thread(
            target=self._work, name=f"infobus-{target.node}-stand-ins", daemon=True
        )
        self._thread.start()
        self._jobs.put(partial(self._watch, way))

    def change(self, way: ServiceWay) -> None:
        """Let other services cross from now on, as when other routers come and go."""
        if way != self._told:
            self._told = way
            self._jobs.put(partial(self._watch, way))

    def close(self) -> None:
        """Take all stand-ins away. Closing twice is fine."""
        self._jobs.put(self._end)
        self._jobs.put(None)
        self._thread.join()

    # On the thread of the passage.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BusError as error:
                log.warning("services across sites: %s", error)

    def _watch(self, way: ServiceWay) -> None:
        self._forget()
        self._way = way
        self._requests = [
            self._there.watch(pattern, SERVER, self._hear) for pattern in way.patterns
        ]
        for key, one in list(self.stand_ins.items()):
            if self._subject_there(one.server_subject) != one.subject:
                self.stand_ins.pop(key).asked_to_retire()

    def _forget(self) -> None:
        for request in self._requests:
            self._there.watches.remove(self._hear)
            self._there.close_question(request)
        self._requests = []

    def _end(self) -> None:
        self._forget()
        while self.stand_ins:
            self.stand_ins.popitem()[1].close()
        self.session_pairs.close()

    def _hear(self, what: str, participant: Participant) -> None:
        """Somebody over there has arrived, changed or departed; any thread says so."""
        self._jobs.put(partial(self._follow, what, participant))

    def _follow(self, what: str, participant: Participant) -> None:
        key, presence = participant.key, participant.presence
        known = self.stand_ins.get(key)
        is_there = what != "departed" and presence.role == SERVER
        subject = self._subject_there(presence.subject) if is_there else None
        said = None if subject is None else self._said(Found.of(participant.node, presence))
        if subject is None or said is None:
            if known is not None:
                self.stand_ins.pop(key).asked_to_retire()
        elif known is not None:
            known.change(presence, said)
        elif supplies_sessions(Found.of(participant.node, presence)):
            self.stand_ins[key] = SessionStandIn(self.session_pairs, key, subject, presence, said)
        else:
            self.stand_ins[key] = StandIn(
                self._there, self._here, self._jobs, key, subject, presence, said
            )

    def _subject_there(self, subject: str) -> str | None:
        if not any(matches(pattern, subject) for pattern in self._way.patterns):
            return None
        return self._way.translate(subject)

    def _said(self, found: Found) -> bytes | None:
        more = self._tell(found)
        if more is None:
            return None
        try:
            return codec.encode({**found.info, **more})[1]
        except BadValue:
            return None  # it was larger than that already


class StandIn:
    """What is found and called on one bus instead of a server on another."""

    def __init__(
        self,
        there: Exchange,
        here: Exchange,
        jobs: Mailbox[Callable[[], None] | None],
        key: Key,
        subject: str,
        presence: Presence,
        said: bytes,
    ) -> None:
        self.subject = subject
        self.there, self.here, self.jobs = there, here, jobs
        self.server = key
        self.server_subject, self.store = presence.subject, presence.store
        self.idempotent = _idempotent_in(presence)
        self.calls: dict[Id, HandedOn] = {}  # that are under way
        self._presence = here.announce_offer(
            _seen(presence, Presence(1, 0, subject, SERVER, presence.since), said),
            lambda id: Offer(id, subject, _RUNNING_COUNT_MAX, 0),
            self,
        )

    def change(self, presence: Presence, said: bytes) -> None:
        """The server says something else about itself."""
        changed = _seen(presence, self._presence, said)
        if changed != self._presence:
            self._presence = changed
            self.idempotent = _idempotent_in(presence)
            self.here.change(changed)

    # What the exchange of the calling side says.

    def run(self, id: Id, call: wire.Call) -> Callable[[], None] | None:
        """Hand a call on."""
        handed = self.calls[id] = HandedOn(self, id, call)
        return handed.begin

    def is_async(self, operation: str) -> bool:
        """Nothing runs here."""
        return False

    def stop(self, id: Id) -> None:
        """Nobody waits for a call any more."""
        if (handed := self.calls.get(id)) is not None:
            self.jobs.put(handed.cancel)

    def go_on(self, id: Id) -> None:
        """The caller of a stream has room for more items."""
        if (handed := self.calls.get(id)) is not None:
            self.jobs.put(handed.go_on)

    def drained(self) -> None:
        """All calls are finished."""

    def close(self) -> None:
        """Take no more calls, and wait for none."""
        self.asked_to_retire()
        for handed in self.calls.copy().values():
            handed.abandon()

    def asked_to_retire(self) -> None:
        """Take no more calls; those that are under way get their answers."""
        self.here.withdraw(self._presence.id)
        self.here.retire(self._presence.id)


def _seen(server: Presence, stand_in: Presence, said: bytes) -> Presence:
    """How a stand-in for this server looks."""
    return replace(stand_in, info=said, interface=server.interface, store=server.store)


def _idempotent_in(presence: Presence) -> frozenset[str]:
    operations = Found.of("", presence).interface.operations
    return frozenset(one.name for one in operations if one.is_idempotent)


class HandedOn:
    """One call, from its caller on one bus to its server on another, and back."""

    def __init__(self, stand_in: StandIn, id: Id, call: wire.Call) -> None:
        self._stand_in = stand_in
        self._id = id
        self._call = call
        self._key = next(stand_in.there.keys)
        self._arguments = call.arguments
        # Of a stream, on the thread of the passage:
        self._items: deque[bytes] = deque()  # for which the caller has no room yet
        self._passed_count = 0
        self._has_room = True
        self._end: wire.Reply | wire.Failed | None = None

    def begin(self) -> None:
        """Hand it on, once."""
        call, there = self._call, self._stand_in.there
        left_s = call.left_s or _PATIENCE_S
        if left_s < _LEFT_S_MIN:  # else nobody could tell whether it has run
            self._refuse("its caller waits no longer")
            return
        left_s -= min(_MARGIN * left_s, _MARGIN_S_MAX)
        outgoing = Outgoing(
            self._key,
            self._stand_in.server_subject,
            call.operation,
            self._bound,
            there.node.now_s() + left_s,
            targets=[self._stand_in.server],
            once=call.once,
            keeps_reply=True,  # until the caller itself has it
            headers=call.headers,
        )
        try:
            there.call(outgoing, self)
        except BusError as error:
            self._refuse(str(error))

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._items.clear()
        if self._end is None:
            self._stand_in.there.cancel(self._key)
        else:
            self._pass_on()

    def abandon(self) -> None:
        """The crossing is closed: its caller gets no other answer."""
        here, given_up = self._stand_in.here, GivenUp(self._key, "cancelled", self._stand_in.server)
        here.finished(self._id, wire.Failed("-", self._id[1], self._explained(given_up)))
        self._stand_in.there.cancel(self._key)

    def go_on(self) -> None:
        """There is room for more items."""
        self._has_room = True
        self._pass_on()

    def _bound(self, server: Presence) -> Bound:
        types = _types_in([self._arguments])
        return Bound(self._arguments, types, is_stream=self._call.credit > 0)

    # What the exchange of the serving side says.

    def returned(self, body: bytes, server: Key) -> None:
        """It has its result, or all its items."""
        self._answer(wire.Reply("-", self._id[1], body, descriptors=_described([body])))

    def raised(self, error: bytes, server: Key) -> None:
        """It has raised an exception."""
        self._answer(wire.Failed("-", self._id[1], error, descriptors=_described([error])))

    def yielded(self, bodies: list[bytes]) -> None:
        """It has its next items."""
        self._stand_in.jobs.put(partial(self._pass_on, bodies))

    def given_up(self, given_up: GivenUp) -> None:
        """It has no answer."""
        may_have_run = given_up.server is not None or given_up.detail == "died"
        may_run_again = self._call.operation in self._stand_in.idempotent and not self._call.credit
        if may_have_run and not may_run_again:
            self._answer(wire.Failed("-", self._id[1], self._explained(given_up)))
        else:
            self._refuse(f"{self._stand_in.server[0]}: {given_up.detail or given_up.why}")

    def ended(self, error: Exception) -> None:
        """The bus of the server was closed, here."""
        self.given_up(GivenUp(self._key, "died", self._stand_in.server))

    def _pass_on(self, bodies: Sequence[bytes] = ()) -> None:
        """Pass items on as far as there is room, and behind the last one the answer."""
        here, items = self._stand_in.here, self._items
        items.extend(bodies)
        while items and self._has_room:
            body = items.popleft()
            self._passed_count += 1
            self._has_room = here.produced(self._id, body, _described([body]))
        if self._end is None:
            self._stand_in.there.taken(self._key, self._passed_count)
        elif not items:
            self._stand_in.calls.pop(self._id, None)
            here.finished(self._id, self._end)

    def _answer(self, answer: wire.Reply | wire.Failed) -> None:
        """Give the caller its answer, after all items."""

        def end() -> None:
            self._end = answer
            self._pass_on()

        self._stand_in.jobs.put(end)

    def _refuse(self, why: str) -> None:
        """It has not run: the caller may try another server, or this one again."""
        self._stand_in.calls.pop(self._id, None)
        here = self._stand_in.here
        refused = wire.Refused(here.node.name, self._id[1], wire.BUSY, why[:2000])
        self._stand_in.jobs.put(partial(here.claimed, self._id, refused))

    def _explained(self, given_up: GivenUp) -> bytes:
        node, subject = self._stand_in.server[0], self._stand_in.subject
        what = {
            "late": f"no reply from {node}, at another site, in {self._call.left_s:.1f} s",
            "cancelled": "its router no longer carries services",
        }.get(given_up.why, f"its server {node}, at another site, has died")
        error = CallMayHaveRun(
            f"{self._call.operation} of {subject!r}: {what}; the call may have run",
            subject=subject,
            operation=self._call.operation,
            node=node,
            call_id=f"{self._call.once}@{self._stand_in.store}" if self._call.once else "",
        )
        return write_error(error, with_traceback=False)


def _types_in(bodies: Sequence[bytes]) -> tuple[int, ...]:
    """The types of all objects in these bytes, and their supertypes."""
    types = codec.types_in(bodies)
    known = [kind for one in types if (kind := find_type(one)) is not None]
    return tuple(types.union(*(kind.closure for kind in known)))


def _described(bodies: Sequence[bytes]) -> list[bytes]:
    """The descriptors that a reader of these bytes may lack."""
    types = _types_in(bodies)
    return codec.descriptors(types) if types else []
