"""A program's side of tags: it holds those that concern it, and asks a node that has the table.

Its copy is as recent as the last message from that node. If there is no node to ask, it keeps using
the copy that it has. It repeats a request until there is an answer, and asks another node if the
first one falls silent. Changes of a table come in order. Another node may be a little behind; the
program then waits for it to catch up, unless its table has a different history.
"""

from __future__ import annotations

from msgspec import Struct

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.tags import (
    PUBLISHED_COUNT_MAX,
    WANTED_COUNT_MAX,
    Publishes,
    PublishesKnown,
    TagDecided,
    TagMessage,
    TagOperation,
    TagOutcome,
    TagRequest,
    TagRow,
    TagsTold,
    TagsWanted,
    UsedBy,
    WhoUses,
)
from infobus.subjects import covers

REPEAT_S = 0.5
"""What is not answered is asked again after this."""
SILENT_S = 2.0
"""A node that has not answered for so long is left for another one, if there is one."""
REFRESH_S = 30.0
"""What a node was told is told again after this, in case it was forgotten there."""
SERVERS_COUNT_MAX = 1_000
"""Nodes with the table that are remembered."""


class TagsChanged(Struct, frozen=True):
    """Other tags are held than before."""


class RequestDecided(Struct, frozen=True):
    """A request was decided; the tags as of `upto` show it."""

    id: str
    outcome: TagOutcome
    upto: int


class UsersCame(Struct, frozen=True):
    """The answer to a question about the users of a tag."""

    request: int
    users: UsedBy


HolderEffect = ToPeer[TagMessage] | TagsChanged | RequestDecided | UsersCame


class _Asked(Struct):
    """A question that has no answer yet."""

    message: TagRequest | WhoUses
    asked_at_s: float


class TagHolder:
    """The tags that a node holds, and what it has asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tags: dict[str, TagRow] = {}
        self.servers: dict[str, None] = {}  # the nodes that show that they have the table
        self.server = ""  # the one that is asked
        self.history = ""
        self.held = 0  # the version of the table as of which `tags` are; 0: not known yet
        self.is_whole = False
        self._patterns: list[str] = []
        self._asked = 0  # counts their changes
        self._asked_at_s = float("-inf")
        self._asked_since_s: float | None = None  # the first question that has no answer
        self._member = ""  # what the server is called among the members
        self._open: dict[str | int, _Asked] = {}
        self._requests = 0
        self._published: dict[str, None] = {}
        self._rows_version = 0
        self._rows_known: dict[str, int] = {}  # by server
        self._rows_told_s: dict[str, float] = {}

    # What this node does.

    def is_covered(self, pattern: str) -> bool:
        """Whether the tags that overlap a pattern are held."""
        wanted = self.is_whole or any(covers(one, pattern) for one in self._patterns)
        return wanted and self.held > 0

    def want(self, patterns: list[str], now_s: float) -> list[HolderEffect]:
        """Hold the tags that overlap these patterns, too."""
        new = [one for one in patterns if not any(covers(held, one) for held in self._patterns)]
        if not new:
            return []
        self._patterns = [*self._patterns, *new]
        if len(self._patterns) > WANTED_COUNT_MAX:
            self._patterns = [">"]
        self._asked += 1
        if self.is_whole:
            return []
        self.held = 0
        return self._ask(now_s)

    def request(self, operation: TagOperation, now_s: float) -> list[HolderEffect]:
        """Have something agreed; `RequestDecided` follows, unless it is forgotten before."""
        return self._put(operation.id, TagRequest(self.name, operation), now_s)

    def who_uses(self, name: str, now_s: float) -> tuple[int, list[HolderEffect]]:
        """Ask who uses a tag; `UsersCame` follows."""
        self._requests += 1
        question = WhoUses(self.name, self._requests, name)
        return self._requests, self._put(self._requests, question, now_s)

    def forget(self, key: str | int) -> None:
        """Nobody waits for this answer any more."""
        self._open.pop(key, None)

    def publishes(self, name: str, now_s: float) -> list[HolderEffect]:
        """This node has begun to publish under a tag."""
        if name in self._published or len(self._published) >= PUBLISHED_COUNT_MAX:
            return []
        self._published[name] = None
        self._rows_version += 1
        return self._tell_rows(now_s)

    # What the world does.

    def server_up(self, server: str, now_s: float) -> list[HolderEffect]:
        """A node shows that it has the table."""
        if len(self.servers) >= SERVERS_COUNT_MAX:
            return []
        self.servers[server] = None
        return self._tell_rows(now_s) if self.server else self._choose(now_s)

    def server_down(self, server: str, now_s: float) -> list[HolderEffect]:
        """A node no longer has the table, or is gone."""
        self.servers.pop(server, None)
        self._rows_known.pop(server, None)
        self._rows_told_s.pop(server, None)
        return self._choose(now_s) if server == self.server else []

    def peer_up(self, name: str, now_s: float) -> list[HolderEffect]:
        """Nodes with the table show that by a token of its own."""
        return []

    def peer_down(self, name: str, now_s: float) -> list[HolderEffect]:
        """The same."""
        return []

    def take(self, message: TagMessage, now_s: float) -> list[HolderEffect]:
        """Take in an answer."""
        match message:
            case TagsTold(sender) if sender == self.server:
                return self._on_told(message, now_s)
            case TagDecided(_, id, outcome, upto):
                self._heard(message.sender)
                return [RequestDecided(id, outcome, upto)] if self._open.pop(id, None) else []
            case UsedBy(_, request):
                self._heard(message.sender)
                return [UsersCame(request, message)] if self._open.pop(request, None) else []
            case PublishesKnown(sender, version):
                if sender in self.servers:
                    known = self._rows_known.get(sender, 0)
                    self._rows_known[sender] = max(known, min(version, self._rows_version))
        return []

    def tick(self, now_s: float) -> list[HolderEffect]:
        """Time has passed: ask again, or ask another."""
        if not self.server:
            return []
        since_s = self._asked_since_s
        if since_s is not None and now_s - since_s >= SILENT_S and len(self.servers) > 1:
            return self._choose(now_s)
        effects: list[HolderEffect] = []
        if now_s - self._asked_at_s >= (REFRESH_S if self._is_served else REPEAT_S):
            effects += self._ask(now_s)
        for asked in self._open.values():
            if now_s - asked.asked_at_s >= REPEAT_S:
                asked.asked_at_s = now_s
                effects.append(ToPeer(self.server, asked.message))
        return effects + self._tell_rows(now_s)

    # Helpers.

    def _choose(self, now_s: float) -> list[HolderEffect]:
        """Ask another node: this one, one of this host, or the next one."""
        others = [one for one in self.servers if one != self.server] or [*self.servers]
        others.sort(key=lambda one: (one != self.name, _host(one) != _host(self.name)))
        self.server = next(iter(others), "")
        # The one that was left comes last when this one is left, too.
        if self.server:
            self.servers[self.server] = self.servers.pop(self.server)
        self._member = ""
        self._asked_since_s = None
        if not self.server:
            return []
        for asked in self._open.values():
            asked.asked_at_s = now_s
        effects: list[HolderEffect] = [ToPeer(self.server, a.message) for a in self._open.values()]
        if self._open:
            self._asked_since_s = now_s
        return [*self._ask(now_s), *effects]

    def _ask(self, now_s: float) -> list[HolderEffect]:
        if not self.server:
            return []
        self._asked_at_s = now_s
        if not self._is_served and self._asked_since_s is None:
            self._asked_since_s = now_s
        held = (self.history, self.held, self.is_whole)
        wanted = TagsWanted(self.name, self._asked, self._patterns, *held, not self._member)
        return [ToPeer(self.server, wanted)]

    @property
    def _is_served(self) -> bool:
        return self.held > 0 and self._member != ""

    def _put(
        self, key: str | int, message: TagRequest | WhoUses, now_s: float
    ) -> list[HolderEffect]:
        self._open[key] = _Asked(message, now_s)
        if not self.server:
            return []
        if self._asked_since_s is None:
            self._asked_since_s = now_s
        return [ToPeer(self.server, message)]

    def _heard(self, sender: str) -> None:
        if sender == self.server:
            self._asked_since_s = None

    def _on_told(self, told: TagsTold, now_s: float) -> list[HolderEffect]:
        self._heard(told.sender)
        if self._member != told.member:
            self._member = told.member
            self._rows_version += 1  # this node is reached by another member
        if told.history == self.history and told.upto < self.held:
            return self._tell_rows(now_s)  # it is behind: what is held is newer
        is_other = told.history != self.history or told.since > self.held
        if (told.since and is_other) or not (told.whole or told.asked == self._asked):
            self.held = 0
            return self._ask(now_s)
        before = self.tags
        if told.since:
            gone = dict.fromkeys(told.gone)
            changed = {row.name: row for row in told.tags}
            self.tags = {n: row for n, row in before.items() if n not in gone} | changed
        else:
            self.tags = {row.name: row for row in told.tags}
            self.is_whole = told.whole
        self.history, self.held = told.history, told.upto
        effects: list[HolderEffect] = self._ask(now_s)  # which confirms it
        if self.tags != before:
            effects.append(TagsChanged())
        return [*effects, *self._tell_rows(now_s)]

    def _tell_rows(self, now_s: float) -> list[HolderEffect]:
        """Tell every node with the table under which tags this one publishes."""
        if not self._published or not self._member:
            return []
        told = Publishes(self.name, self._rows_version, self._member, [*self._published])
        effects: list[HolderEffect] = []
        for server in self.servers:
            is_known = self._rows_known.get(server, 0) == self._rows_version
            wait_s = REFRESH_S if is_known else REPEAT_S
            if now_s - self._rows_told_s.get(server, float("-inf")) >= wait_s:
                self._rows_told_s[server] = now_s
                effects.append(ToPeer(server, told))
        return effects


def _host(node: str) -> str:
    return node.rsplit("-", 2)[0]
