"""The functions on hash tables.

A table that is in a slot is the map which the object holds. Its values are translated one by
one, when the program reads or changes them.
"""

from __future__ import annotations

from typing import Any

from infobus.objects.data import bad_value
from infobus.objects.kinds import Misfit
from infobus.tdl.boundary import from_slot, held, slot_key, values_of
from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import failed, wrong_type
from infobus.tdl.library.sequences import function, new_list, options_in
from infobus.tdl.machine import Evaluation
from infobus.tdl.reader import SourcePosition
from infobus.tdl.text import short
from infobus.tdl.values import Deep, Function, Symbol, Table

HASHED_APART = 2**61 - 1
"""Integers below this have hashes of their own; from here on, Python's hashes start again."""
_KEYS = frozenset({str, int, float, Symbol, bool, type(None)})
_TESTS = ("eq", "eql", "equal")


def table(value: Any, who: str) -> Table:
    """Return `value` if it is a hash table."""
    if value.__class__ is not Table:
        raise wrong_type(who, "a hash table", short(value))
    found: Table = value
    return found


def _key(entries: Table, value: Any) -> Any:
    cls = value.__class__
    if entries.kind is not None:
        return slot_key(value)
    if cls is int and not -HASHED_APART < value < HASHED_APART:
        # Without the text, whose hash nobody can foresee, a program could fill a table with
        # integers of one hash. Every use of it would then look at all of them.
        return cls, value, hex(value)
    if cls not in _KEYS:
        raise wrong_type("a hash table", "a string, number or symbol as key", short(value))
    return cls, value


@builtin("make-hash-table", 0, None)
def _make_hash_table(run: Evaluation, *options: Any) -> Any:
    test = options_in("make-hash-table", options, ":test", ":size").get(":test")
    if test is not None and not (isinstance(test, (Symbol, Function)) and test.name in _TESTS):
        raise failed(f"make-hash-table: the test is one of {' '.join(_TESTS)}, which all compare "
                     "keys alike")  # fmt: skip
    run.allocate(4)
    return Table()


@builtin("gethash", 2, 3)
def _gethash(run: Evaluation, key: Any, entries: Any, default: Any = None) -> Any:
    entries = table(entries, "gethash")
    found = entries.entries.get(_key(entries, key), _MISSING)
    if found is _MISSING:
        return default
    return found if entries.kind is None else from_slot(run, found, entries.kind)


_MISSING = object()


@builtin("(setf gethash)", 3, 4)
def _set_gethash(run: Evaluation, value: Any, key: Any, entries: Any, default: Any = None) -> Any:
    entries = table(entries, "gethash")
    place = _key(entries, key)
    run.allocate(4)
    stored = value
    if entries.kind is not None:
        try:
            stored = held(run, value, entries.kind)
        except Misfit as misfit:
            raise bad_value(misfit, f"[{short(key)}]") from None
    entries.entries[place] = stored
    return value


@builtin("remhash", 2)
def _remhash(run: Evaluation, key: Any, entries: Any) -> Any:
    entries = table(entries, "remhash")
    return None if entries.entries.pop(_key(entries, key), _MISSING) is _MISSING else True


@builtin("hash-table-count", 1)
def _hash_table_count(run: Evaluation, entries: Any) -> Any:
    return len(table(entries, "hash-table-count").entries)


@builtin("hash-table-keys", 1)
def _hash_table_keys(run: Evaluation, entries: Any) -> Any:
    return new_list(run, table(entries, "hash-table-keys").keys())


@builtin("maphash", 2, is_deep=True)
def _maphash(run: Evaluation, at: SourcePosition, called: Any, entries: Any) -> Deep:
    called, entries = function(called, run), table(entries, "maphash")
    run.spend(len(entries.entries))
    for key, value in zip(entries.keys(), values_of(run, entries), strict=True):
        yield called.invoke(run, [key, value], at)
    return None
