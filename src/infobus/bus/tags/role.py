"""The role of a node that holds the table of tags: it helps to change it, and serves programs.

The members agree on operations, which change `TagRole.table`. The owner of this role passes the
table to its member, tells the role the name of that member, and has the members decide the
operations that the role proposes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from infobus.bus.runtime.registration import Background, Part
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.tags.driver import SERVER_KEY, TagDriver
from infobus.engines.base import Declaration
from infobus.protocols.effects import ToPeer
from infobus.protocols.frames import tags as wire
from infobus.protocols.frames.tags import (
    USERS_COUNT_MAX,
    TagMessage,
    TagUser,
    UsedBy,
)
from infobus.protocols.tags.server import FindUsers, HaveAgreed, ServerEffect, TagServer
from infobus.protocols.tags.table import TagTable
from infobus.subjects import overlaps

TAGS = (60, 62, 64, 66)  # what programs ask

ProposeOperation = Callable[[str, bytes], None]
"""Has an operation agreed; the id is that of the request, and may come again."""


class SharedTable:
    """The table between the members' sequence, which changes it, and the node, which reads it."""

    def __init__(self) -> None:
        self.table = TagTable()
        self.lock = threading.Lock()
        self.server: TagServer | None = None
        self.on_change: Callable[[], None] = lambda: None

    def apply(self, slot: int, operation: bytes) -> bytes:
        """An operation was decided."""
        with self.lock:
            result = self.table.apply(slot, operation)
        self.on_change()
        return result

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        """A view was decided."""
        with self.lock:
            self.table.view(slot, members)
            if self.server is not None:
                self.server.viewed(members)
        self.on_change()

    def snapshot(self) -> bytes:
        """The whole state."""
        with self.lock:
            return self.table.snapshot()

    def restore(self, state: bytes) -> None:
        """Become the table that this was a snapshot of."""
        with self.lock:
            self.table.restore(state)
        self.on_change()


class TagRole:
    """A node's part as one that holds the table. Made by `bus.tags.hold()`."""

    def __init__(self, runtime: Runtime, driver: TagDriver) -> None:
        self.table = SharedTable()
        self._runtime = runtime
        self._driver = driver
        self._member: Callable[[], str] = lambda: ""
        self._propose: ProposeOperation = lambda id, operation: None
        self._token: Declaration | None = None
        self._is_closed = False
        self.server = TagServer(
            runtime.name, self.table.table, lambda: self._member(), self._named, self._is_seen
        )
        self._strand = Background(
            runtime, f"infobus-{runtime.name}-tags", wire.decode, lambda: None
        )
        self._part = Part("tags", self, self._do)
        self._strand.parts[self._part] = None

    def begin(self, member: Callable[[], str], propose: ProposeOperation) -> None:
        """Serve programs from now on, whenever this node is a member.

        Args:
            member: What it is called among the members, such as `oak#2`.
            propose: Has an operation agreed. It must not wait.
        """
        self._member, self._propose = member, propose
        self.table.server = self.server
        self._driver.to_own_table = lambda message: self._strand.step(
            self._part, lambda now_s: self.take(message, now_s)
        )
        self._runtime.register(self._strand, TAGS)
        self.table.on_change = lambda: self._strand.step(self._part, self._decided)
        self.table.on_change()

    def close(self) -> None:
        """Serve nobody any more."""
        self._is_closed = True
        self.table.on_change = lambda: None
        self._strand.call(self._show, 1.0)
        self._strand.stop(1.0)

    # The machine: that of the server, under the lock that the table needs.

    def take(self, message: TagMessage, now_s: float) -> list[ServerEffect]:
        """A program asks something."""
        guard = self._runtime.guard
        if isinstance(message, wire.TagRequest) and guard is not None:
            asked, sender = message.operation, message.sender
            if not guard.accepts(sender, "tag", asked.name):
                self._runtime.counters.denied += 1
                outcome = wire.TagOutcome(
                    "not allowed", detail=guard.refusal(sender, "tag", asked.name)[0]
                )
                refused = wire.TagDecided(self._runtime.name, asked.id, outcome, 0)
                return self._outward([ToPeer(sender, refused)])
        with self.table.lock:
            return self._outward(self.server.take(message, now_s))

    def peer_up(self, name: str, now_s: float) -> list[ServerEffect]:
        """A node can be seen."""
        with self.table.lock:
            return self.server.peer_up(name, now_s)

    def peer_down(self, name: str, now_s: float) -> list[ServerEffect]:
        """A node can no longer be seen."""
        with self.table.lock:
            return self.server.peer_down(name, now_s)

    def tick(self, now_s: float) -> list[ServerEffect]:
        """Time has passed."""
        with self.table.lock:
            return self._outward(self.server.tick(now_s))

    def _decided(self, now_s: float) -> list[ServerEffect]:
        """Something was decided."""
        with self.table.lock:
            effects = self.server.decided(now_s)
        self._show()
        return self._outward(effects)

    def _outward(self, effects: list[ServerEffect]) -> list[ServerEffect]:
        outward: list[ServerEffect] = []
        for one in effects:
            if isinstance(one, ToPeer) and one.peer == self._runtime.name:
                self._driver.hear(one.message)
            else:
                outward.append(one)
        return outward

    def _show(self) -> None:
        """Show, or no longer show, that this node has the table."""
        is_shown = self.server.is_serving and not self._is_closed and not self._runtime.is_closed
        if is_shown and self._token is None:
            self._token = self._runtime.engine.announce(f"{SERVER_KEY}{self._runtime.name}")
        elif not is_shown and self._token is not None:
            self._token.undeclare()
            self._token = None
        else:
            return
        self._driver.see_server(self._runtime.name, is_shown)

    # What only this role wants done.

    def _do(self, one: Any) -> Sequence[Any]:
        match one:
            case HaveAgreed(operation):
                # The member is part of the id: by another one it is another request.
                id = f"{operation.id}/{operation.host}"
                self._propose(id, msgspec.msgpack.encode(operation))
            case FindUsers(question, publishers):
                users = self._subscribers(question.name)
                answer = UsedBy(
                    self._runtime.name,
                    question.request,
                    sorted(publishers)[:USERS_COUNT_MAX],
                    sorted(users)[:USERS_COUNT_MAX],
                )
                return self._outward([ToPeer(question.sender, answer, bulk=True)])
            case _:
                raise AssertionError(f"nobody carries out {one}")
        return []

    def _subscribers(self, name: str) -> list[TagUser]:
        """The nodes whose rows overlap a tag: as far as their rows have come here."""
        node = self._runtime.node
        with self._runtime.lock:
            wanting = [
                peer
                for peer, record in node.rows.records.items()
                if any(overlaps(one, name) for one in (*record.rows, *record.let_go))
            ]
            if any(
                overlaps(one, name) for each in self._runtime.subscriptions for one in each.told
            ):
                wanting.append(node.name)
        return [TagUser(one, self._named(one)) for one in wanting]

    def _is_seen(self, name: str) -> bool:
        peer = self._runtime.node.peers.get(name)
        return peer is not None and peer.alive

    def _named(self, name: str) -> str:
        if name == self._runtime.name:
            return self._runtime.node.application
        peer = self._runtime.node.peers.get(name)
        return "" if peer is None else peer.application
