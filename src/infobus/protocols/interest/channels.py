"""Since when this node has wanted each channel, however the rows that say so come and go."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from infobus.subjects import SubjectTrie, overlaps


def is_wild(pattern: str) -> bool:
    """Return whether `pattern` has wildcards.

    >>> is_wild("news.*.gmc"), is_wild("news.gmc*")
    (True, False)
    """
    elements = pattern.split(".")
    return "*" in elements or elements[-1] == ">"


class Channels(Struct):
    """The version since which each channel has been wanted without a break.

    A pattern that is dropped leaves its version to the channels that other patterns still want.
    Peers see no break there: they keep their place in the stream, and what they did not send in
    all that time was missed.

    >>> channels = Channels()
    >>> channels.use(">", 2)
    >>> channels.use("news", 7)
    >>> channels.drop(">")
    >>> channels.since("news"), channels.since("trades")
    (2, None)
    """

    uses: Counter[str] = field(default_factory=Counter)  # channel pattern -> rows
    versions: dict[str, int] = field(default_factory=dict)  # also what dropped patterns have left
    trie: SubjectTrie[str] = field(default_factory=SubjectTrie)  # of all that have a version

    def use(self, pattern: str, version: int) -> None:
        """One more row touches the channels of `pattern`."""
        self.uses[pattern] += 1
        if self.uses[pattern] == 1:
            self._note(pattern, version)

    def drop(self, pattern: str) -> None:
        """One row less touches them."""
        self.uses[pattern] -= 1
        if self.uses[pattern]:
            return
        del self.uses[pattern]
        left = [pattern]
        if is_wild(pattern):  # what others have left may have been wanted by this one only
            left = [one for one in self.versions if one not in self.uses]
        versions = {one: self.versions.pop(one) for one in left}
        for one in left:
            self.trie.remove(one, one)
        for one, version in versions.items():
            for other in self.uses if is_wild(one) else self.trie.match(one):
                if other in self.uses and version < self.versions[other] and overlaps(one, other):
                    self._note(_common(one, other), version)

    def since(self, channel: str) -> int | None:
        """The version since which `channel` has been touched, if it is."""
        return min((self.versions[pattern] for pattern in self.trie.match(channel)), default=None)

    def _note(self, pattern: str, version: int) -> None:
        if pattern not in self.versions:
            self.trie.add(pattern, pattern)
        self.versions[pattern] = min(version, self.versions.get(pattern, version))


def _common(one: str, other: str) -> str:
    """Return the pattern of what both of two overlapping patterns match.

    >>> _common("news.>", "*.equity.*"), _common("news.*", "news.>")
    ('news.equity.*', 'news.*')
    """
    longer, shorter = one.split("."), other.split(".")
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    wideness = {">": 2, "*": 1}
    narrower = [
        min(pair, key=lambda element: wideness.get(element, 0))
        for pair in zip(longer, shorter, strict=False)
    ]
    return ".".join([*narrower, *longer[len(shorter) :]])
