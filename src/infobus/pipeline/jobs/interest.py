"""Decides which of many subscriptions want which rows of a DataFrame, batch by batch.

It runs inside Spark's workers, on Arrow tables. No loop here iterates over events and
subscriptions: `Matcher` matches filters, and patterns are matched once for each different subject.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from infobus.filters import Filter, Matcher, compile
from infobus.filters.language.tree import HEADERS, Name, nodes
from infobus.filters.matching.columns import columns_of
from infobus.headers import NO_HEADERS, with_headers
from infobus.objects import find_type
from infobus.pipeline.jobs.subscription import TrialSubscription
from infobus.stores.journal.columns import ATTRIBUTES, ENVELOPE, REST, TIME, TOLD
from infobus.stores.journal.journal import Journal
from infobus.stores.journal.rows import attributes_by_row, headers_by_row, only_about
from infobus.stores.journal.typed_maps import object_under
from infobus.subjects import SubjectTrie

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Array = np.ndarray[Any, Any]
Pairs = tuple[Array, Array]
"""Numbers of rows, and of the subscriptions that want them."""


def asked_columns(frame: DataFrame, names: Iterable[str]) -> Column:
    """Return the columns of a frame that these attributes need, as one struct."""
    from pyspark.sql import functions as F

    wanted = {*names, "_subject", "_type"}
    columns = [F.col(f"`{name}`") for name in frame.columns if name in wanted]
    for name in {REST, *([TOLD] if HEADERS in wanted else [])}.intersection(frame.columns):
        # Without a map, Spark examines, at each row, all rows since the last one.
        nothing = F.create_map().cast(frame.schema[name].dataType)
        columns.append(F.coalesce(F.col(name), nothing).alias(name))
    return F.struct(*columns)


def arrow_function(function: Callable[..., pa.Array], returns: str) -> Callable[..., Column]:
    """Turn a function on Arrow arrays, as annotated, into a function on Spark columns."""
    from pyspark.sql.pandas.functions import arrow_udf

    declare: Any = arrow_udf  # its own annotations do not cover this use
    made: Callable[..., Column] = declare(function, returns)
    return made


def table_of(rows: pa.StructArray) -> pa.Table:
    """Return rows from Spark as a table, with the types that a journal has for them."""
    table = pa.Table.from_struct_array(rows)
    fields = [pa.field(field.name, _as_in_journals(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _as_in_journals(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return TIME
    if pa.types.is_list(type_):
        return pa.list_(pa.field("item", _as_in_journals(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(one.name, _as_in_journals(one.type)) for one in type_])
    if pa.types.is_map(type_):
        item = _as_in_journals(type_.item_type)
        is_value = pa.types.is_struct(item) and [one.name for one in item] == _VALUE_NAMES
        return ATTRIBUTES if is_value else pa.map_(pa.string(), item)
    return type_


_VALUE_NAMES = [field.name for field in ATTRIBUTES.item_type]


def names_in(filters: Iterable[Filter]) -> set[str]:
    """Return the attributes that filters use, without the names inside; `HEADERS` for headers."""
    trees = (filter.tree for filter in filters)
    return {node.path[0] for tree in trees for node in nodes(tree) if isinstance(node, Name)}


class Rows:
    """The attributes of each row of a table, and its objects where a type is asked for."""

    def __init__(self, table: pa.Table, names: set[str], journal: str | None) -> None:
        self._table = table
        self._journal = journal
        if REST in table.column_names:
            table = only_about(table, names)
        self.attributes = attributes_by_row(table)
        for name in names & set(ENVELOPE.names) & set(table.column_names):
            for row, value in zip(self.attributes, table[name].to_pylist(), strict=True):
                row[name] = value
        if HEADERS in names:
            for row, headers in zip(self.attributes, headers_by_row(table), strict=True):
                row[HEADERS] = headers

    def objects(self) -> list[Any]:
        """Return the rows as objects of their types if these are known; others as dicts.

        Those with headers are as filters see them.
        """
        names = self._table["_type"].to_pylist()
        fingerprints = {name: _fingerprint(name, self._journal) for name in set(names)}
        found = []
        for name, row in zip(names, self.attributes, strict=True):
            attributes = {one: value for one, value in row.items() if one != HEADERS}
            obj = object_under(fingerprints[name], attributes, None)
            found.append(with_headers(obj, row.get(HEADERS, NO_HEADERS)))
        return found


def _fingerprint(name: str | None, journal: str | None) -> int:
    if name is None:
        return 0
    known = find_type(name)
    if known is None and journal is not None:
        Journal.open(journal).types()  # this learns them
        known = find_type(name)
    return 0 if known is None else known.fingerprint


class InterestInRows:
    """Subscriptions by number, which answers which of them want which rows."""

    def __init__(
        self, subscriptions: Sequence[TrialSubscription], journal: str | None = None
    ) -> None:
        self.journal = journal
        self._plain, self._typed = Matcher(), Matcher()
        self._unfiltered = SubjectTrie[int]()
        patterns: dict[str, int] = {}
        self._pattern_of = np.zeros(len(subscriptions), np.int64)
        filters = []
        for number, one in enumerate(subscriptions):
            if one.where is None:
                self._unfiltered.add(one.subject, number)
                continue
            self._pattern_of[number] = patterns.setdefault(one.subject, len(patterns))
            filter = compile(one.where)
            filters.append(filter)
            (self._typed if filter.asks_for_type else self._plain).add(number, filter)
        self.names = names_in(filters)
        self._patterns = SubjectTrie[int]()
        for pattern, code in patterns.items():
            self._patterns.add(pattern, code)
        self._patterns_count = len(patterns)

    def filtered(self, table: pa.Table, rows: Rows) -> Pairs:
        """Return which rows are wanted by which subscriptions that have a filter."""
        if not self._patterns_count:
            return _flat([])
        answers: list[list[Hashable]] = [[] for _ in rows.attributes]
        if len(self._plain) and answers:
            # If no row has any attribute, the rows must still be counted.
            columns = columns_of(rows.attributes) or {"": [None] * len(answers)}
            answers = self._plain.match_batch(columns)
        if len(self._typed):
            for answer, obj in zip(answers, rows.objects(), strict=True):
                answer += self._typed.match(obj)
        at, numbers = _flat(answers)
        codes, subjects = _subjects(table)
        found = [self._patterns.match(subject) for subject in subjects]
        subject_codes, pattern_codes = _flat(found)
        allowed = subject_codes * self._patterns_count + pattern_codes
        is_wanted = np.isin(codes[at] * self._patterns_count + self._pattern_of[numbers], allowed)
        return at[is_wanted], numbers[is_wanted]

    def unfiltered(self, table: pa.Table) -> tuple[Array, Pairs]:
        """Return each row's subject as a number, and the subjects wanted without a filter."""
        codes, subjects = _subjects(table)
        return codes, _flat([self._unfiltered.match(subject) for subject in subjects])


def _subjects(table: pa.Table) -> tuple[Array, list[str]]:
    encoded = table["_subject"].combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _flat(lists: Sequence[Sequence[Any]]) -> Pairs:
    """Return lists as pairs: the number of the list, and an element of it.

    >>> [array.tolist() for array in _flat([[7], [], [8, 9]])]
    [[0, 2, 2], [7, 8, 9]]
    """
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    items = np.fromiter(chain.from_iterable(lists), np.int64, int(counts.sum()))
    return np.repeat(np.arange(len(lists)), counts), items
