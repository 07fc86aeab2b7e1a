"""Who, on this node, wants an event: by its subject first, then by what it holds.

Subscriptions without a filter get whatever has a matching subject. Those with one share a
matcher per pattern, so that a hundred thousand of them cost little more than one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from infobus.bounds import DEFAULT_BOUNDS
from infobus.bus.deliver.subscription import Subscription
from infobus.errors import BadSubject, UsageError
from infobus.subjects import TEST_SPACE, SubjectTrie, check_pattern, check_subject

if TYPE_CHECKING:
    from infobus.bus.deliver.protection import Level, Protections
    from infobus.bus.rights.guard import Guard
    from infobus.filters import Filter
    from infobus.filters.matching.matcher import Matcher
    from infobus.protocols.tags.rules import TagRule, TagRules


class Sieve:
    """The subscriptions to one pattern that have a filter."""

    __slots__ = ("by_type", "matcher")

    def __init__(self) -> None:
        from infobus.filters.matching.matcher import Matcher  # late: it stands on numpy

        self.matcher: Matcher = Matcher()
        self.by_type: dict[Subscription, None] = {}  # whose filter asks for the type

    def add(self, subscription: Subscription, where: Filter) -> None:
        """Let through what `where` is true of."""
        self.matcher.add(subscription, where)
        self._note_type(subscription, where)

    def replace(self, subscription: Subscription, where: Filter) -> None:
        """Another filter from now on."""
        self.matcher.replace(subscription, where)
        self._note_type(subscription, where)

    def remove(self, subscription: Subscription) -> None:
        """Nothing more for this one."""
        self.matcher.remove(subscription)
        self.by_type.pop(subscription, None)

    def _note_type(self, subscription: Subscription, where: Filter) -> None:
        if where.asks_for_type:
            self.by_type[subscription] = None
        else:
            self.by_type.pop(subscription, None)


class Audience(Struct, frozen=True):
    """The subscriptions that a subject may concern."""

    always: tuple[Subscription, ...] = ()
    sieves: tuple[Sieve, ...] = ()
    rule: TagRule | None = None  # of a tag that declares a type
    keyed: tuple[Subscription, ...] = ()  # those with keys, which look for themselves
    level: Level | None = None  # how events must be protected that others publish

    def takers(self, obj: object) -> tuple[Subscription, ...]:
        """Those that want `obj`, each once. Call it under the runtime's lock."""
        if not (self.sieves or self.keyed):
            return self.always
        return (*self.always, *self.sifted(obj), *self.with_keys(obj))

    def with_keys(self, obj: object) -> Iterator[Subscription]:
        """Those with keys that may want `obj`."""
        for one in self.keyed:
            if one.keys is not None and one.keys.row(one.where).may_match(obj):
                yield one

    def sifted(self, obj: object) -> dict[Subscription, None]:
        """Those whose filter is true of `obj`. Call it under the runtime's lock."""
        found: dict[Subscription, None] = {}
        for sieve in self.sieves:
            found.update(dict.fromkeys(sieve.matcher.match(obj)))  # type: ignore[arg-type]
        return found

    def undecided(self) -> dict[Subscription, None]:
        """Those that cannot be asked about an event whose type is not known yet."""
        return {one: None for sieve in self.sieves for one in sieve.by_type}


NOBODY = Audience()


class Audiences:
    """The audience of each subject. Everything here is called under the runtime's lock."""

    def __init__(self) -> None:
        self._trie: SubjectTrie[Subscription | Sieve] = SubjectTrie()
        self._sieves: dict[str, Sieve] = {}
        self.found: dict[str, Audience] = {}  # what was asked for before
        self.found_count_max = DEFAULT_BOUNDS.audiences_count_max
        self.guard: Guard | None = None  # of a secured bus
        self.rules: TagRules | None = None  # of the tags that concern this node
        self.protection: Protections | None = None  # what the policy asks of events

    def add(self, subscription: Subscription) -> None:
        """One more subscription."""
        self.found = {}
        for pattern in subscription.told:
            if subscription.where is None or subscription.keys is not None:
                self._trie.add(pattern, subscription)
            else:
                sieve = self._sieves.get(pattern)
                if sieve is None:
                    sieve = self._sieves[pattern] = Sieve()
                    self._trie.add(pattern, sieve)
                sieve.add(subscription, subscription.where)

    def remove(self, subscription: Subscription) -> None:
        """One subscription less."""
        self.found = {}
        for pattern in subscription.told:
            if subscription.where is None or subscription.keys is not None:
                self._trie.remove(pattern, subscription)
            else:
                sieve = self._sieves[pattern]
                sieve.remove(subscription)
                if not len(sieve.matcher):
                    self._trie.remove(pattern, sieve)
                    del self._sieves[pattern]

    def change(self, subscription: Subscription, before: Collection[str]) -> None:
        """A subscription without a filter has other patterns than before."""
        self.found = {}
        now, then = dict.fromkeys(subscription.told), dict.fromkeys(before)
        for pattern in now:
            if pattern not in then:
                self._trie.add(pattern, subscription)
        for pattern in then:
            if pattern not in now:
                self._trie.remove(pattern, subscription)

    def replace(self, subscription: Subscription, where: Filter | None) -> None:
        """Another filter for this subscription, or none."""
        if subscription.keys is not None:
            subscription.where = where
        elif subscription.where is not None and where is not None:
            for pattern in subscription.told:
                self._sieves[pattern].replace(subscription, where)
            subscription.where = where
        else:
            self.remove(subscription)
            subscription.where = where
            self.add(subscription)

    def forget(self) -> None:
        """The tags have changed."""
        self.found = {}

    def of(self, subject: str) -> Audience:
        """The audience of `subject`.

        Raises:
            BadSubject: `subject` is malformed.
        """
        found = self.found.get(subject)
        if found is None:
            check_subject(subject)
            if len(self.found) >= self.found_count_max:
                self.found.clear()
            found = self.found[subject] = self._find(subject)
        return found

    def _find(self, subject: str) -> Audience:
        entries = dict.fromkeys(self._trie.match(subject))
        if not entries or (self.guard is not None and not self.guard.may_hear(subject)):
            return NOBODY
        takers = [entry for entry in entries if isinstance(entry, Subscription)]
        always = tuple(one for one in takers if one.keys is None)
        keyed = tuple(one for one in takers if one.keys is not None)
        sieves = tuple(entry for entry in entries if isinstance(entry, Sieve))
        level = None
        if self.protection is not None:
            level = self.protection.of(subject.removeprefix(TEST_SPACE))
        if self.rules is None or not self.rules.rows:
            return Audience(always, sieves, None, keyed, level)
        rule = self.rules.of(subject.removeprefix(TEST_SPACE))
        if rule is None:
            return Audience(always, sieves, None, keyed, level)
        if not rule.may_subscribe:
            return NOBODY
        return Audience(always, sieves, rule if rule.declared.fingerprint else None, keyed, level)

    def of_stranger(self, subject: str) -> Audience | None:
        """As `of`, for a subject from outside; None if it is malformed."""
        try:
            return self.of(subject)
        except BadSubject:
            return None


def patterns_of(call: str, patterns: Iterable[str]) -> list[str]:
    """The patterns that a user has given, each once.

    Raises:
        UsageError: They are a bare str, or there are none.
        BadSubject: One is malformed.
    """
    if isinstance(patterns, str):
        raise UsageError(f"{call} takes a list of patterns, got the str {patterns!r}")
    given = list(patterns)
    if not given:
        raise UsageError(f"{call} was given no pattern; give at least one")
    for pattern in given:
        check_pattern(pattern)
    return list(dict.fromkeys(given))


def filter_of(where: str | Filter | None) -> Filter | None:
    """The filter that a user has given.

    Raises:
        BadFilter: The text is not a filter.
    """
    if where is None:
        return None
    from infobus.filters import Filter, compile  # late: many programs have no filter

    if isinstance(where, Filter):
        return where
    if not isinstance(where, str):
        raise UsageError(f"where must be a filter or its text, got {where!r:.60}")
    return compile(where)


def text_of(where: Filter | None) -> str:
    """A filter as rows of the interest table have it."""
    return "" if where is None else where.text
