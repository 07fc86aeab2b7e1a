"""What anyone wants of a producer's subjects, so that it need not make the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from infobus.bus.runtime.runtime import Runtime
from infobus.errors import BadFilter, BusClosed
from infobus.filters import compile
from infobus.filters.algebra.producer_view import Condition, Range
from infobus.filters.algebra.reduce import Combined
from infobus.filters.algebra.wants import Wants
from infobus.filters.language.tree import HEADERS
from infobus.headers import HeaderValue
from infobus.protocols.interest.own_rows import Row, channel_pattern, is_keyed
from infobus.subjects import TEST_SPACE, overlaps

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

GATHER_S = 0.05
"""Changes that follow each other within this time are told as one."""


class QuenchChange(Struct, frozen=True):
    """Some subscriptions came and some went.

    `added` and `removed` are subject patterns with the text of their filters (empty: none), as
    the subscribers' nodes tell them: reduced, and each once however many want it.
    """

    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    expression: Combined
    """What is wanted now, all together."""


class _Seen(Struct):
    """A change that can be told."""

    change: QuenchChange
    told: dict[Row, None]  # the rows of which others had been told before
    rows: dict[Row, None]  # those there are now


class Quench:
    """A producer's view of what anyone wants under `pattern`. Made by `Bus.quench`.

    Every answer is of the moment, and errs to "wanted". Subscriptions of this process count. Those
    that ask for signatures which this home cannot make do not.
    """

    def __init__(self, runtime: Runtime, pattern: str, home: Path) -> None:
        self.pattern = pattern
        self._home = home
        self._runtime = runtime
        self._wants = Wants()
        self._rows: dict[Row, None] = {}
        self._lock = threading.RLock()
        self._version = -1
        self._is_closed = False
        with runtime.lock:
            # A node that asks is told the rows, even by nodes that do not hold them at present.
            runtime.node.rows.need(channel_pattern(pattern, runtime.node.terms.depth))
        self._told = self._refresh()  # rows that `changes` has told of

    def expression(self) -> Combined:
        """What all subscriptions ask for together, reduced.

        Subscriptions that others cover are absorbed, adjacent ranges and equalities merged. Its
        `str()` is one filter, or `everything` or `nothing`.
        """
        with self._lock:
            self._refresh()
            return self._wants.expression()

    def wants(
        self,
        partial: Mapping[str, Any],
        *,
        closed: bool = False,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> bool | None:
        """Whether anyone wants an event with the attributes in `partial`.

        Args:
            partial: The attributes that are known already.
            closed: There will be no other attributes.
            headers: All headers that it will have; if they are not given, it may have any.

        Returns:
            True: somebody does, whatever else it holds. False: nobody can. None: it depends on
            attributes or headers that are not known yet.
        """
        if headers is not None:
            partial = {**partial, HEADERS: headers}
        with self._lock:
            self._refresh()
            return self._wants.wants(partial, closed)

    def values(
        self,
        *attributes: str,
        operators: Collection[str] | None = None,
        range: Range | Mapping[str, Range] | None = None,
    ) -> list[list[Condition]]:
        """What subscriptions ask of some attributes, in the paper's higher-order form.

        A list of alternatives, each a list of conditions `(operator, value)` that hold together
        (`(attribute, operator, value)` where several attributes are asked for). An empty one
        stands for subscriptions that may want any value; no alternative at all: nothing is
        wanted. See `infobus.filters.algebra.wants.Wants.values` for the operators.

        Args:
            attributes: Those that the producer can choose by.
            operators: Those it can deal with; conditions with others count as none.
            range: The values it can have: a pair (low, high), a set, a function, or a mapping
                from attributes to such.
        """
        with self._lock:
            self._refresh()
            return self._wants.values(*attributes, operators=operators, range=range)

    def changes(self, timeout_s: float | None = None) -> Changes:
        """Each change since the one told before, or since this view was made; waits for them.

        Iterate it, also with `async for`. It ends when this view or the bus is closed, or when
        nothing has changed for `timeout_s`.
        """
        return Changes(self, timeout_s)

    def next_change(self, timeout_s: float | None) -> QuenchChange | None:
        """The next change; None at the end, or if there was none for `timeout_s`."""
        while True:
            self._runtime.wait_until(self._is_worth_a_look, timeout_s)
            if self.is_closed or not self._may_have_changed():
                return None
            time.sleep(GATHER_S)
            if (seen := self._look()) is not None and self._is_news(seen):
                return seen.change

    async def next_change_async(self, timeout_s: float | None) -> QuenchChange | None:
        """As `next_change`, for a task; if that is cancelled, the change is told the next time."""
        import asyncio  # takes half as long to import as the rest of the package

        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._runtime.changed.until(self._is_worth_a_look)
            except TimeoutError:
                return None
            if self.is_closed:
                return None
            await asyncio.sleep(GATHER_S)
            # On a thread, because there may be many filters to combine.
            seen = await asyncio.to_thread(self._look)
            if seen is not None and self._is_news(seen):
                return seen.change

    @property
    def is_closed(self) -> bool:
        """Whether this view, or its bus, is closed."""
        return self._is_closed or self._runtime.is_closed

    def close(self) -> None:
        """End every `changes`; nothing else needs it."""
        self._is_closed = True
        self._runtime.wake()

    def __enter__(self) -> Quench:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Quench {self.pattern}: {self.expression()}>"

    def _look(self) -> _Seen | None:
        """What has changed since it was told last; None if this view is closed."""
        with self._lock:
            if self.is_closed:
                return None
            told, rows = self._told, self._refresh()
            added = tuple(row for row in rows if row not in told)
            removed = tuple(row for row in told if row not in rows)
            return _Seen(QuenchChange(added, removed, self._wants.expression()), told, rows)

    def _is_news(self, seen: _Seen) -> bool:
        """Take note that something is told now; False if there is nothing new in it."""
        with self._lock:
            if self._told is not seen.told:
                return False  # somebody else has told of a change meanwhile
            self._told = seen.rows
            return bool(seen.change.added or seen.change.removed)

    def _is_worth_a_look(self) -> bool:
        return self.is_closed or self._may_have_changed()

    def _may_have_changed(self) -> bool:
        return self._version != self._runtime.interest_version or self._rows != self._told

    def _refresh(self) -> dict[Row, None]:
        runtime = self._runtime
        with runtime.lock:
            if runtime.is_closed:
                raise BusClosed("the bus is closed")
            if self._version == runtime.interest_version:
                return self._rows
            self._version = runtime.interest_version
            found = runtime.node.rows.overlapping(self.pattern)
            own = list(runtime.node.own.wanted)
        found += [row for row in own if overlaps(self.pattern, row[0])]
        asked = (row for row in found if not row[0].startswith(TEST_SPACE))
        rows = {one: None for row in asked if (one := self._as_satisfiable(row)) is not None}
        for row in self._rows.keys() - rows.keys():
            self._wants.remove(row)
        for row in rows.keys() - self._rows.keys():
            try:
                self._wants.add(row, compile(row[1]) if row[1] else None)
            except BadFilter:  # of a newer language: it may want anything
                self._wants.add(row, None)
        self._rows = rows
        return rows

    def _as_satisfiable(self, row: Row) -> Row | None:
        """A row without the keys that it names; None if this home's keys cannot satisfy it."""
        pattern, where = row
        if not is_keyed(where):
            return row
        from infobus.protocols.interest.keyed_filter import keyed_filter  # late: few have keys

        try:
            wanted = keyed_filter(where)
        except BadFilter:  # of a later version: it may want anything
            return pattern, ""
        if not wanted.satisfiable_by(self._pairs):
            return None
        return pattern, "" if wanted.where is None else wanted.where.text

    @cached_property
    def _pairs(self) -> frozenset[bytes]:
        """The keys with which this home can sign."""
        from infobus.stores.event_keys import EventKeyFolder

        folder = EventKeyFolder(self._home)
        return frozenset(
            folder.pair(name).id for name, is_pair in folder.names().items() if is_pair
        )


class Changes:
    """The live feed of a `Quench`."""

    def __init__(self, quench: Quench, timeout_s: float | None) -> None:
        self._quench = quench
        self._timeout_s = timeout_s

    def __iter__(self) -> Iterator[QuenchChange]:
        return self

    def __next__(self) -> QuenchChange:
        change = self._quench.next_change(self._timeout_s)
        if change is None:
            raise StopIteration
        return change

    def __aiter__(self) -> AsyncIterator[QuenchChange]:
        return self

    async def __anext__(self) -> QuenchChange:
        change = await self._quench.next_change_async(self._timeout_s)
        if change is None:
            raise StopAsyncIteration
        return change
