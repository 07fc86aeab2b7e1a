"""An index of patterns that finds those that cover a pattern, and those that it covers."""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct, field

from infobus.subjects import SubjectTrie, covers


class Nest(Struct):
    """A set of patterns.

    >>> nest = Nest()
    >>> for pattern in ("news.>", "news.*", "news.gmc", "trades.gmc"):
    ...     nest.add(pattern)
    >>> nest.wider("news.gmc"), nest.narrower("news.*")
    (['news.>', 'news.*'], ['news.gmc'])
    """

    trie: SubjectTrie[str] = field(default_factory=SubjectTrie)
    ordered: list[str] = field(default_factory=list)

    def add(self, pattern: str) -> None:
        """Add a pattern that is not in the set."""
        self.trie.add(pattern, pattern)
        insort(self.ordered, pattern)

    def remove(self, pattern: str) -> None:
        """Remove a pattern."""
        self.trie.remove(pattern, pattern)
        del self.ordered[bisect_left(self.ordered, pattern)]

    def wider(self, pattern: str) -> list[str]:
        """Return the others that cover `pattern`."""
        # To the trie, wildcards of `pattern` are ordinary elements; only `covers`
        # understands them.
        found = dict.fromkeys(self.trie.match(pattern))
        return [one for one in found if one != pattern and covers(one, pattern)]

    def narrower(self, pattern: str) -> list[str]:
        """Return the others that `pattern` covers."""
        elements = pattern.split(".")
        wild = [number for number, element in enumerate(elements) if element in ("*", ">")]
        if not wild:
            return []
        # All patterns that it covers begin as it does, and are neighbours in the order.
        beginning = "".join(f"{element}." for element in elements[: wild[0]])
        found = []
        for number in range(bisect_left(self.ordered, beginning), len(self.ordered)):
            one = self.ordered[number]
            if not one.startswith(beginning):
                break
            if one != pattern and covers(pattern, one):
                found.append(one)
        return found
