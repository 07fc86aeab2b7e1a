"""The interest table across the border between two buses.

An `Agreement` governs what one bus tells its neighbour about its interest: which part of the
subjects both sides share, its name on either side, and a mandatory filter that everything exchanged
must pass. `Agreement.exported` turns rows of this bus into rows for the neighbour; `Imports` turns
a neighbour's rows into changes to what this node wants on its behalf.

A neighbour is not trusted with memory or work. Beyond its limits its rows are refused, counted, and
replaced by the row that covers everything it may ever get: all shared subjects, through the
mandatory filter. So it gets too much until it sends a table within its limits, never too little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from infobus.errors import BadFilter, BadSubject
from infobus.protocols.interest.own_rows import Row, is_keyed
from infobus.protocols.interest.renaming import Renaming
from infobus.subjects import check_pattern

_FILTERS_COUNT_MAX = 16_384
"""Filters of rows of which it is remembered what they are with the mandatory one."""


class Agreement:
    """What two buses share, what it is called on either side, and the mandatory filter.

    Args:
        inside: A form of names here; see `Renaming`. Empty: all subjects.
        outside: The same names at the neighbour.
        where: A filter that everything exchanged must pass; empty if there is none.

    Raises:
        BadSubject: The two forms do not fit each other.
    """

    def __init__(self, inside: str = "", outside: str = "", where: str = "") -> None:
        self.names = Renaming(inside, outside)
        self.where = where

    def exported(self, rows: Iterable[Row]) -> list[Row]:
        """Return what `rows` of this bus ask of the neighbour, in its own names.

        >>> agreement = Agreement("plant.oven", "eu.ovens", "secret == false")
        >>> agreement.exported([("plant.*.heat", "celsius > 90"), ("*.oven.>", ""), ("news.>", "")])
        [('eu.ovens.heat', 'celsius > 90 && secret == false'), ('eu.ovens.>', 'secret == false')]
        """
        return self._renamed(rows, self.names.outward_patterns)

    def imported(self, rows: Iterable[Row]) -> list[Row]:
        """Return what a neighbour's `rows` ask of this bus, in the names of this bus."""
        return self._renamed(rows, self.names.inward_patterns)

    def widest(self) -> list[Row]:
        """Return the rows, in the names of this bus, of everything that a neighbour can get."""
        return [(pattern, self.where) for pattern in self.names.inside.patterns]

    def _renamed(self, rows: Iterable[Row], rename: Callable[[str], list[str]]) -> list[Row]:
        found: dict[Row, None] = {}
        for pattern, where in rows:
            renamed = rename(pattern)
            if renamed:
                both = _both(where, self.where)
                found.update(dict.fromkeys((name, both) for name in renamed))
        return list(found)


@lru_cache(_FILTERS_COUNT_MAX)
def _both(where: str, mandatory: str) -> str:
    """Return a filter that passes what both pass; one not understood here counts as none.

    The keys that a row names stay.
    """
    from infobus.filters import compile  # late: a bus without filters needs none of it

    try:
        if is_keyed(where):
            from infobus.protocols.interest.keyed_filter import parted

            keys, where = parted(where)
            return f"{keys} {_both(where, mandatory)}".rstrip()
        if where and mandatory:
            return compile(f"({where}) && ({mandatory})").text
        return compile(where).text if where else mandatory
    except BadFilter:
        return mandatory


@dataclass(slots=True)
class _Table:
    """The state of one neighbour."""

    allowance: float  # changes that it may still make at once
    allowed_at_s: float
    rows: dict[Row, None] = field(default_factory=dict)


@dataclass(slots=True)
class Imports:
    """The interest of neighbours in this bus, within limits."""

    agreement: Agreement
    rows_count_max: int = 10_000  # of one neighbour
    changes_per_s: float = 1_000.0  # rows that one neighbour may add or take back
    changes_count_max: int = 20_000  # the same, at once after a quiet time
    tables: dict[str, _Table] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)  # neighbour -> rows

    def import_rows(
        self, neighbour: str, rows: Collection[Row], now_s: float
    ) -> tuple[list[Row], list[Row]]:
        """Accept a neighbour's table; return the rows to add here, and those to remove.

        The table is complete, so a neighbour may send it again at any time, and must do so after a
        refusal: nothing else ends it. A row that is malformed, or shares no subject, is left out
        alone.
        """
        table = self.tables.get(neighbour)
        if table is None:
            table = self.tables[neighbour] = _Table(self.changes_count_max, now_s)
        wanted = self._accepted(neighbour, table, rows, now_s)
        if wanted is None:
            self.refused[neighbour] += len(rows)
            wanted = dict.fromkeys(self.agreement.widest())
        added = [row for row in wanted if row not in table.rows]
        removed = [row for row in table.rows if row not in wanted]
        table.rows = wanted
        return added, removed

    def forget(self, neighbour: str) -> list[Row]:
        """A neighbour is gone: return the rows to remove."""
        table = self.tables.get(neighbour)
        if table is None:
            return []
        # Its allowance is remembered: going and coming back must not renew it.
        removed, table.rows = list(table.rows), {}
        return removed

    def _accepted(
        self, neighbour: str, table: _Table, rows: Collection[Row], now_s: float
    ) -> dict[Row, None] | None:
        """Return the rows to hold; None if a limit is exceeded. The work is limited, too."""
        earned = (now_s - table.allowed_at_s) * self.changes_per_s
        table.allowance = min(self.changes_count_max, table.allowance + earned)
        table.allowed_at_s = now_s
        if len(rows) > self.rows_count_max or table.allowance <= 0:
            return None
        well_formed = [row for row in rows if _is_well_formed(row)]
        wanted = dict.fromkeys(self.agreement.imported(well_formed))
        self.refused[neighbour] += len(rows) - len(well_formed)
        changes = len(wanted.keys() ^ table.rows.keys())
        table.allowance -= changes
        return wanted if table.allowance >= 0 else None


def _is_well_formed(row: Row) -> bool:
    try:
        check_pattern(row[0])
    except BadSubject:
        return False
    return True
