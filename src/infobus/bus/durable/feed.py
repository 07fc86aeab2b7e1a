"""Guaranteed events as they are kept, for a router, which keeps them elsewhere and reads none.

A `LedgerFeed` is a durable consumer. It gets many events at a time, those of each ledger in their
order, and settles them together. None of them ever becomes a dead letter here: one that is too
old, or that a consumer cannot use, is the business of the consumer that it is for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from queue import Empty
from typing import TYPE_CHECKING

from msgspec import Struct

from infobus.errors import BusClosed, BusError
from infobus.protocols.frames.guaranteed import Entry
from infobus.waiters import Mailbox

if TYPE_CHECKING:
    from infobus.bus.durable.driver import Guarantees

log = logging.getLogger("infobus")


class Fed(Struct, frozen=True, gc=False):
    """One event, and the ledger that it was read from."""

    ledger: str
    entry: Entry


class LedgerFeed:
    """The guaranteed events of a durable consumer, undecoded. Made by `Guaranteed.feed`."""

    def __init__(
        self,
        guarantees: Guarantees,
        name: str,
        patterns: Sequence[str],
        on_error: Callable[[BusError], object],
    ) -> None:
        self.name = name
        self.patterns = tuple(patterns)
        self.lost = 0  # reported losses
        self._guarantees = guarantees
        self._on_error = on_error
        self._mail: Mailbox[Fed | None] = Mailbox()  # None: the taker must look up
        self._why: BusError | None = None
        self._is_closed = False

    def take(self, count_max: int, timeout_s: float) -> list[Fed]:
        """Take what has come, at most so many events; wait for the first one for so long.

        None are returned if none came in time, or if `wake` was called.

        Raises:
            BusError: The feed has ended, and why.
        """
        taken: list[Fed] = []
        try:
            while len(taken) < count_max:
                one = self._mail.get_nowait() if taken else self._mail.get(timeout=timeout_s)
                if one is None:
                    break
                taken.append(one)
        except Empty:
            return taken
        if self._is_closed:
            raise self._why or BusClosed(f"the feed {self.name!r} is closed")
        return taken

    def wake(self) -> None:
        """Let a thread that waits in `take` return."""
        self._mail.put(None)

    def settle(self, taken: Iterable[Fed]) -> None:
        """Settle events: they do not come again. It is on disk some moments later."""
        places = [(one.ledger, one.entry.number) for one in taken]
        self._guarantees.settle(self, places)

    def close(self) -> None:
        """Take no more; what is not settled comes again the next time. Closing twice is fine."""
        if not self._is_closed:
            self._guarantees.release(self)

    # What the bus does.

    def feed(self, ledger: str, entry: Entry) -> None:
        """Hand an event over."""
        self._mail.put(Fed(ledger, entry))

    def offer(self, error: BusError) -> None:
        """Report an error, after which the feed goes on."""
        self._on_error(error)

    def end(self, error: BusError | None = None) -> None:
        """Take no more in."""
        self._is_closed, self._why = True, error
        self._mail.put(None)

    def abandon(self, why: BusError) -> None:
        """End in a forked child, where the parent's threads may hold the locks for ever."""
        self._mail = Mailbox()
        self.end(why)
