"""Keeps a node's copy of the tags that concern it, and applies them to publishing and delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from infobus.bus.runtime.registration import Locked
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import NoRight
from infobus.protocols.effects import ToPeer
from infobus.protocols.frames import tags as wire
from infobus.protocols.frames.tags import TagMessage, TagOperation, TagOutcome, UsedBy
from infobus.protocols.tags.holder import (
    HolderEffect,
    RequestDecided,
    TagHolder,
    TagsChanged,
    UsersCame,
)
from infobus.protocols.tags.rules import TagRule, TagRules
from infobus.subjects import channel_of

TAGS = (61, 63, 65, 67)  # what a node with the table answers
SERVER_KEY = "t/"
"""The tokens of nodes that have the table begin so."""
_HELD_S = 1.0  # that a decision waits for what it has decided to be held here
_USES_COUNT_MAX = 10_000  # channels and tags that were looked at; beyond it they are looked at anew


class Publishing(Protocol):
    """What of publishing goes by tags."""

    rules: TagRules | None
    note_use: Callable[[str, TagRule | None], None]

    def forget(self) -> None:
        """The rules have changed."""


class TagDriver:
    """Drives a `TagHolder`. It is a machine itself, so that it can talk to its own node's table."""

    def __init__(self, runtime: Runtime, routing: Publishing, application: str) -> None:
        self.runtime = runtime
        self.rules = TagRules(application or runtime.name)
        self.holder = TagHolder(runtime.name)
        self.to_own_table: Callable[[TagMessage], None] = lambda message: None
        self._routing = routing
        self.decided: dict[str, RequestDecided | None] = {}  # of requests that somebody waits for
        self._users: dict[int, UsedBy | None] = {}
        self._used: set[str] = set()
        self._strand = Locked(runtime, self, self._do, wire.decode)
        runtime.register(self._strand, TAGS)
        runtime.audiences.rules = routing.rules = self.rules
        routing.note_use = self.note_use

    # What the node does.

    def see_server(self, name: str, alive: bool) -> None:
        """A node has the table, or has it no longer."""
        notice = self.holder.server_up if alive else self.holder.server_down
        self._step(lambda now_s: notice(name, now_s))

    def hear(self, message: TagMessage) -> None:
        """The table of this very node answers."""
        self._step(lambda now_s: self.holder.take(message, now_s))

    def wait_until_held(self, patterns: list[str], timeout_s: float) -> bool:
        """Hold the tags that overlap these patterns; False if nobody told them in time."""
        self._step(lambda now_s: self.holder.want(patterns, now_s))
        return self.runtime.wait_until(lambda: self._is_held(patterns), timeout_s)

    def _is_held(self, patterns: list[str]) -> bool:
        is_held = self.holder.held > 0 and all(map(self.holder.is_covered, patterns))
        return is_held or self.runtime.is_closed

    def decide(self, operation: TagOperation, timeout_s: float) -> TagOutcome | None:
        """Have an operation agreed; None if there was no decision in time.

        What was decided is held here as well, unless that takes long.
        """
        id = operation.id
        try:
            self.ask(operation)
            self._wait_for(lambda: self.decided[id], timeout_s)
        finally:
            with self.runtime.lock:
                self.holder.forget(id)
                decided = self.decided.pop(id)
        if decided is None:
            return None
        self._wait_for(lambda: self.holder.held >= decided.upto, min(timeout_s, _HELD_S))
        return decided.outcome

    def ask(self, operation: TagOperation) -> None:
        """Have an operation agreed; `decided` has what came of it, once that is known."""

        def ask(now_s: float) -> list[HolderEffect]:
            self.decided[operation.id] = None
            return self.holder.request(operation, now_s)

        self._step(ask)

    def users(self, name: str, timeout_s: float) -> UsedBy | None:
        """Who uses a tag; None if nobody has said so in time."""
        requests: list[int] = []

        def ask(now_s: float) -> list[HolderEffect]:
            request, effects = self.holder.who_uses(name, now_s)
            self._users[request] = None
            requests.append(request)
            return effects

        self._step(ask)
        (request,) = requests
        try:
            self._wait_for(lambda: self._users[request], timeout_s)
        finally:
            with self.runtime.lock:
                self.holder.forget(request)
                users = self._users.pop(request)
        return users

    def _wait_for(self, answer: Callable[[], object], timeout_s: float) -> None:
        self.runtime.wait_until(lambda: self.runtime.is_closed or answer(), timeout_s)

    def note_use(self, subject: str, rule: TagRule | None) -> None:
        """This node publishes under a subject: hold what concerns it, and let others know."""
        channel = channel_of(subject, self.runtime.node.terms.depth)
        if len(self._used) >= _USES_COUNT_MAX:
            self._used.clear()
        if channel not in self._used:
            self._used.add(channel)
            self._step(lambda now_s: self.holder.want([channel, f"{channel}.>"], now_s))
        if rule is not None and (name := f"tag {rule.name}") not in self._used:
            self._used.add(name)
            self._step(lambda now_s: self.holder.publishes(rule.name, now_s))

    # What the world does.

    def take(self, message: TagMessage, now_s: float) -> list[HolderEffect]:
        """An answer has come."""
        return self._outward(self.holder.take(message, now_s))

    def peer_up(self, name: str, now_s: float) -> list[HolderEffect]:
        """Nodes with the table show a token of its own."""
        return []

    def peer_down(self, name: str, now_s: float) -> list[HolderEffect]:
        """The same."""
        return []

    def tick(self, now_s: float) -> list[HolderEffect]:
        """Time has passed."""
        return self._outward(self.holder.tick(now_s))

    def _step(self, step: Callable[[float], list[HolderEffect]]) -> None:
        self._strand.step(lambda now_s: self._outward(step(now_s)))

    def _outward(self, effects: list[HolderEffect]) -> list[HolderEffect]:
        """What is to leave the node; an engine does not carry what a node says to itself."""
        outward: list[HolderEffect] = []
        for one in effects:
            if isinstance(one, ToPeer) and one.peer == self.runtime.name:
                self.to_own_table(one.message)
            else:
                outward.append(one)
        return outward

    def _do(self, one: Any) -> Sequence[Any]:
        match one:
            case TagsChanged():
                self.rules.replace(self.holder.tags)
                self.runtime.audiences.forget()
                self._routing.forget()
                self._complain_of_subscriptions()
            case RequestDecided(id):
                if id in self.decided:
                    self.decided[id] = one
            case UsersCame(request, users):
                if request in self._users:
                    self._users[request] = users
            case _:
                raise AssertionError(f"nobody carries out {one}")
        return []

    def _complain_of_subscriptions(self) -> None:
        """Say which subscriptions get no more events because a tag was created or changed."""
        for pattern in {one for each in self.runtime.subscriptions for one in each.patterns}:
            try:
                self.rules.check_subscriber(pattern)
            except NoRight as error:
                self.runtime.counters.complain(f"tag {error.tag}", f"no more events: {error}")
