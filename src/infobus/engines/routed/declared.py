"""What this router has declared, and the callbacks for what arrives."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from infobus.engines.base import Guarded
from infobus.keys import keys_intersect

_FOUND_COUNT_MAX = 100_000


class RoutedDeclaration:
    """One registration: for frames, questions or tokens, or a token of its own."""

    def __init__(
        self, owner: Declarations, entry: str, key: str, call: Callable[[Any], Any]
    ) -> None:
        self.owner = owner
        self.entry = entry  # what the others are told of it; empty: nothing
        self.key = key
        self.is_active = True
        self._call = call
        self._lock = threading.RLock()  # one call at a time

    def call(self, argument: Any) -> Any:
        """Call its callback, unless the declaration was withdrawn."""
        with self._lock:
            return self._call(argument) if self.is_active else None

    def undeclare(self) -> None:
        """Withdraw it."""
        if self.is_active:
            self.is_active = False
            self.owner.remove(self)


class RoutedWatch(RoutedDeclaration):
    """A registration for tokens, and which of them were reported."""

    def __init__(self, owner: Declarations, key: str, on_change: Callable[[str, bool], None]):
        self._seen: set[str] = set()
        guard = Guarded(key)

        def changed(change: tuple[str, bool]) -> None:
            on_change(*change)

        self._guarded = guard.wrap(changed)
        super().__init__(owner, "", key, self._changed)

    def _changed(self, change: tuple[str, bool]) -> None:
        token, is_alive = change
        if keys_intersect(self.key, token) and is_alive != (token in self._seen):
            (self._seen.add if is_alive else self._seen.discard)(token)
            self._guarded(change)


class Declarations:
    """All registrations of one engine; `add_entry` and `remove_entry` tell the others.

    Its owner's lock is held around `add`; `undeclare` may be called by anyone.
    """

    def __init__(self, tell: Callable[[str, bool], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._by_kind: dict[str, dict[RoutedDeclaration, None]] = {}
        self._entries = Counter[str]()
        self._found: dict[tuple[str, str], tuple[RoutedDeclaration, ...]] = {}

    def add(self, kind: str, declared: RoutedDeclaration) -> None:
        """From now on it is called."""
        with self._lock:
            self._by_kind.setdefault(kind, {})[declared] = None
            self._found = {}
            is_first = not self._entries[declared.entry]
            self._entries[declared.entry] += 1
        if is_first and declared.entry:
            self._tell(declared.entry, True)

    def remove(self, declared: RoutedDeclaration) -> None:
        """It is not called any more."""
        with self._lock:
            for held in self._by_kind.values():
                held.pop(declared, None)
            self._found = {}
            self._entries[declared.entry] -= 1
            is_last = not self._entries[declared.entry]
        if is_last and declared.entry:
            self._tell(declared.entry, False)

    def on(self, kind: str, key: str) -> tuple[RoutedDeclaration, ...]:
        """Those to call for a key."""
        found = self._found.get((kind, key))
        if found is None:
            with self._lock:
                held = self._by_kind.get(kind, {})
                found = tuple(one for one in held if keys_intersect(one.key, key))
                if len(self._found) >= _FOUND_COUNT_MAX:
                    self._found = {}
                self._found[kind, key] = found
        return found

    def of(self, kind: str) -> tuple[RoutedDeclaration, ...]:
        """All of one kind."""
        with self._lock:
            return tuple(self._by_kind.get(kind, ()))

    def silence(self) -> None:
        """Nobody is called any more."""
        with self._lock:
            for held in self._by_kind.values():
                for declared in held:
                    declared.is_active = False
            self._by_kind, self._found = {}, {}
