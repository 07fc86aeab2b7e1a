"""The position of a durable consumer in one ledger: the events it holds and has settled.

Everything up to `position` is settled; everything up to `cursor` has arrived. In between, a number
is held (until it is settled), or settled out of turn (`above`), or not for this consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from msgspec import Struct

from infobus.protocols.frames.guaranteed import Entry, Kept


class Saved(Struct, frozen=True):
    """The state of one ledger that a durable consumer must not forget. Its size is bounded."""

    position: int = -1  # everything up to it is settled; -1: the ledger is new to the consumer
    above: frozenset[int] = frozenset()  # settled out of turn
    deliveries: dict[int, int] = {}  # of events that are not settled, where some were counted


@dataclass(slots=True)
class Held:
    """An event that has arrived and is not settled."""

    entry: Entry
    deliveries: int  # so far

    @property
    def size(self) -> int:
        """Return the bytes that it counts for."""
        return len(self.entry.body) + len(self.entry.subject)


@dataclass(slots=True, kw_only=True)
class LedgerStream:
    """One ledger, as a durable consumer sees it.

    Each number in `held` is in exactly one of `fresh`, `retries`, `out` and `dying`.
    """

    position: int = -1
    above: set[int] = field(default_factory=set)
    deliveries: dict[int, int] = field(default_factory=dict)
    cursor: int = -1
    held: dict[int, Held] = field(default_factory=dict)  # ascending
    held_bytes: int = 0
    fresh: deque[int] = field(default_factory=deque)
    retries: dict[int, float] = field(default_factory=dict)  # number -> when it is due
    out: set[int] = field(default_factory=set)  # in the application's hands
    dying: set[int] = field(default_factory=set)  # on their way to the dead-letter subject
    careful_until_s: float | None = None  # set by the first delivery; till then, all are counted
    is_changed: bool = False  # since it was last saved
    # The conversation with the node that serves the ledger.
    server: str | None = None
    asked: int | None = None  # the `after` of the question that waits for an answer
    is_refused: bool = False  # not asked again before the server says that it serves the ledger
    is_rewound: bool = False  # it ends before `position`, and the application knows
    told: int = -1  # the position last sent
    told_at_s: float = 0.0
    repeat_at_s: float = 0.0
    repeat_wait_s: float = 0.0

    @classmethod
    def of(cls, saved: Saved) -> LedgerStream:
        """Return the stream as it was saved."""
        return cls(
            position=saved.position,
            above=set(saved.above),
            deliveries=dict(saved.deliveries),
            cursor=saved.position,
        )

    def save(self) -> Saved:
        """Return the state that must be saved now."""
        self.is_changed = False
        return Saved(self.position, frozenset(self.above), dict(self.deliveries))

    def catch_up(self, position: int, above: Collection[int]) -> None:
        """Go on from where another use of the name has come to, if that is further.

        Nothing is changed once events have been asked for.
        """
        if position < self.position or self.held or self.asked is not None:
            return
        settled = {number for number in (*self.above, *above) if number > position}
        if (position, settled) != (self.position, self.above):
            self.position = self.cursor = position
            self.above, self.is_changed = settled, True
            self.deliveries = {n: count for n, count in self.deliveries.items() if n > position}

    def take(
        self, kept: Kept, count_max: int, bytes_max: int, is_double: Callable[[str, Entry], bool]
    ) -> None:
        """Hold events that have arrived, as far as there is room; the rest is asked for again.

        What has come from another ledger before counts as settled.
        """
        if kept.gone is not None:
            self.cursor = kept.gone[1]
        upto = kept.upto
        for entry in kept.entries:
            number = entry.number
            if number not in self.above:
                if len(self.held) >= count_max or self.held_bytes >= bytes_max:
                    upto = self.cursor
                    break
                if is_double(kept.ledger, entry):
                    self.cursor = number
                    continue
                self.held[number] = held = Held(entry, self.deliveries.get(number, 0))
                self.held_bytes += held.size
                self.fresh.append(number)
            self.cursor = number
        self.cursor = upto
        self._advance()

    def settle(self, number: int) -> int:
        """Note that `number`, which is held, needs no more attention. Returns its size."""
        size = self.held.pop(number).size
        self.held_bytes -= size
        self.deliveries.pop(number, None)
        self.above.add(number)
        self.is_changed = True
        self._advance()
        return size

    def next_to_hand(self, now_s: float, ordered: bool) -> int | None:
        """Remove and return the next waiting number that may go to the application."""
        if ordered and (self.out or self.dying):
            return None
        for number, due_s in self.retries.items():
            if due_s <= now_s:
                del self.retries[number]
                return number
        if (ordered and self.retries) or not self.fresh:
            return None
        return self.fresh.popleft()

    def _advance(self) -> None:
        position = next(iter(self.held)) - 1 if self.held else self.cursor
        if position > self.position:
            self.position, self.is_changed = position, True
            self.above = {number for number in self.above if number > position}


def is_sound(kept: Kept) -> bool:
    """Return whether numbers ascend from `after` to `upto`: first `gone`, then the entries."""
    last = kept.after
    if kept.gone is not None:
        first, last = kept.gone
        if not kept.after < first <= last:
            return False
    for entry in kept.entries:
        if entry.number <= last:
            return False
        last = entry.number
    return last <= kept.upto and kept.after < kept.upto
