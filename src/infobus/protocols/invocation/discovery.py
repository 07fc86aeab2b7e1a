"""Dynamic discovery (paper 000, section 3.2): "Who's out there?" and "I am", still pure.

A `Directory` speaks for the participants of its own node, and knows those at other nodes that
somebody here has asked for. Participants are servers, but any other role works alike. A node tells
everyone when one of its participants begins, changes or ends. Every node answers a question, even
if it has no match: so the asker knows, without waiting, that it has heard from every node it can
see. An open question is sent to each newcomer, and repeated to each node that has not answered.
When a node can no longer be seen, its participants are gone, too.

Frames may be lost, doubled, late or overtaken. Ids are not reused and revisions grow, so an old
message never undoes a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from infobus.errors import BadFilter, BadFrame, BadSubject
from infobus.objects import codec
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames.invocation import IAm, Presence, ServiceMessage, Who
from infobus.subjects import check_pattern, check_subject, matches

ASK_S, ASK_S_MAX = 0.1, 2.0
"""A question that a node has not answered is put again after this; the time doubles."""
REFRESH_S = 5.0
"""A question whose answers are watched is put again, to find what was lost on the way."""
SEEN_COUNT_MAX = 100_000
"""Participants that are remembered; more are not believed."""
SEEN_OF_NODE_MAX = 1000
"""The same of one node, so that it does not shut out those of others."""
WHERE_CHARS_MAX = 4096
"""A longer filter of a question is not answered: to compile it would hold up calls."""


class Participant(Struct, frozen=True):
    """A participant, such as a server, at the node that announced it."""

    node: str
    presence: Presence

    @property
    def key(self) -> tuple[str, int]:
        """The key that distinguishes it from all others, for ever."""
        return self.node, self.presence.id


class Arrived(Struct, frozen=True):
    """A participant has appeared."""

    participant: Participant


class PresenceUpdated(Struct, frozen=True):
    """A participant has changed its description."""

    participant: Participant


class Departed(Struct, frozen=True):
    """A participant has disappeared."""

    participant: Participant


class AllAnswered(Struct, frozen=True):
    """Every node that can be seen has answered a question."""

    request: int


DirectoryEffects = list[
    ToPeer[ServiceMessage]
    | ToAll[ServiceMessage]
    | Arrived
    | PresenceUpdated
    | Departed
    | AllAnswered
    | Complain
]


class _Question(Struct):
    who: Who
    asked: dict[str, bool]  # peer -> whether it has answered
    ask_at_s: float
    wait_s: float
    is_watched: bool
    is_answered: bool = False


class Directory:
    """The participants that can be found. `alive` returns which peers can be seen now."""

    def __init__(
        self,
        name: str,
        alive: Callable[[], Collection[str]],
        load_of: Callable[[int], int] = lambda id: 0,
    ) -> None:
        self.name = name
        self.application = ""  # the name of this program, which its participants carry
        self.own: dict[int, Presence] = {}
        self.seen: dict[str, dict[int, Presence]] = {}  # node -> id -> participant
        self._gone: dict[str, set[int]] = {}  # ids that have ended: late messages are ignored
        self._alive = alive
        self._load_of = load_of
        self._next_id = 1
        self._requests = 0
        self._questions: dict[int, _Question] = {}

    # What this node's own participants do.

    def announce(self, presence: Presence) -> tuple[Presence, DirectoryEffects]:
        """A participant begins; it gets its id here."""
        presence = replace(presence, id=self._next_id, application=self.application)
        self._next_id += 1
        self.own[presence.id] = presence
        return presence, [*self._i_am([presence]), *self._here(Arrived, presence)]

    def change(self, presence: Presence) -> DirectoryEffects:
        """A participant of this node has changed its description."""
        if presence.id not in self.own:
            return []
        presence = replace(presence, revision=self.own[presence.id].revision + 1)
        self.own[presence.id] = presence
        return [*self._i_am([presence]), *self._here(PresenceUpdated, presence)]

    def withdraw(self, id: int) -> DirectoryEffects:
        """A participant of this node ends."""
        presence = self.own.pop(id, None)
        if presence is None:
            return []
        return [*self._i_am([], [id]), *self._here(Departed, presence)]

    def _i_am(self, presences: list[Presence], gone: Iterable[int] = ()) -> DirectoryEffects:
        return [ToAll(IAm(self.name, 0, self._next_id, presences, list(gone)))]

    def _here(
        self, happened: type[Arrived | PresenceUpdated | Departed], presence: Presence
    ) -> DirectoryEffects:
        if not self._is_asked_for(presence):
            return []
        return [happened(Participant(self.name, presence))]

    # Asking.

    def ask(
        self, pattern: str, role: str, now_s: float, *, where: str = "", is_watched: bool = False
    ) -> tuple[int, DirectoryEffects]:
        """Ask who is out there; `AllAnswered` follows. The question stays open until `close`.

        Raises:
            BadFilter: `where` is not a filter.
        """
        self._filter(where)
        self._requests += 1
        who = Who(self.name, self._requests, pattern, role, where)
        question = _Question(who, dict.fromkeys(self._alive(), False), 0.0, ASK_S / 2, is_watched)
        self._questions[who.request] = question
        return who.request, [*self._put(question, now_s), *self._check(question)]

    def close(self, request: int) -> list[Participant]:
        """Close a question, and return who was found.

        Participants that nobody else has asked for are forgotten.
        """
        question = self._questions.pop(request, None)
        if question is None:
            return []
        is_wanted = self._filter(question.who.where)
        found = self.found(question.who.pattern, question.who.role)
        for node, seen in self.seen.items():
            self.seen[node] = {
                id: presence for id, presence in seen.items() if self._is_asked_for(presence)
            }
        return [participant for participant in found if is_wanted(participant.presence)]

    def found(self, pattern: str, role: str = "") -> list[Participant]:
        """Return the participants that were asked for and are there, with this node's own."""
        here = {id: with_load(one, self._load_of(id)) for id, one in self.own.items()}
        return [
            Participant(node, presence)
            for node, presences in ({self.name: here} | self.seen).items()
            for presence in presences.values()
            if role in ("", presence.role) and matches(pattern, presence.subject)
        ]

    def forget(self, key: tuple[str, int]) -> DirectoryEffects:
        """A participant has turned out to be gone."""
        return self._end(*key)

    def _put(self, question: _Question, now_s: float) -> DirectoryEffects:
        question.wait_s = min(ASK_S_MAX, question.wait_s * 2)
        question.ask_at_s = now_s + question.wait_s
        silent = [name for name, has_answered in question.asked.items() if not has_answered]
        if len(silent) < len(question.asked) / 2:
            return [ToPeer(name, question.who) for name in silent]
        return [ToAll(question.who)] if silent else []

    def _check(self, question: _Question) -> DirectoryEffects:
        if question.is_answered or not all(question.asked.values()):
            return []
        question.is_answered = True
        return [AllAnswered(question.who.request)]

    # What the world does.

    def peer_up(self, name: str, now_s: float) -> DirectoryEffects:
        """A node appears: send it the open questions."""
        effects: DirectoryEffects = []
        for question in self._questions.values():
            question.asked[name] = False
            question.ask_at_s = min(question.ask_at_s, now_s + ASK_S)
            question.wait_s = ASK_S
            effects.append(ToPeer(name, question.who))
        return effects

    def peer_down(self, name: str) -> DirectoryEffects:
        """A node is gone, with all its participants."""
        effects: DirectoryEffects = []
        for presence in self.seen.pop(name, {}).values():
            effects.append(Departed(Participant(name, presence)))
        self._gone.pop(name, None)
        for question in self._questions.values():
            question.asked.pop(name, None)
            effects += self._check(question)
        return effects

    def take_who(self, who: Who) -> DirectoryEffects:
        """Answer a question with the participants of this node that match."""
        try:
            check_pattern(who.pattern)
            is_wanted = self._filter(who.where)
        except (BadSubject, BadFilter) as error:
            return [Complain(who.sender, f"asks who is out there, but how? {error}")]
        here = [
            with_load(presence, self._load_of(presence.id))
            for presence in self.own.values()
            if who.role in ("", presence.role) and matches(who.pattern, presence.subject)
        ]
        here = [presence for presence in here if is_wanted(presence)]
        return [ToPeer(who.sender, IAm(self.name, who.request, self._next_id, here))]

    def _filter(self, where: str) -> Callable[[Presence], bool]:
        if not where:
            return lambda presence: True
        if len(where) > WHERE_CHARS_MAX:
            raise BadFilter(f"a filter of more than {WHERE_CHARS_MAX} characters")
        from infobus.filters import compile  # late: seldom asked for

        wanted = compile(where)
        return lambda presence: wanted.matches(attributes_of(presence))

    def take_i_am(self, told: IAm) -> DirectoryEffects:
        """Process an answer or announcement; late ones from a node that is gone are ignored."""
        if told.sender not in self._alive():
            return []
        effects: DirectoryEffects = []
        question = self._questions.get(told.request)
        if question is not None:
            effects += self._missing(told, question)
        for presence in told.presences:
            effects += self._see(told.sender, presence)
        for id in told.gone:
            effects += self._end(told.sender, id)
        if question is not None and told.sender in question.asked:
            question.asked[told.sender] = True
            effects += self._check(question)
        return effects

    def _missing(self, told: IAm, question: _Question) -> DirectoryEffects:
        """Remove participants that an answer should have named."""
        if question.who.where:
            return []
        who, named = question.who, {presence.id for presence in told.presences}
        lost = [
            id
            for id, presence in self.seen.get(told.sender, {}).items()
            if id < told.next_id and id not in named
            if who.role in ("", presence.role) and matches(who.pattern, presence.subject)
        ]
        return [effect for id in lost for effect in self._end(told.sender, id)]

    def _see(self, node: str, presence: Presence) -> DirectoryEffects:
        try:
            check_subject(presence.subject)
        except BadSubject as error:
            return [Complain(node, f"is out there under something malformed: {error}")]
        if presence.id in self._gone.get(node, ()) or not self._is_asked_for(presence):
            return []
        found = self.seen.setdefault(node, {})
        before = found.get(presence.id)
        if before is None and len(found) >= SEEN_OF_NODE_MAX:
            return [
                Complain(node, f"says that more than {SEEN_OF_NODE_MAX} participants are there")
            ]
        if before is None and sum(map(len, self.seen.values())) >= SEEN_COUNT_MAX:
            return [Complain(node, f"more than {SEEN_COUNT_MAX} participants are out there")]
        if before is not None and before.revision >= presence.revision:
            return []
        found[presence.id] = presence
        participant = Participant(node, presence)
        return [PresenceUpdated(participant) if before else Arrived(participant)]

    def _end(self, node: str, id: int) -> DirectoryEffects:
        gone = self._gone.setdefault(node, set())
        gone.add(id)
        if len(gone) > SEEN_COUNT_MAX:
            self._gone[node] = {id}
        presence = self.seen.get(node, {}).pop(id, None)
        return [] if presence is None else [Departed(Participant(node, presence))]

    def _is_asked_for(self, presence: Presence) -> bool:
        return any(
            question.who.role in ("", presence.role)
            and matches(question.who.pattern, presence.subject)
            for question in self._questions.values()
        )

    def tick(self, now_s: float) -> DirectoryEffects:
        """Time has passed: repeat unanswered questions."""
        effects: DirectoryEffects = []
        for question in self._questions.values():
            if question.is_answered and not all(question.asked.values()):
                question.is_answered = False
            if now_s < question.ask_at_s:
                continue
            if question.is_watched and question.is_answered:
                question.asked = dict.fromkeys(question.asked, False)
                effects += self._put(question, now_s)
                question.ask_at_s = now_s + REFRESH_S
            elif not question.is_answered:
                effects += self._put(question, now_s)
        return effects


def attributes_of(presence: Presence) -> dict[str, Any]:
    """Return the description of a participant; without its own `info` if that is unreadable."""
    told: dict[str, Any] = {}
    with suppress(BadFrame):
        told |= codec.decode(0, presence.info)
    own = {"subject": presence.subject, "role": presence.role, "load": presence.load}
    own |= {"rank": presence.rank, "since": presence.since}
    return told | own | {"application": presence.application}


def with_load(presence: Presence, load: int) -> Presence:
    """Return the same participant with this load."""
    return replace(presence, load=load)
