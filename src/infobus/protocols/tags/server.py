"""A node that holds the table: it serves the programs that do not, and lists the publishers.

It proposes each request of a program to the members, and tells each program the changes that
concern it, one by one, until the program confirms them. Reading waits for no agreement, so programs
go on while members are deciding.

The list of publishers is weakly consistent (paper 003, section 4.1): each node tells its own part
to all that hold the table. A row is removed when its node has been gone for a while, or with the
first view without the member through which the node reaches the table, so that all clean up in the
same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.tags import (
    Publishes,
    PublishesKnown,
    TagDecided,
    TagMessage,
    TagOperation,
    TagOutcome,
    TagRequest,
    TagsTold,
    TagsWanted,
    TagUser,
    WhoUses,
)
from infobus.protocols.tags.table import TagTable

WHOLE_COUNT_MAX = 1_000
"""Tags up to which every node is told all of them; of more it is told those that it asks for."""
PENDING_COUNT_MAX = 1_000
"""Operations that wait for their decision at one node."""
REPEAT_S = 0.5
"""What is not confirmed is told again after this."""
KEEP_S = 10.0
"""A node that cannot be seen for this long is told nothing more, and is no publisher."""
PENDING_S = 30.0
"""An operation that nobody asks for any more is not proposed again."""


class HaveAgreed(Struct, frozen=True):
    """Have this operation agreed."""

    operation: TagOperation


class FindUsers(Struct, frozen=True):
    """Answer with these publishers of a tag, and with those who want its events."""

    question: WhoUses
    publishers: list[TagUser]


ServerEffect = ToPeer[TagMessage] | HaveAgreed | FindUsers


class _Known(Struct, kw_only=True):
    """Something about a node that may be gone for a moment only."""

    lost_at_s: float | None = None  # it cannot be seen


K = TypeVar("K", bound=_Known)


class _Holder(_Known):
    """A node that holds tags, as far as it has confirmed."""

    asked: int
    patterns: list[str]
    history: str = ""
    held: int = 0
    whole: bool = False
    told: int = 0  # the version that is on its way
    told_at_s: float = 0.0


class _Row(_Known):
    """Under which tags a node publishes."""

    version: int
    member: str  # with which it goes
    tags: list[str]


class _Pending(Struct):
    asker: str
    operation: TagOperation
    asked_at_s: float


class TagServer:
    """The side of a node that holds the table.

    `member` says what this node is called among the members, `is_seen` whether a node can be seen
    now. The table changes by the members' decisions alone; `decided` and `viewed` say that it has.
    """

    def __init__(
        self,
        name: str,
        table: TagTable,
        member: Callable[[], str],
        application_of: Callable[[str], str] = lambda node: "",
        is_seen: Callable[[str], bool] = lambda node: True,
        pending_count_max: int = PENDING_COUNT_MAX,
    ) -> None:
        self.name = name
        self.table = table
        self._member = member
        self._application_of = application_of
        self._is_seen = is_seen
        self._pending_count_max = pending_count_max
        self._holders: dict[str, _Holder] = {}
        self._pending: dict[str, _Pending] = {}
        self.rows: dict[str, _Row] = {}

    # What the members decide.

    def decided(self, now_s: float) -> list[ServerEffect]:
        """The table has changed, perhaps: answer those who asked, tell those who hold it."""
        effects: list[ServerEffect] = []
        for id, pending in list(self._pending.items()):
            outcome = self.table.result(id)
            if outcome is not None:
                del self._pending[id]
                effects.append(ToPeer(pending.asker, self._answer(id, outcome)))
        for name, holder in self._holders.items():
            effects += self._tell(name, holder, now_s)
        return effects

    def viewed(self, members: tuple[str, ...]) -> None:
        """A view is installed, in its turn: rows of those who reached the table by others go."""
        gone = [name for name, row in self.rows.items() if row.member not in members]
        for name in gone:
            del self.rows[name]

    @property
    def is_serving(self) -> bool:
        """Whether there is a table: only members have one."""
        return bool(self.table.members)

    # What the world does.

    def take(self, message: TagMessage, now_s: float) -> list[ServerEffect]:
        """Take in what a program asks."""
        match message:
            case TagsWanted():
                return self._on_wanted(message, now_s)
            case TagRequest():
                return self._on_request(message, now_s)
            case Publishes():
                return self._on_publishes(message, now_s)
            case WhoUses():
                return [FindUsers(message, self.publishers(message.name))]
        return []

    def peer_up(self, name: str, now_s: float) -> list[ServerEffect]:
        """A node can be seen: it asks by itself."""
        for one in (self._holders.get(name), self.rows.get(name)):
            if one is not None:
                one.lost_at_s = None
        return []

    def peer_down(self, name: str, now_s: float) -> list[ServerEffect]:
        """A node is gone, perhaps for a moment only."""
        for one in (self._holders.get(name), self.rows.get(name)):
            if one is not None:
                one.lost_at_s = now_s
        return []

    def tick(self, now_s: float) -> list[ServerEffect]:
        """Time has passed: tell again, propose again, forget who is gone."""
        effects: list[ServerEffect] = []
        for name, holder in self._holders.items():
            effects += self._tell(name, holder, now_s)
        _forget_lost(self._holders, now_s)
        _forget_lost(self.rows, now_s)
        for id, pending in list(self._pending.items()):
            if now_s - pending.asked_at_s >= PENDING_S:
                del self._pending[id]
        return effects

    # What can be asked.

    def publishers(self, name: str) -> list[TagUser]:
        """The nodes that have published under a tag, as far as they are known here."""
        return [
            TagUser(node, self._application_of(node))
            for node, row in self.rows.items()
            if name in row.tags
        ]

    # Helpers.

    def _on_wanted(self, wanted: TagsWanted, now_s: float) -> list[ServerEffect]:
        holder = self._holders.get(wanted.sender)
        if holder is None or holder.asked != wanted.asked or not wanted.held:
            holder = self._holders[wanted.sender] = _Holder(wanted.asked, wanted.patterns)
        holder.lost_at_s = self._lost_at_s(wanted.sender, now_s)
        if wanted.history == self.table.history:
            holder.history, holder.whole = wanted.history, wanted.whole
            # What it confirms may be older than what it has confirmed before: it was overtaken.
            holder.held = max(holder.held, wanted.held)
        else:  # a word from before, which came late, has made it go back: tell it everything
            holder.history, holder.held, holder.told = wanted.history, 0, 0
        return self._tell(wanted.sender, holder, now_s, is_asked=wanted.is_new)

    def _tell(
        self, name: str, holder: _Holder, now_s: float, *, is_asked: bool = False
    ) -> list[ServerEffect]:
        table = self.table
        if not self.is_serving or (holder.lost_at_s is not None and not is_asked):
            return []
        is_known = holder.held and holder.history == table.history
        if not is_asked:
            if is_known and holder.held >= table.version:
                return []
            if holder.told == table.version and now_s - holder.told_at_s < REPEAT_S:
                return []
        holder.told, holder.told_at_s = table.version, now_s
        changes = table.since(holder.held) if is_known else None
        if changes is None:
            holder.whole = len(table) <= WHOLE_COUNT_MAX
            since, gone = 0, list[str]()
            tags = list(table) if holder.whole else table.among(holder.patterns)
        else:
            since, (tags, gone) = holder.held, changes
            if not holder.whole:
                wanted = {row.name for row in table.among(holder.patterns)}
                tags = [row for row in tags if row.name in wanted]
        told = TagsTold(
            self.name,
            holder.asked,
            self._member(),
            table.history,
            since,
            table.version,
            holder.whole,
            tags,
            gone,
        )
        return [ToPeer(name, told, bulk=True)]

    def _on_request(self, request: TagRequest, now_s: float) -> list[ServerEffect]:
        operation = request.operation
        if not self.is_serving:
            return []  # it asks again, or another node
        known = self.table.result(operation.id)
        if known is not None:
            return [ToPeer(request.sender, self._answer(operation.id, known))]
        if operation.id not in self._pending and len(self._pending) >= self._pending_count_max:
            busy = TagOutcome(
                "full", detail=f"{self._pending_count_max} operations wait for a decision"
            )
            return [ToPeer(request.sender, self._answer(operation.id, busy))]
        # An asker without a name that outlives it is bound to this member; no other is to any.
        host = self._member() if operation.asker == request.sender else ""
        operation = replace(operation, host=host)
        self._pending[operation.id] = _Pending(request.sender, operation, now_s)
        return [HaveAgreed(operation)]

    def _answer(self, id: str, outcome: TagOutcome) -> TagDecided:
        return TagDecided(self.name, id, outcome, self.table.version)

    def _lost_at_s(self, name: str, now_s: float) -> float | None:
        """For what a node says: late words of one that has died must not outlive it for ever."""
        return None if name == self.name or self._is_seen(name) else now_s

    def _on_publishes(self, told: Publishes, now_s: float) -> list[ServerEffect]:
        if told.member not in self.table.members:
            return []  # not one (yet): it is told again, perhaps by another way
        row = self.rows.get(told.sender)
        if row is None or row.version <= told.version:
            lost_at_s = self._lost_at_s(told.sender, now_s)
            self.rows[told.sender] = _Row(told.version, told.member, told.tags, lost_at_s=lost_at_s)
        return [ToPeer(told.sender, PublishesKnown(self.name, told.version))]


def _forget_lost(known: dict[str, K], now_s: float) -> None:
    for name, one in list(known.items()):
        if one.lost_at_s is not None and now_s - one.lost_at_s >= KEEP_S:
            del known[name]
