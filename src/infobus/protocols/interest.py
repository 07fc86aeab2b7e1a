"""Who wants what: one weakly consistent table, each row written by its owner only.

`OwnRows` is what this node wants. Every change gets a version, and any peer can be brought up
to date with one delta from the version that it has; the delta is computed from the present
state, so it may be repeated or overtaken without harm. `PeerRows` is what the others want,
as far as they have told. A dead peer's rows disappear with it (paper 003, section 4.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from infobus.subjects import SubjectTrie, matches


def channel_pattern(pattern: str, depth: int) -> str:
    """The channels that `pattern` can touch, as a pattern over channel names.

    >>> channel_pattern("news.equity.gmc", 1), channel_pattern("*.equity", 1)
    ('news', '*')
    >>> channel_pattern("news.>", 2), channel_pattern("news.equity.gmc", 2)
    ('news.>', 'news.equity')
    """
    return ".".join(pattern.split(".")[:depth])


def touches(channel_patterns: Iterable[str], channel: str) -> bool:
    """Whether any of `channel_patterns` includes `channel`.

    >>> touches(["plant.>"], "plant.oven"), touches(["plant.>"], "plant")
    (True, False)
    """
    return any(matches(pattern, channel) for pattern in channel_patterns)


@dataclass(slots=True)
class OwnRows:
    """The patterns this node wants, each counted, with the version that brought it."""

    depth: int
    removed_count_max: int = 10_000
    version: int = 1  # 0 on the wire means "nothing is held"
    delta_from: int = 1  # the oldest version from which a delta can be given
    added: dict[str, int] = field(default_factory=dict)  # pattern -> version, oldest first
    removed: dict[str, int] = field(default_factory=dict)  # pattern -> version, oldest first
    uses: Counter[str] = field(default_factory=Counter)
    # channel pattern -> its rows, oldest first; and the same patterns, found by channel
    channels: dict[str, dict[str, int]] = field(default_factory=dict)
    trie: SubjectTrie[str] = field(default_factory=SubjectTrie)

    def add(self, patterns: Iterable[str]) -> bool:
        """Want these; True if anything is new to the peers."""
        new = [pattern for pattern in patterns if self._use(pattern)]
        if new:
            self.version += 1
            for pattern in new:
                self.removed.pop(pattern, None)
                self.added[pattern] = self.version
                channel = channel_pattern(pattern, self.depth)
                self.channels.setdefault(channel, {})[pattern] = self.version
                self.trie.add(channel, channel)
        return bool(new)

    def remove(self, patterns: Iterable[str]) -> bool:
        """Want these once less; True if anything is to be told to the peers."""
        gone = [pattern for pattern in patterns if self._drop(pattern)]
        if gone:
            self.version += 1
            for pattern in gone:
                del self.added[pattern]
                self.removed[pattern] = self.version
                channel = channel_pattern(pattern, self.depth)
                del self.channels[channel][pattern]
                if not self.channels[channel]:
                    del self.channels[channel]
                    self.trie.remove(channel, channel)
            if len(self.removed) > self.removed_count_max:
                self.forget_removals(self.version)
        return bool(gone)

    def since(self, version: int) -> tuple[int, list[str], list[str]]:
        """The version a delta starts from, what was added and what removed after it.

        It starts from `version` if that can be, else from 0: then the rows added are all rows.
        """
        if version < self.delta_from:
            return 0, list(self.added), []
        return version, list(_after(self.added, version)), list(_after(self.removed, version))

    def forget_removals(self, up_to_version: int) -> None:
        """Removals up to this version need not be told again: a delta can start later only."""
        for pattern in [p for p, version in self.removed.items() if version <= up_to_version]:
            del self.removed[pattern]
            self.delta_from = max(self.delta_from, up_to_version)

    def channel_patterns(self) -> set[str]:
        """The channels that the rows touch, as patterns."""
        return set(self.channels)

    def version_that_touched(self, channel: str) -> int | None:
        """The version since which `channel` has been wanted without a break, if it is."""
        versions = (next(iter(self.channels[p].values())) for p in self.trie.match(channel))
        return min(versions, default=None)

    def _use(self, pattern: str) -> bool:
        self.uses[pattern] += 1
        return self.uses[pattern] == 1

    def _drop(self, pattern: str) -> bool:
        if pattern not in self.uses:
            return False
        self.uses[pattern] -= 1
        if self.uses[pattern]:
            return False
        del self.uses[pattern]
        return True


def _after(versions: dict[str, int], version: int) -> Iterator[str]:
    # Newest rows are last: a delta of one row out of ten thousand looks at one row.
    newest = []
    for pattern in reversed(versions):
        if versions[pattern] <= version:
            break
        newest.append(pattern)
    return reversed(newest)


@dataclass(slots=True)
class PeerRecord:
    """One peer's rows, as of `version`; 0 until all that it told first could be taken in."""

    depth: int
    version: int = 0
    patterns: set[str] = field(default_factory=set)
    channels: Counter[str] = field(default_factory=Counter)  # channel pattern -> rows


@dataclass(slots=True)
class PeerRows:
    """What the peers want, and tries over it that answer who wants a subject or a channel."""

    rows_count_max: int = 1_000_000  # of one peer
    records: dict[str, PeerRecord] = field(default_factory=dict)
    trie: SubjectTrie[str] = field(default_factory=SubjectTrie)
    channel_trie: SubjectTrie[str] = field(default_factory=SubjectTrie)
    refused: int = 0

    def update(
        self, peer: str, since: int, version: int, added: list[str], removed: list[str], depth: int
    ) -> bool:
        """Take in a peer's rows or changes; True if this was news.

        It is none if newer rows are held already, or if something before the changes is missing.
        Rows past `rows_count_max` are counted and left out, and the peer's version stays behind,
        so that it is not told that they are known.
        """
        record = self.records.get(peer)
        if record is None:
            if since:
                return False
            record = self.records[peer] = PeerRecord(depth)
        if version <= record.version or since > record.version:
            return False
        if not since:
            removed = sorted(record.patterns.difference(added))
        for pattern in removed:
            self._remove(peer, record, pattern)
        for pattern in added:
            if len(record.patterns) >= self.rows_count_max and pattern not in record.patterns:
                self.refused += 1
                return True
            self._add(peer, record, pattern)
        record.version = version
        return True

    def forget(self, peer: str) -> None:
        """The peer is gone: so are its rows."""
        record = self.records.pop(peer, None)
        if record is not None:
            for pattern in record.patterns:
                self.trie.remove(pattern, peer)
            for channel in record.channels:
                self.channel_trie.remove(channel, peer)

    def wants(self, subject: str) -> bool:
        """Whether any peer wants `subject`."""
        return bool(self.trie.match(subject))

    def listeners(self, channel: str) -> list[str]:
        """The peers that want something of `channel`."""
        return list(dict.fromkeys(self.channel_trie.match(channel)))

    def _add(self, peer: str, record: PeerRecord, pattern: str) -> None:
        if pattern not in record.patterns:
            record.patterns.add(pattern)
            channel = channel_pattern(pattern, record.depth)
            record.channels[channel] += 1
            self.channel_trie.add(channel, peer)
            self.trie.add(pattern, peer)

    def _remove(self, peer: str, record: PeerRecord, pattern: str) -> None:
        if pattern in record.patterns:
            record.patterns.discard(pattern)
            channel = channel_pattern(pattern, record.depth)
            record.channels[channel] -= 1
            if not record.channels[channel]:
                del record.channels[channel]
                self.channel_trie.remove(channel, peer)
            self.trie.remove(pattern, peer)
