"""Converts between single events and columns, the form of files, tables and data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from infobus.errors import UsageError
from infobus.filters.language.values import attributes_of


def columns_of(events: Iterable[object]) -> dict[str, list[Any]]:
    """Return the attributes of all events as columns, with None where an event lacks one.

    >>> columns_of([{"price": 41.5}, {"price": 40.0, "symbol": "GMC"}])
    {'price': [41.5, 40.0], 'symbol': [None, 'GMC']}
    """
    rows = [attributes_of(event) for event in events]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def rows_of_columns(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the events of a batch one by one.

    A column is a sequence, a numpy array (which may be masked) or a pyarrow column.

    Raises:
        UsageError: The columns are not equally long.
    """
    lists = [_plain(column) for column in columns.values()]
    lengths = {name: len(some) for name, some in zip(columns, lists, strict=True)}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"the columns of a batch are not equally long: {lengths}")
    # No Python code runs for each event; with few filters it would take most of the time.
    return map(dict, map(zip, repeat(list(columns)), zip(*lists, strict=True)))


def _plain(column: Any) -> Sequence[Any]:
    """Return the column as Python values, with None for missing ones."""
    for conversion in ("to_pylist", "tolist"):  # pyarrow; numpy
        if hasattr(column, conversion):
            plain: list[Any] = getattr(column, conversion)()
            return plain
    values: Sequence[Any] = column
    return values
