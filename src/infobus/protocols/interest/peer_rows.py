"""The interest of the peers, as far as they have sent it, and what it means for an event.

A dead peer's rows disappear with it (paper 003, section 4.5). A publisher holds the rows that
overlap with the subjects it publishes. It also holds rows of other channels while there are few in
all; beyond `spare_count_max` it drops them, and remembers only the channel pattern of each. A node
that then begins to publish on such a channel is unsure: it sends everything until the owners have
sent their rows again. It is also unsure about rows of one peer beyond `rows_count_max`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from infobus.errors import BadFilter
from infobus.protocols.frames.wire import Request
from infobus.protocols.interest.channels import is_wild
from infobus.protocols.interest.own_rows import Row, channel_pattern, is_keyed
from infobus.subjects import TEST_SPACE, SubjectTrie, channel_of, overlaps

if TYPE_CHECKING:
    from infobus.filters.matching.matcher import Matcher

_LET_GO_COUNT_MAX = 10_000  # channel patterns of one peer; past it: any channel
_ALL_CHANNELS = (">", TEST_SPACE[:-1], f"{TEST_SPACE}>")
_NEEDED_COUNT_MAX = 100_000
_FILTERS_COUNT_MAX = 10_000  # of one pattern, over all peers; beyond it they are not evaluated
FILTERS_CHARS_MAX = 1024 * 1024  # of one peer; past it, its channels count as unfiltered
_REMADE_COUNT = 64  # so many filters are worth a new matcher with every change


Question = Callable[[Any], bool]
Wanted = bool | Question
"""Whether an event is wanted: no, yes whatever it holds, or a question to ask about that.

The question takes the object or mapping. It may still be asked while rows come and go, and gets
the answers of the moment when it was made. Threads that share one take turns.
"""


class _Filters(Struct, eq=False):
    """The filters of one pattern, over all peers."""

    pattern: str
    uses: Counter[str] = field(default_factory=Counter)  # filter -> peers
    chars: int = 0  # the length of all filters
    answer: Question | Literal[True] | None = None  # None: not known since they have changed
    indexed: dict[str, None] = field(default_factory=dict)  # filters in the matcher
    matcher: Matcher | None = None

    def question(self, chars_max: int | None = None) -> Question | None:
        """Return a function that decides whether any of the filters lets an event through.

        Of many filters only some are new: these are evaluated one by one. Filters that are gone may
        still say yes, until they are an eighth and the matcher is worth rebuilding.

        If more than `chars_max` characters would have to be compiled, return None.
        """
        from infobus.filters import compile  # late: a bus without filters needs none of it
        from infobus.filters.matching.matcher import Matcher

        plain, keyed = self.plain(), [where for where in self.uses if is_keyed(where)]
        new = [where for where in plain if where not in self.indexed]
        gone_count = len(self.indexed) - (len(plain) - len(new))
        tolerated = len(plain) // 8 if len(plain) > _REMADE_COUNT else 0
        is_remade = self.matcher is None or len(new) + gone_count > tolerated
        if chars_max is not None:
            chars = self.chars if is_remade else sum(map(len, [*new, *keyed]))
            if chars > chars_max:
                return None
        if self.matcher is None or is_remade:
            matcher = Matcher()
            for where in plain:
                matcher.add(where, compile(where))
            self.matcher, self.indexed, new = matcher, dict.fromkeys(plain), []
        questions: list[Question] = [
            self.matcher.match_any,
            *(compile(where).matches for where in new),
        ]
        if keyed:
            from infobus.protocols.interest.keyed_filter import keyed_filter

            questions += [keyed_filter(where).may_match for where in keyed]
        return any_of(questions)

    def plain(self) -> list[str]:
        """The filters of rows without keys."""
        return [where for where in self.uses if not is_keyed(where)]


def any_of(questions: list[Question]) -> Question:
    """Return a function that is true if any of these questions is."""
    if len(questions) == 1:
        return questions[0]
    return lambda event: any(question(event) for question in questions)


class PeerRecord(Struct):
    """One peer's rows, as of `version`."""

    version: int = 0
    rows: dict[str, dict[str, None]] = field(default_factory=dict)  # pattern -> filters
    count: int = 0
    chars: int = 0  # of their filters
    channels: Counter[str] = field(default_factory=Counter)  # channel pattern -> rows held
    let_go: set[str] = field(default_factory=set)  # channel patterns of rows that are not held
    is_missed: bool = False  # rows that were dropped are needed now
    is_over_limit: bool = False  # it sends more rows than are held of one peer
    requests: list[Request] = field(default_factory=list)
    window: int = 0  # unconfirmed events that it takes of one lane; 0: as the sender likes
    lanes: frozenset[str] | None = None  # classes it has lanes for; None: those of this node

    def all_rows(self) -> list[Row]:
        """Its rows; instead of those that are not held, all of their channels."""
        held = [(pattern, where) for pattern, filters in self.rows.items() for where in filters]
        if not self.let_go:
            return held
        below = [(f"{one}.>", "") for one in self.let_go if not one.endswith(">")]
        return [*held, *((one, "") for one in self.let_go), *below]


class PeerRows(Struct):
    """The rows of all peers, and tries that answer who wants a subject or a channel."""

    depth: int = 1
    rows_count_max: int = 100_000  # of one peer
    spare_count_max: int = 10_000  # of all peers; past it, only what this node publishes is held
    records: dict[str, PeerRecord] = field(default_factory=dict)
    patterns: dict[str, _Filters] = field(default_factory=dict)
    trie: SubjectTrie[_Filters] = field(default_factory=SubjectTrie)
    channel_trie: SubjectTrie[str] = field(default_factory=SubjectTrie)
    let_go_trie: SubjectTrie[str] = field(default_factory=SubjectTrie)
    needed: dict[str, None] = field(default_factory=dict)  # channel patterns this node asks about
    needs_patterns: bool = False  # some of them have wildcards
    count: int = 0  # rows held, of all peers
    refused: int = 0  # rows past `rows_count_max`
    unreadable: int = 0  # filters that could not be understood, and so count as none
    uncompiled: dict[str, None] = field(
        default_factory=dict
    )  # patterns whose filters count as none

    def update(
        self,
        peer: str,
        since: int,
        version: int,
        added: Iterable[Row],
        removed: Iterable[str] = (),
        dropped: Iterable[Row] = (),
    ) -> bool:
        """Apply a peer's rows or changes; return whether they were new.

        They are not if newer rows are held already, or if changes before them are missing.
        `removed` are patterns that have no row any more, `dropped` other rows that are gone.
        """
        record = self.records.get(peer)
        if record is None:
            if since:
                return False
            record = self.records[peer] = PeerRecord()
        is_answer = record.is_missed and not since and version == record.version
        if since > record.version or (version <= record.version and not is_answer):
            return False
        if not since:
            self._forget_let_go(peer, record)
            added = list(added)
            present = set(added)
            dropped = [
                (pattern, where)
                for pattern, filters in record.rows.items()
                for where in filters
                if (pattern, where) not in present
            ]
        for pattern in removed:
            for where in list(record.rows.get(pattern, ())):
                self._remove(peer, record, pattern, where)
        for pattern, where in dropped:
            self._remove(peer, record, pattern, where)
        for pattern, where in added:
            self._take(peer, record, pattern, where)
        record.version = version
        return True

    def forget(self, peer: str) -> None:
        """The peer is gone, and so are its rows."""
        record = self.records.get(peer)
        if record is not None:
            self._forget_let_go(peer, record)
            for pattern, filters in list(record.rows.items()):
                for where in list(filters):
                    self._remove(peer, record, pattern, where)
            del self.records[peer]

    def need(self, channels: str) -> None:
        """This node publishes on `channels`, a channel or a pattern over channels, or asks."""
        if channels in self.needed:
            return
        self.needed[channels] = None
        if len(self.needed) > _NEEDED_COUNT_MAX:
            del self.needed[next(iter(self.needed))]
        is_one = not is_wild(channels)
        self.needs_patterns |= not is_one
        if len(self.let_go_trie):
            for peer in self.let_go_trie.match(channels) if is_one else self.records:
                record = self.records[peer]
                record.is_missed = bool(record.let_go) and not record.is_over_limit

    def wanted(self, subject: str, chars_max: int | None = None) -> Wanted:
        """Return whether any peer wants events of `subject`.

        If more than `chars_max` characters of a pattern's filters would have to be compiled, the
        pattern is added to `uncompiled`, and counts as unfiltered.
        """
        if self._is_unsure(subject):
            return True
        questions = []
        is_compiled = True
        for filters in self.trie.match(subject):
            if filters.answer is None:
                filters.answer = self._answer(filters, chars_max)
            if filters.answer is True:
                return True
            if filters.answer is None:
                self.uncompiled[filters.pattern] = None
                is_compiled = False
            else:
                questions.append(filters.answer)
        return (any_of(questions) if questions else False) if is_compiled else True

    def next_uncompiled(self) -> tuple[str, list[str]] | None:
        """Return the pattern with the least text of those in `uncompiled`, and its filters."""
        known = {name: self.patterns[name] for name in self.uncompiled if name in self.patterns}
        self.uncompiled = dict.fromkeys(known)
        if not known:
            return None
        pattern = min(known, key=lambda name: known[name].chars)
        return pattern, known[pattern].plain()

    def compiled(self, pattern: str, filters: list[str], matcher: Matcher | None) -> None:
        """Use a matcher of these filters, or send everything if it is None: see `wanted`."""
        self.uncompiled.pop(pattern, None)
        held = self.patterns.get(pattern)
        if held is None:
            return
        if matcher is not None:
            held.matcher, held.indexed, held.answer = matcher, dict.fromkeys(filters), None
        elif set(held.plain()) == set(filters):
            self.unreadable += 1
            held.answer = True

    def overlapping(self, pattern: str) -> list[Row]:
        """Return the rows under which peers want some subject of `pattern`; one for all owners.

        If some were dropped, a row without a filter replaces them.
        """
        rows = [
            (other, where)
            for other, filters in self.patterns.items()
            if overlaps(pattern, other)
            for where in filters.uses
        ]
        channels = channel_pattern(pattern, self.depth)
        is_unsure = any(
            overlaps(channels, let_go)
            for record in self.records.values()
            for let_go in record.let_go
        )
        return [*rows, (pattern, "")] if is_unsure else rows

    def listeners(self, channel: str) -> list[str]:
        """Return the peers that want events of `channel`."""
        return list(dict.fromkeys(self.channel_trie.match(channel)))

    def _is_unsure(self, subject: str) -> bool:
        return bool(
            len(self.let_go_trie) and self.let_go_trie.match(channel_of(subject, self.depth))
        )

    def _answer(self, filters: _Filters, chars_max: int | None) -> Question | Literal[True] | None:
        """Return the test for the filters; True if one is not understood, or there is none."""
        if "" in filters.uses or len(filters.uses) > _FILTERS_COUNT_MAX:
            return True
        try:
            return filters.question(chars_max)
        except BadFilter:
            self.unreadable += 1
            return True

    def _take(self, peer: str, record: PeerRecord, pattern: str, where: str) -> None:
        if where in record.rows.get(pattern, ()):
            return
        channels = channel_pattern(pattern, self.depth)
        if record.count >= self.rows_count_max or record.chars + len(where) > FILTERS_CHARS_MAX:
            self.refused += 1
            record.is_over_limit = True
            self._let_go(peer, record, channels)
        elif channels in record.let_go:
            pass
        elif self.count >= self.spare_count_max and not self._is_needed(channels):
            self._let_go(peer, record, channels)
        else:
            self._add(peer, record, pattern, where)

    def _is_needed(self, channels: str) -> bool:
        # Wildcards on either side are rare, and holding too much does no harm.
        if channels in self.needed or self.needs_patterns:
            return True
        return bool(self.needed) and is_wild(channels)

    def _let_go(self, peer: str, record: PeerRecord, channels: str) -> None:
        for wide in _ALL_CHANNELS if len(record.let_go) >= _LET_GO_COUNT_MAX else (channels,):
            if wide not in record.let_go:
                record.let_go.add(wide)
                self.let_go_trie.add(wide, peer)
                self.channel_trie.add(wide, peer)

    def _forget_let_go(self, peer: str, record: PeerRecord) -> None:
        for channels in record.let_go:
            self.let_go_trie.remove(channels, peer)
            if not record.channels[channels]:
                self.channel_trie.remove(channels, peer)
        record.let_go.clear()
        record.is_missed = record.is_over_limit = False

    def _add(self, peer: str, record: PeerRecord, pattern: str, where: str) -> None:
        record.rows.setdefault(pattern, {})[where] = None
        record.count += 1
        record.chars += len(where)
        self.count += 1
        channels = channel_pattern(pattern, self.depth)
        record.channels[channels] += 1
        self.channel_trie.add(channels, peer)
        filters = self.patterns.get(pattern)
        if filters is None:
            filters = self.patterns[pattern] = _Filters(pattern)
            self.trie.add(pattern, filters)
        filters.uses[where] += 1
        if filters.uses[where] == 1:
            filters.chars += len(where)
            filters.answer = None

    def _remove(self, peer: str, record: PeerRecord, pattern: str, where: str) -> None:
        held = record.rows.get(pattern, {})
        if where not in held:
            return
        del held[where]
        if not held:
            del record.rows[pattern]
        record.count -= 1
        record.chars -= len(where)
        self.count -= 1
        channels = channel_pattern(pattern, self.depth)
        record.channels[channels] -= 1
        if not record.channels[channels]:
            del record.channels[channels]
            if channels not in record.let_go:
                self.channel_trie.remove(channels, peer)
        filters = self.patterns[pattern]
        filters.uses[where] -= 1
        if not filters.uses[where]:
            del filters.uses[where]
            filters.chars -= len(where)
            filters.answer = None
            if not filters.uses:
                del self.patterns[pattern]
                self.trie.remove(pattern, filters)
