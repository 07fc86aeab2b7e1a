"""Joins discovery and invocation to a node: receives, asks the protocols, does what they say.

One lock guards the protocols. What they want done is done without it, because sending may wait,
and in no certain order between threads: the protocols do not rely on one.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

from msgspec.structs import replace

from infobus.errors import BadFrame, BusClosed, UsageError
from infobus.objects import codec
from infobus.protocols.effects import ToAll, ToPeer
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation import discovery
from infobus.protocols.invocation import effects as calling
from infobus.protocols.invocation import offers as serving
from infobus.protocols.invocation.caller import Caller
from infobus.protocols.invocation.discovery import Directory, Participant
from infobus.protocols.invocation.effects import Outgoing
from infobus.protocols.invocation.offers import Id
from infobus.protocols.invocation.rules import Key
from infobus.protocols.invocation.server import SERVER, Server
from infobus.services.load_reports import Telling
from infobus.services.ports import NodePort, Runner, Waiter
from infobus.services.threads import OperationThreads
from infobus.waiters import Changed

log = logging.getLogger("infobus")

_CALL_TAG = 32
_WORDS_MAX = 2000


class Exchange:
    """The services of one node, and its calls to those of others."""

    def __init__(self, node: NodePort, threads: OperationThreads) -> None:
        self.node = node
        self._now_s = node.now_s
        self._threads = threads
        self.lock = threading.Lock()
        self.directory = Directory(node.name, node.alive, self._load_of)
        self.directory.application = node.application
        self.caller = Caller(self.directory, codec.descriptors, node.answers_s)
        self.server = Server(self.directory)
        self.keys = itertools.count(1)
        self.waiters: dict[int, Waiter] = {}
        self.runners: dict[int, Runner] = {}
        self.departures: list[Callable[[str], None]] = []
        self.watches: list[Callable[[str, Participant], None]] = []
        self.on_acknowledged: Callable[[str], None] = lambda once: None
        self.principal_of: Callable[[str], str] | None = None  # who is behind a node
        self._heard = Changed(self.lock)  # of who is out there
        self._answered: dict[int, threading.Event] = {}
        self._telling = Telling(self.directory, self.caller, self.server)
        self._frames: deque[bytes] = deque()  # calls that have come
        self._taking_in = threading.Lock()
        self._is_taking_in = False
        self._is_closed = False
        self._why = BusClosed("the bus was closed")

    def close(self) -> None:
        """End: calls that have no answer get none."""
        self._is_closed = True
        with self.lock:
            self._heard.notify_all()
            waiters, self.waiters = list(self.waiters.values()), {}
        for waiter in waiters:
            waiter.ended(self._why)

    def abandon(self, why: BusClosed) -> None:
        """End in a forked child, where the parent's lock may be held for ever."""
        self._why, self._is_closed = why, True
        self.lock = threading.Lock()
        self._heard = Changed(self.lock)

    def check_open(self) -> None:
        """Raise `BusClosed` if this has ended."""
        if self._is_closed:
            raise self._why

    # What callers do.

    def call(self, call: Outgoing, waiter: Waiter) -> None:
        """Begin a call."""
        if self._is_closed:
            raise self._why
        self.node.check("call", f"{call.subject}/{call.operation}")
        self.waiters[call.key] = waiter
        with self.lock:
            effects = self.caller.start(call, self._now_s())
        self.carry_out(effects)

    def cancel(self, key: int, why: calling.Why = "cancelled") -> None:
        """Give up a call."""
        with self.lock:
            effects = self.caller.cancel(key, self._now_s(), why)
        self.carry_out(effects)

    def taken(self, key: int, count: int) -> None:
        """The caller of a stream has taken so many items in all."""
        with self.lock:
            effects = self.caller.taken(key, count)
        self.carry_out(effects)

    def servers(self, subject: str, timeout_s: float, first_s: float = 0.0) -> dict[Key, Presence]:
        """The servers of a subject, after everyone had time to answer.

        While there is none, the first one is waited for up to `first_s`.
        """
        self.check_open()
        until_s = self._now_s() + first_s
        with self.lock:
            effects = self.caller.watch(subject, self._now_s())
        self.carry_out(effects)
        self._heard.wait_for(lambda: self._is_closed or self.caller.servers(subject)[1], timeout_s)
        left_s = until_s - self._now_s()
        self._heard.wait_for(lambda: self._is_closed or self.caller.servers(subject)[0], left_s)
        self.check_open()
        with self.lock:
            return dict(self.caller.servers(subject)[0])

    def ask(self, pattern: str, role: str, where: str, timeout_s: float) -> list[Participant]:
        """Who is out there now; returns when everyone has answered, or in time."""
        self.check_open()
        answered = threading.Event()
        with self.lock:
            request, effects = self.directory.ask(pattern, role, self._now_s(), where=where)
            self._answered[request] = answered
        self.carry_out(effects)
        answered.wait(timeout_s)
        with self.lock:
            del self._answered[request]
            return self.directory.close(request)

    def watch(self, pattern: str, role: str, on_change: Callable[[str, Participant], None]) -> int:
        """Hear of arrivals, changes and departures, beginning with who is there already."""
        self.check_open()
        with self.lock:
            there = self.directory.found(pattern, role)
            request, effects = self.directory.ask(pattern, role, self._now_s(), is_watched=True)
            self.watches.append(on_change)
        for participant in there:
            on_change("arrived", participant)
        self.carry_out(effects)
        return request

    def close_question(self, request: int) -> None:
        """A question is of no interest any more."""
        with self.lock:
            self.directory.close(request)

    # What servers do.

    def announce(self, presence: Presence) -> Presence:
        """Somebody here begins; returns it with its id."""
        self.check_open()
        with self.lock:
            self._check_room()
            presence, effects = self.directory.announce(presence)
            effects = self.caller.noted(effects, self._now_s())  # type: ignore[assignment]
        self.carry_out(effects)
        return presence

    def change(self, presence: Presence) -> None:
        """Somebody here says something else about itself."""
        self._directed(lambda: self.directory.change(presence))

    def withdraw(self, id: int) -> None:
        """Somebody here ends."""
        self._directed(lambda: self.directory.withdraw(id))

    def _directed(self, act: Callable[[], discovery.DirectoryEffects]) -> None:
        with self.lock:
            effects = self.caller.noted(act(), self._now_s())
        self.carry_out(effects)

    def announce_offer(
        self, presence: Presence, make: Callable[[int], serving.Offer], runner: Runner
    ) -> Presence:
        """Serve something, and say so; returns its presence with its id."""
        self.check_open()
        with self.lock:
            self._check_room()
            presence, said = self.directory.announce(presence)
            self.runners[presence.id] = runner
            self.server.offer(make(presence.id))
            effects = self.caller.noted(said, self._now_s())
            self._heard.notify_all()
        self.carry_out(effects)
        return presence

    def _check_room(self) -> None:
        if len(self.directory.own) >= discovery.SEEN_OF_NODE_MAX:
            raise UsageError(
                f"this node has announced {len(self.directory.own)} services and others; "
                "nobody believes in more of one node: serve some of them from another process"
            )

    def retire(self, id: int) -> None:
        """Take nothing new under an offer; what runs is finished."""
        with self.lock:
            effects: list[Any] = self.server.retire(id)
        self.carry_out(effects)

    def ask_to_retire(self, subject: str) -> None:
        """Let the other nodes' servers of a subject retire."""
        self.carry_out([ToAll(wire.Retire(self.node.name, subject))])

    def finished(self, id: Id, answer: wire.Reply | wire.Failed) -> None:
        """A call is done."""
        with self.lock:
            effects = self.server.finished(id, answer, self._now_s())
        self.carry_out(effects)

    def claimed(self, id: Id, answer: serving.Answer | None) -> None:
        """It is known whether a call that must run once has to be run."""
        with self.lock:
            effects = self.server.claimed(id, answer, self._now_s())
        self.carry_out(effects)

    def produced(self, id: Id, body: bytes, descriptors: list[bytes]) -> bool:
        """A stream has one more item; whether there is room for another."""
        with self.lock:
            has_room, effects = self.server.produced(id, body, descriptors)
        self.carry_out(effects)
        return has_room

    def runs_async(self, subject: str, operation: str) -> bool:
        """Whether this node may run an operation on its event loop."""
        with self.lock:
            offers = [one.id for one in self.server.offers.values() if one.subject == subject]
            runners = [self.runners[id] for id in offers]
        return any(runner.is_async(operation) for runner in runners)

    def _load_of(self, presence: int) -> int:
        return self.server.load(presence)

    # What the world does.

    def on_frame(self, payload: bytes) -> None:
        """Take in a frame, on an engine's thread, which must not be held up."""
        if self._is_closed:
            return
        if payload[1] == _CALL_TAG:
            with self._taking_in:
                self._frames.append(payload)
                must_begin, self._is_taking_in = not self._is_taking_in, True
            if must_begin:
                self._threads.do(self._take_calls)
            return
        try:
            message = wire.decode(payload)
        except BadFrame as error:
            self.node.refuse(error)
            return
        if message is None or not self.node.is_for_us(message):
            return
        if message.__class__ is wire.Reply:  # the short way of what comes most
            with self.lock:
                effects = self.caller.take(message, self._now_s())
            self.carry_out(effects, may_wait=False)
        else:
            self.carry_out(self._take(message), may_wait=False)

    def _take_calls(self) -> None:
        """Take calls in until one is to be run: another thread goes on, while this one runs it."""
        jobs: list[Callable[[], None]] = []
        while not jobs:
            with self._taking_in:
                if not self._frames:
                    self._is_taking_in = False
                    return
                payload = self._frames.popleft()
            try:
                message = wire.decode(payload)
            except BadFrame as error:
                self.node.refuse(error)
                continue
            assert message.__class__ is wire.Call
            if not self.node.is_for_us(message):
                continue
            self.carry_out(self._take_call(message), jobs=jobs)
        with self._taking_in:
            has_more = self._is_taking_in = bool(self._frames)
        if has_more:
            self._threads.do(self._take_calls)
        for job in jobs[1:]:
            self._threads.do(job)
        jobs[0]()

    def _take_call(self, call: wire.Call) -> list[Any]:
        """Take a call in, if its caller may make it."""
        with self.lock:
            offer = self.server.offers.get(call.presence)
        if offer is not None and call.sender != self.node.name:
            subject = f"{offer.subject}/{call.operation}"
            if not self.node.accepts(call.sender, "call", subject):
                why, policy = self.node.refusal(call.sender, "call", subject)
                about = (self.node.name, call.number, wire.DENIED, why[:_WORDS_MAX])
                return [ToPeer(call.sender, wire.Refused(*about, policy=policy))]
        if call.descriptors:
            self.node.learn(call.descriptors)
        with self.lock:
            return list(self.server.take(call, self._now_s()))

    def on_peer(self, name: str, alive: bool) -> None:
        """A node appears or disappears."""
        now_s = self._now_s()
        with self.lock:
            if alive:
                effects: list[Any] = list(self.directory.peer_up(name, now_s))
            else:
                effects = list(self.caller.noted(self.directory.peer_down(name), now_s))
                effects += self.caller.peer_down(name, now_s)
                effects += self.server.peer_down(name)
            self._heard.notify_all()
        self.carry_out(effects, may_wait=False)
        for departed in [] if alive else list(self.departures):
            departed(name)

    def _take(self, message: Any) -> list[Any]:
        now_s = self._now_s()
        match message:
            case wire.Call():
                return self._take_call(message)
            case wire.Settled() | wire.Credit():
                with self.lock:
                    return list(self.server.take(message, now_s))
            case wire.Who():
                with self.lock:
                    return list(self.directory.take_who(message))
            case wire.IAm(sender):
                told = [p for p in message.presences if self._is_believed(sender, p)]
                if len(told) < len(message.presences):
                    message = replace(message, presences=told)
                with self.lock:
                    self._heard.notify_all()  # they look once this lock is free
                    return list(self.caller.noted(self.directory.take_i_am(message), now_s))
            case wire.Retire(sender, subject):
                if sender != self.node.name and self.node.accepts_retiring(sender, subject):
                    self._retire_all(subject)
                return []
            case _:
                with self.lock:
                    return list(self.caller.take(message, now_s))

    def _is_believed(self, node: str, presence: Presence) -> bool:
        """Whether somebody may be there in that role: everyone may call, or watch."""
        return presence.role != SERVER or self.node.accepts(node, "serve", presence.subject)

    def _retire_all(self, subject: str) -> None:
        with self.lock:
            offers = [one for one in self.server.offers.values() if one.subject == subject]
            runners = [self.runners[one.id] for one in offers if not one.is_retired]
        for runner in runners:
            runner.asked_to_retire()

    def on_tick(self) -> None:
        """Time has passed."""
        now_s = self._now_s()
        with self.lock:
            effects: list[Any] = list(self.directory.tick(now_s))
            effects += self.caller.tick(now_s)
            effects += self.server.tick(now_s)
            effects += self._telling.who_waits()
            effects += self._telling.loads(now_s)
            self._heard.notify_all()
        self.carry_out(effects, may_wait=False)

    # Doing what the protocols say.

    def carry_out(
        self,
        effects: Sequence[Any],
        *,
        may_wait: bool = True,
        jobs: list[Callable[[], None]] | None = None,
    ) -> None:
        """Do what the protocols say; what a node says to itself is taken in at once.

        Operations that are to be run on a thread are added to `jobs`, or else given to one.
        """
        if not effects:
            return
        do = self._do if jobs is None else partial(self._do, jobs=jobs)
        for message in self.node.carry_out(effects, do, may_wait):
            self.carry_out(self._take(message), may_wait=may_wait)

    def _do(self, one: Any, jobs: list[Callable[[], None]] | None = None) -> None:
        """Do what only services want done."""
        kind = one.__class__
        if kind is calling.Returned:
            if (waiter := self.waiters.pop(one.key, None)) is not None:
                waiter.returned(one.body, one.server)
        elif kind is serving.RunCall or kind is serving.Claim:
            runner = self.runners.get(one.call.presence)
            job = runner.run(one.id, one.call) if runner is not None else None
            if job is not None and jobs is not None:
                jobs.append(job)
            elif job is not None:
                self._threads.do(job)
        else:
            self._do_rare(one)

    def _do_rare(self, one: Any) -> None:
        match one:
            case calling.Raised(key, error, server):
                if (waiter := self.waiters.pop(key, None)) is not None:
                    waiter.raised(error, server)
            case calling.Yielded(key, bodies):
                if (waiter := self.waiters.get(key)) is not None:
                    waiter.yielded(bodies)
            case calling.GivenUp(key):
                if (waiter := self.waiters.pop(key, None)) is not None:
                    waiter.given_up(one)
            case serving.Stop(id, offer):
                if (runner := self.runners.get(offer)) is not None:
                    runner.stop(id)
            case serving.Room(id, offer):
                if (runner := self.runners.get(offer)) is not None:
                    runner.go_on(id)
            case serving.Drained(offer):
                if (runner := self.runners.pop(offer, None)) is not None:
                    runner.drained()
            case serving.Acknowledged(once):
                self.on_acknowledged(once)
            case discovery.AllAnswered(request):
                if (event := self._answered.get(request)) is not None:
                    event.set()
            case discovery.Arrived(participant):
                self._tell_watches("arrived", participant)
            case discovery.PresenceUpdated(participant):
                self._tell_watches("changed", participant)
            case discovery.Departed(participant):
                self._tell_watches("departed", participant)
            case _:
                assert_never(one)  # an effect that nobody does would be lost in silence

    def _tell_watches(self, what: str, participant: Participant) -> None:
        for watch in list(self.watches):
            watch(what, participant)
