"""The table of tags: what the members agree on, operation by operation.

A tag is a subject or `subject.>`, with a creator, a declared type and rights. Requests come as
operations, in an order that all members share; so all tables are equal, slot by slot.

- A name is created once. If two programs try, the second is told who was first. Its creator may
  create it again with the same arguments, which changes nothing: programs do that when they start.
- Only the creator can change or delete a tag. An operator may delete it by force.
- Of several tags that match a subject, only the longest governs it. So nobody may create a tag
  within `subject.>` of somebody else. But you can create a tag around the tags of others: it
  governs the subjects that theirs do not.
- A creator is an application, by its name. If that has no name, it is the node, which will never
  come back: such a tag goes with the first view without the member through which it was created.
- A request that comes again (with the same id) has the same outcome again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from infobus.errors import BadSubject
from infobus.protocols.frames.tags import (
    RequestId,
    TagOperation,
    TagOutcome,
    TagRow,
    TagTerms,
)
from infobus.protocols.tags.rights import is_name_pattern
from infobus.subjects import check_publishable, overlaps

TAGS_COUNT_MAX = 10_000
"""Tags of a bus."""
TAGS_BYTES_MAX = 16 * 1024 * 1024
"""The size of all of them."""
RESULTS_COUNT_MAX = 1_000
"""Outcomes that are remembered, for requests that come again."""
GONE_COUNT_MAX = 1_000
"""Deletions that are remembered, for nodes that hold a part of the table."""

_operations = msgspec.msgpack.Decoder(TagOperation)
_encode = msgspec.msgpack.encode
_REST = ".>"


class _State(Struct, array_like=True):
    """The whole state, in an order that only the decisions determine."""

    members: tuple[str, ...] = ()
    history: str = ""  # the id of the first operation: other sequences have others
    version: int = 1  # grows with each change of a tag: a slot may have several
    tags: dict[str, TagRow] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)  # deleted names, and by which version
    forgotten: int = 0  # the version of the last deletion that is not remembered
    results: dict[RequestId, TagOutcome] = field(default_factory=dict)


_states = msgspec.msgpack.Decoder(_State)


class TagTable:
    """The tags, as of the last decision. An `AgreedTable`, for any agreed sequence.

    All members must have the same bounds: what is decided here is decided alike everywhere.
    """

    def __init__(
        self,
        *,
        tags_count_max: int = TAGS_COUNT_MAX,
        tags_bytes_max: int = TAGS_BYTES_MAX,
        results_count_max: int = RESULTS_COUNT_MAX,
        gone_count_max: int = GONE_COUNT_MAX,
    ) -> None:
        self._tags_count_max = tags_count_max
        self._tags_bytes_max = tags_bytes_max
        self._results_count_max = results_count_max
        self._gone_count_max = gone_count_max
        self._state = _State()
        self._bytes = 0

    # What the members decide.

    def apply(self, slot: int, operation: bytes) -> bytes:
        """Do what was decided for this slot; return its `TagOutcome`."""
        try:
            asked = _operations.decode(operation)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return _encode(TagOutcome("malformed"))
        state = self._state
        outcome = state.results.get(asked.id)
        if outcome is None:
            state.history = state.history or asked.id
            outcome = self._done(asked)
            if outcome.why != "no member":  # it may ask again, by another member
                state.results[asked.id] = outcome
                if len(state.results) > self._results_count_max:
                    del state.results[next(iter(state.results))]
        return _encode(outcome)

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        """These are the members now: tags that go with others go."""
        self._state.members = members
        for row in [row for row in self._state.tags.values() if row.host]:
            if row.host not in members:
                self._remove(row)

    def snapshot(self) -> bytes:
        """The whole state; equal tables, equal bytes."""
        return _encode(self._state)

    def restore(self, state: bytes) -> None:
        """Become the table that this was a snapshot of."""
        self._state = _states.decode(state) if state else _State()
        self._bytes = sum(map(_size, self._state.tags.values()))

    # What can be asked.

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the last view, the most senior first."""
        return self._state.members

    @property
    def history(self) -> str:
        """What tells this sequence from others; empty before the first operation."""
        return self._state.history

    @property
    def version(self) -> int:
        """How often a tag has changed in this history, and one more: 0 is before everything."""
        return self._state.version

    def __len__(self) -> int:
        return len(self._state.tags)

    def __iter__(self) -> Iterator[TagRow]:
        """All tags, in no order that means anything."""
        return iter(self._state.tags.values())

    def get(self, name: str) -> TagRow | None:
        """The tag of exactly this name."""
        return self._state.tags.get(name)

    def result(self, id: RequestId) -> TagOutcome | None:
        """The outcome of a request, if it was decided and is remembered."""
        return self._state.results.get(id)

    def among(self, patterns: Iterable[str]) -> list[TagRow]:
        """The tags that overlap any of these patterns."""
        wanted = list(patterns)
        return [row for row in self if any(overlaps(row.name, one) for one in wanted)]

    def since(self, version: int) -> tuple[list[TagRow], list[str]] | None:
        """Tags that have changed after a version, and names that are gone; None: too long ago."""
        if version < self._state.forgotten:
            return None
        changed = [row for row in self if row.changed > version]
        gone = [name for name, at in self._state.gone.items() if at > version]
        return changed, gone

    # How it is done.

    def _done(self, asked: TagOperation) -> TagOutcome:
        if wrong := _wrong(asked):
            return TagOutcome("malformed", detail=wrong)
        if asked.host and asked.host not in self._state.members:
            return TagOutcome("no member", detail=asked.host)
        there = self._state.tags.get(asked.name)
        if asked.act == "create":
            return self._created(asked, there)
        if there is None:
            return TagOutcome("unknown", asked.name)
        if there.creator != asked.asker and not (asked.force and asked.act == "delete"):
            return TagOutcome("not creator", there.name, there.creator)
        if asked.act == "delete":
            self._remove(there)
            return TagOutcome()
        if asked.declared == there.declared:
            return TagOutcome()
        return self._put(msgspec.structs.replace(there, declared=asked.declared))

    def _created(self, asked: TagOperation, there: TagRow | None) -> TagOutcome:
        if there is not None:
            is_same = there.creator == asked.asker and there.declared == asked.declared
            return TagOutcome() if is_same else TagOutcome("exists", there.name, there.creator)
        wider = next(around(self._state.tags, asked.name), None)
        if wider is not None and wider.creator != asked.asker:
            return TagOutcome("exists", wider.name, wider.creator)
        return self._put(TagRow(asked.name, asked.asker, asked.declared, 0, asked.host))

    def _put(self, row: TagRow) -> TagOutcome:
        state = self._state
        old = state.tags.get(row.name)
        size = self._bytes + _size(row) - (0 if old is None else _size(old))
        count = len(state.tags) + (old is None)
        if count > self._tags_count_max or size > self._tags_bytes_max:
            what = f"{len(state.tags)} tags in {self._bytes} bytes"
            return TagOutcome("full", detail=what)
        self._bytes = size
        state.version += 1
        state.tags[row.name] = msgspec.structs.replace(row, changed=state.version)
        state.gone.pop(row.name, None)
        return TagOutcome()

    def _remove(self, row: TagRow) -> None:
        state = self._state
        del state.tags[row.name]
        self._bytes -= _size(row)
        state.version += 1
        state.gone[row.name] = state.version
        if len(state.gone) > self._gone_count_max:
            state.forgotten = state.gone.pop(next(iter(state.gone)))


def around(tags: dict[str, TagRow], name: str) -> Iterator[TagRow]:
    """Of these tags, those `subject.>` that match all that a name does, the longest first."""
    elements = name.removesuffix(_REST).split(".")
    for count in range(len(elements) - 1, 0, -1):
        row = tags.get(".".join(elements[:count]) + _REST)
        if row is not None:
            yield row


def governing(tags: dict[str, TagRow], subject: str) -> TagRow | None:
    """Of these tags, the one that governs a subject: the longest that matches it."""
    return tags.get(subject) or next(around(tags, subject), None)


def _wrong(asked: TagOperation) -> str:
    """What is wrong with an operation that can be read; empty if nothing is.

    In words that never change: programs of several versions may keep equal tables.
    """
    try:
        check_tag_name(asked.name)
    except BadSubject:
        return "its name is neither a subject nor `subject.>`"
    declared: TagTerms = asked.declared
    if not all(map(is_name_pattern, (*declared.publish, *declared.subscribe))):
        return "its rights are no patterns of application names"
    return "" if asked.asker else "it has no asker"


def check_tag_name(name: str) -> None:
    """Raise `BadSubject` unless a tag may have this name.

    >>> check_tag_name("plant.oven.>")
    >>> check_tag_name("plant.*")
    Traceback (most recent call last):
    infobus.errors.BadSubject: subject 'plant.*' holds the wildcard '*'; only a pattern may \
(element 2, at character 6)
    """
    check_publishable(name.removesuffix(_REST))


def _size(row: TagRow) -> int:
    """Its bytes, whatever its version."""
    return len(_encode(msgspec.structs.replace(row, changed=0)))
