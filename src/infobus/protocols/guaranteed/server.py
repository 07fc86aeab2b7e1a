"""Guaranteed delivery, serving half: the events of a ledger reach every durable consumer.

A publisher stores a guaranteed event in its *ledger* before it sends it. Numbers (1, 2, 3, ...)
belong to the ledger, whichever node serves it. A *durable consumer* asks each ledger for the events
that follow its position (see `consumer`); a `LedgerServer` answers for all ledgers of one node. It
keeps no copy of anything: a question says where to continue, so a repeated question is answered
again, a late one does no harm, and another node can take the ledger over between two questions.

* A question that finds nothing waits here until something is committed.
* An answer never skips an event that the consumer is owed: it names the numbers that are no
  longer stored. A consumer new to a ledger starts at the first event since its registration.
  The ledger notes that position when the consumer first asks, and from then on no clock matters.
  It also knows all who are registered in its own home before anything more is kept there.
* The ledger notes what a consumer has settled, and may then delete it. It believes only the one
  node that uses the name, and never beyond what was written.

Time comes in as `now_s`; ledgers are read through `ledger_port.Ledger`; work goes out as effects. A
call does a bounded amount of work; while `has_work`, call `work`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from infobus.errors import BadSubject, BusError
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames.guaranteed import (
    BEYOND,
    IN_USE,
    NOT_SERVED,
    TOO_MANY,
    UNKNOWN,
    Durable,
    Entry,
    Fetch,
    GuaranteedMessage,
    Kept,
    Ledgers,
    NameRefused,
)
from infobus.protocols.guaranteed.ledger_port import (
    ReadableLedger,
    ReadableRecord,
    entry,
    types_of,
    wanting,
)


class LedgerFailed(Struct, frozen=True):
    """The ledger could not be read and is no longer served: report it, and close it."""

    ledger: str
    error: BusError


ServerEffects = list[ToPeer[GuaranteedMessage] | ToAll[GuaranteedMessage] | Complain | LedgerFailed]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTerms:
    """The numbers of the serving half."""

    lease_s: float = 15.0  # of a name; several times longer than consumers are silent
    skip_s: float = 5.0  # a consumer for which there is nothing learns how far it may advance
    slice_count: int = 256  # records looked at in one go for one question
    slice_bytes: int = 1024 * 1024
    consumers_count_max: int = 10_000  # known to a server, and to one ledger
    names_count_max: int = 100  # that one node uses


@dataclass(slots=True)
class _Question:
    """The last `Fetch` of a consumer about one ledger."""

    after: int
    scanned: int  # up to here there is nothing for the consumer
    credit_count: int
    credit_bytes: int
    skip_at_s: float
    is_open: bool = True  # not answered yet
    types: set[int] = field(default_factory=set)  # whose descriptors went with the answer


@dataclass(slots=True)
class _Session:
    """A durable name in use."""

    node: str
    number: int
    registered_at: float
    patterns: Sequence[str]
    wants: Callable[[ReadableRecord], bool]
    heard_at_s: float
    has_asked: bool = False  # until then, no ledger notes the name
    starts: dict[str, int] = field(default_factory=dict)  # where it begins in ledgers new to it
    questions: dict[str, _Question] = field(default_factory=dict)  # by ledger
    types: set[int] = field(default_factory=set)  # whose descriptors the consumer has


@dataclass(slots=True)
class _Served:
    """A ledger that this node serves."""

    ledger: ReadableLedger
    last: int  # the last number that is safe on disk
    positions: dict[str, int]  # of every consumer that the ledger knows
    waiting: dict[str, None] = field(default_factory=dict)  # consumers with an open question
    slice: tuple[int, Sequence[tuple[int, ReadableRecord]]] | None = (
        None  # read last, and after what
    )


@dataclass(kw_only=True)
class LedgerServer:
    """The serving half; one per node, also while it has no ledger.

    Attributes:
        decode: Makes the object of a record, for filters. If it raises, the record is sent.
        describe: The descriptors of types that are known.
        may_want: Whether a node may use a pattern now; None: every node may use any.
        may_have: Whether a node may have the events of a subject now; None as above.
    """

    name: str
    decode: Callable[[ReadableRecord], object]
    describe: Callable[[Iterable[int]], list[bytes]]
    may_want: Callable[[str, str], bool] | None = None
    may_have: Callable[[str, str], bool] | None = None
    terms: ServerTerms = field(default_factory=ServerTerms)
    ledgers: dict[str, _Served] = field(default_factory=dict)
    sessions: dict[str, _Session] = field(default_factory=dict)  # by durable name
    _due: dict[tuple[str, str], None] = field(default_factory=dict)  # (name, ledger), in turn

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._due)

    def is_awaited(self, id: str) -> bool:
        """Return whether a consumer waits for the ledger's next commit. Any thread may ask."""
        served = self.ledgers.get(id)
        return served is not None and bool(served.waiting)

    def is_wanted(self, id: str) -> bool:
        """Return whether a consumer in use lacks something in a ledger of this node."""
        served = self.ledgers[id]
        return self.is_lacking(served.last, served.positions)

    def is_unsettled(self, id: str) -> bool:
        """Return whether a consumer that a ledger knows, in use or not, lacks something of it."""
        served = self.ledgers[id]
        return any(position < served.last for position in served.positions.values())

    def is_lacking(self, last: int, positions: Mapping[str, int]) -> bool:
        """Return whether a consumer in use lacks something in a ledger that ends at `last`."""
        has_room = len(positions) < self.terms.consumers_count_max
        behind = -1 if has_room else last
        return any(positions.get(name, behind) < last for name in self.sessions)

    # What the node does.

    def opened(
        self, id: str, ledger: ReadableLedger, last: int, positions: Mapping[str, int], now_s: float
    ) -> ServerEffects:
        """This node owns the ledger now; `last` is its last number (0: none)."""
        served = self.ledgers[id] = _Served(ledger, last, dict(positions))
        effects: ServerEffects = [ToAll(Ledgers(self.name, [id]))]
        try:
            for name, session in self.sessions.items():
                self._introduce(served, id, name, session)
        except BusError as error:
            effects = [*self.closed(id), LedgerFailed(id, error)]
        return effects

    def registered(self, since: Mapping[str, float]) -> ServerEffects:
        """Consumers are registered, connected or not: what is kept from now on is for them."""
        failed: ServerEffects = []
        for id, served in list(self.ledgers.items()):
            try:
                for name, registered_at in since.items():
                    self._meet(served, name, registered_at)
            except BusError as error:
                failed += [*self.closed(id), LedgerFailed(id, error)]
        return failed

    def closed(self, id: str) -> ServerEffects:
        """This node no longer owns the ledger; nodes that asked need not wait for an answer."""
        self.ledgers.pop(id, None)
        effects: ServerEffects = []
        for name, session in self.sessions.items():
            session.starts.pop(id, None)
            self._due.pop((name, id), None)
            if session.questions.pop(id, None) is not None:
                refused = NameRefused(self.name, name, session.number, id, NOT_SERVED)
                effects.append(ToPeer(session.node, refused))
        return effects

    def committed(self, id: str, last: int, now_s: float) -> ServerEffects:
        """Everything up to `last` is safe on disk."""
        served = self.ledgers[id]
        if last <= served.last:
            return []
        served.last = last
        self._due.update(((name, id), None) for name in served.waiting)
        return self.work(now_s)

    # What the world does.

    def peer_down(self, node: str) -> None:
        """A node can no longer be seen: the names it used are free."""
        for name in [name for name, s in self.sessions.items() if s.node == node]:
            self._end(name)

    def take(self, message: GuaranteedMessage, now_s: float) -> ServerEffects:
        """Process a message; messages for consumers are ignored."""
        match message:
            case Durable():
                return self._on_durable(message, now_s)
            case Fetch():
                return self._on_fetch(message, now_s) + self.work(now_s)
        return []

    def tick(self, now_s: float) -> ServerEffects:
        """Time has passed: release unused names, and tell consumers how far they may advance."""
        for name, session in list(self.sessions.items()):
            if now_s - session.heard_at_s >= self.terms.lease_s:
                self._end(name)
        for id, served in self.ledgers.items():
            for name in served.waiting:
                question = self.sessions[name].questions[id]
                if question.scanned > question.after and now_s >= question.skip_at_s:
                    self._due[name, id] = None
        return self.work(now_s)

    def work(self, now_s: float) -> ServerEffects:
        """Continue with every question that can be answered, each by one slice, in turn."""
        effects: ServerEffects = []
        turn, self._due = self._due, {}
        for name, id in turn:
            if id in self.ledgers and name in self.sessions:  # else it has just ended
                try:
                    effects += self._answer(name, id, now_s)
                except BusError as error:
                    effects += [*self.closed(id), LedgerFailed(id, error)]
        for served in self.ledgers.values():
            served.slice = None
        return effects

    # Messages.

    def _on_durable(self, told: Durable, now_s: float) -> ServerEffects:
        session = self._holder(told.name, now_s)
        if session is not None and session.node != told.sender:
            if not told.patterns:
                return []
            # The later life of a home holds the lock of its file, so the earlier one has ended.
            if not told.is_of_home(session.registered_at) or told.session <= session.number:
                return [_refusal(self.name, told, "", IN_USE, session.node)]
        if session is not None and told.session < session.number:
            return []  # late
        if not told.patterns:
            if session is not None and told.session == session.number:
                self._end(told.name)
            return []
        if session is None or told.session > session.number:
            if session is None and not self._has_room_for(told.sender):
                return [_refusal(self.name, told, "", TOO_MANY)]
            try:
                wants = wanting(told, self.decode, self.may_have)
            except BadSubject as error:
                return [Complain(told.sender, f"wants something malformed: {error}")]
            self._end(told.name)
            session = _Session(
                told.sender, told.session, told.registered_at, told.patterns, wants, now_s
            )
            self.sessions[told.name] = session
        session.heard_at_s = now_s
        failed: ServerEffects = []
        for id, served in list(self.ledgers.items()):
            try:
                self._introduce(served, id, told.name, session)
            except BusError as error:
                failed += [*self.closed(id), LedgerFailed(id, error)]
        if not self.ledgers:
            return failed
        return [*failed, ToPeer(told.sender, Ledgers(self.name, list(self.ledgers)))]

    def _on_fetch(self, fetch: Fetch, now_s: float) -> ServerEffects:
        name, id = fetch.name, fetch.ledger
        session = self._holder(name, now_s)
        if session is not None and session.node != fetch.sender:
            return [_refusal(self.name, fetch, id, IN_USE, session.node)]
        if session is None or fetch.session > session.number:
            return [_refusal(self.name, fetch, id, UNKNOWN)]
        if fetch.session < session.number:
            return []  # late
        session.heard_at_s = now_s
        session.has_asked = True
        served = self.ledgers.get(id)
        if served is None:
            return [_refusal(self.name, fetch, id, NOT_SERVED)]
        if not self._note(served, id, name, session):
            return [_refusal(self.name, fetch, id, TOO_MANY)]
        if not fetch.settled <= fetch.after <= served.last:
            what = f"ledger {id} ends at {served.last}, durable consumer {name!r} claims "
            what += f"to have come to {fetch.after} and to have settled {fetch.settled}"
            complaint = Complain(fetch.sender, what)
            return [complaint, _refusal(self.name, fetch, id, BEYOND, what)]
        question = session.questions.get(id)
        if question is not None and fetch.after < question.after:
            return []  # late
        if fetch.settled > served.positions[name]:
            served.positions[name] = fetch.settled
            served.ledger.settle(name, fetch.settled)
        self._note_question(session, served, fetch, now_s)
        return []

    def _note_question(
        self, session: _Session, served: _Served, fetch: Fetch, now_s: float
    ) -> None:
        name, id = fetch.name, fetch.ledger
        count = min(max(fetch.credit_count, 1), self.terms.slice_count)
        size = min(fetch.credit_bytes, self.terms.slice_bytes)
        question = session.questions.get(id)
        if question is not None and question.is_open and fetch.after == question.after:
            question.credit_count, question.credit_bytes = count, size  # asked again meanwhile
            return
        if question is not None and fetch.after > question.after:
            session.types |= question.types  # so the answer has arrived
        is_new = fetch.after < 0
        start = served.positions[name] if is_new else fetch.after
        # A consumer without a position gets one soon: until then it depends on the ledger.
        skip_at_s = now_s if is_new else now_s + self.terms.skip_s
        session.questions[id] = _Question(fetch.after, start, count, size, skip_at_s)
        served.waiting[name] = None
        self._due[name, id] = None

    # Answers.

    def _answer(self, name: str, id: str, now_s: float) -> ServerEffects:
        """Read one slice of the ledger; answer if it holds something, or if it is time to."""
        session, served = self.sessions[name], self.ledgers[id]
        may = self.may_want
        if may is not None and not all(may(session.node, one) for one in session.patterns):
            self._end(name)  # its place stays: it may be allowed again
            return []
        question, last = session.questions[id], served.last
        entries: list[Entry] = []
        gone: tuple[int, int] | None = None
        size = 0
        records: Sequence[tuple[int, ReadableRecord]] = ()
        if question.scanned < last:
            records = self._read(served, question.scanned)
            if not records:  # everything up to the end is no longer stored
                gone, question.scanned = (question.scanned + 1, last), last
        for number, record in records:
            if number > question.scanned + 1:
                if entries or gone:
                    break  # the next answer begins with this hole
                gone = (question.scanned + 1, number - 1)
                question.scanned = number - 1
            if session.wants(record):
                size += len(record.body) + len(record.subject)
                if entries and size > question.credit_bytes:
                    break
                entries.append(entry(number, record))
            question.scanned = number
            if len(entries) >= question.credit_count:
                break
        if not (entries or gone):
            if question.scanned < last:
                self._due[name, id] = None
                return []
            if question.scanned == question.after or now_s < question.skip_at_s:
                return []  # the question waits
        question.is_open = False
        served.waiting.pop(name, None)
        question.types = types_of(entries) - session.types
        kept = Kept(
            self.name,
            name,
            session.number,
            id,
            question.after,
            question.scanned,
            entries,
            gone,
            self.describe(sorted(question.types)) if question.types else [],
        )
        return [ToPeer(session.node, kept, bulk=True)]

    def _read(self, served: _Served, after: int) -> Sequence[tuple[int, ReadableRecord]]:
        """Read a slice of the ledger. Consumers at the same position share one read."""
        if served.slice is None or served.slice[0] != after:
            found = served.ledger.read(after, self.terms.slice_count, self.terms.slice_bytes)
            served.slice = after, [one for one in found if one[0] <= served.last]
        return served.slice[1]

    # Helpers.

    def _holder(self, name: str, now_s: float) -> _Session | None:
        """Return the session that uses the name, unless it has been silent for too long."""
        session = self.sessions.get(name)
        if session is not None and now_s - session.heard_at_s >= self.terms.lease_s:
            self._end(name)
            return None
        return session

    def _end(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        if session is not None:
            for id in session.questions:
                self.ledgers[id].waiting.pop(name, None)
                self._due.pop((name, id), None)

    def _has_room_for(self, node: str) -> bool:
        """Return whether a node may use one more name; one that never asked makes room for it."""
        if sum(s.node == node for s in self.sessions.values()) >= self.terms.names_count_max:
            return False
        if len(self.sessions) >= self.terms.consumers_count_max:
            silent = next((name for name, s in self.sessions.items() if not s.has_asked), None)
            if silent is None:
                return False
            self._end(silent)
        return True

    def _introduce(self, served: _Served, id: str, name: str, session: _Session) -> None:
        """Find out where a new consumer begins. The ledger notes it when the consumer asks."""
        if name not in served.positions and id not in session.starts:
            start = served.ledger.first_since(session.registered_at) - 1
            session.starts[id] = min(max(start, 0), served.last)

    def _note(self, served: _Served, id: str, name: str, session: _Session) -> bool:
        """Let the ledger know a consumer that asks; False if it knows too many."""
        if name in served.positions:
            return True
        if len(served.positions) >= self.terms.consumers_count_max:
            return False
        self._introduce(served, id, name, session)
        served.positions[name] = session.starts.pop(id)
        served.ledger.settle(name, served.positions[name])
        return True

    def _meet(self, served: _Served, name: str, registered_at: float) -> None:
        """Let the ledger know a consumer of its own home, and note where it begins."""
        if name not in served.positions and len(served.positions) < self.terms.consumers_count_max:
            start = served.ledger.first_since(registered_at) - 1
            served.positions[name] = min(max(start, 0), served.last)
            served.ledger.settle(name, served.positions[name])


def _refusal(
    me: str, asked: Durable | Fetch, ledger: str, why: str, detail: str = ""
) -> ToPeer[NameRefused]:
    return ToPeer(asked.sender, NameRefused(me, asked.name, asked.session, ledger, why, detail))
