"""Translate values between TDL and Python, and count what they cost.

    TDL       nil                      t     list  hash table  symbol  number, string, object
    Python    None, False, [] or {}    True  list  dict        str     the same

If a value of a known kind is expected, the kind decides what nil becomes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from infobus.errors import BadValue
from infobus.objects import kinds
from infobus.objects.data import DataObject, attribute_values, bad_value, unknown_attributes
from infobus.objects.kinds import DEPTH_MAX, Kind, ListOf, MapOf, Maybe, Misfit
from infobus.tdl.conditions import WrongType, failed, wrong_type
from infobus.tdl.library.sequences import elements
from infobus.tdl.limits import CHARACTER_BYTES
from infobus.tdl.machine import Evaluation
from infobus.tdl.reader import INTEGER_BITS_MAX
from infobus.tdl.text import short
from infobus.tdl.values import Cell, Symbol, Table, make_list


def inward(run: Evaluation, value: Any, depth: int = 0) -> Any:
    """Translate a Python value to TDL; lists and maps are copied."""
    cls = value.__class__
    if cls is int and value.bit_length() > INTEGER_BITS_MAX:
        raise failed(f"an integer of more than {INTEGER_BITS_MAX} bits", WrongType)
    if cls in (str, int, float) or value is None or value is True:
        return value
    if value is False:
        return None
    if depth > DEPTH_MAX:
        raise failed(f"a value is nested deeper than {DEPTH_MAX} levels", WrongType)
    if isinstance(value, (list, tuple)):
        run.allocate(len(value))
        return make_list([inward(run, item, depth + 1) for item in value])
    if isinstance(value, dict):
        table = Table()
        run.allocate(4 + 4 * len(value))
        for key, item in value.items():
            table.entries[key.__class__, key] = inward(run, item, depth + 1)
        return table
    if isinstance(value, (DataObject, bytes, datetime)):
        return value
    raise wrong_type("a value from outside", "one that can be sent", cls.__name__)


def outward(run: Evaluation, value: Any, kind: Kind = kinds.ANY, depth: int = 0) -> Any:
    """Translate a TDL value to Python, where a value of `kind` is expected."""
    run.spend(1)
    cls = value.__class__
    if isinstance(kind, Maybe):
        return None if value is None else outward(run, value, kind.item, depth)
    if value is None:
        return nothing(kind)
    if cls in (str, int, float, bool, bytes, datetime):
        return value
    if cls is Symbol:
        return value.name.removeprefix(":")
    if depth > DEPTH_MAX:
        raise failed(f"a value is nested deeper than {DEPTH_MAX} levels", WrongType)
    if cls is Cell:
        item = kind.item if isinstance(kind, ListOf) else kinds.ANY
        run.allocate(1)
        return [outward(run, each, item, depth + 1) for each in elements(run, value)]
    if cls is Table:
        item = kind.item if isinstance(kind, MapOf) else kinds.ANY
        return {
            _key(key): outward(run, each, item, depth + 1)
            for (_, key), each in value.entries.items()
        }
    if isinstance(value, DataObject):
        return value
    raise wrong_type("a value for outside", "one that can be sent", short(value))


def nothing(kind: Kind) -> Any:
    """Return the Python value of nil where a value of `kind` is expected."""
    if kind == kinds.BOOL:
        return False
    if isinstance(kind, ListOf):
        return []
    return {} if isinstance(kind, MapOf) else None


def _key(value: Any) -> str:
    if value.__class__ is Symbol:
        return str(value.name.removeprefix(":"))
    if not isinstance(value, str):
        raise wrong_type("the key of a map", "a string", short(value))
    return value


def checked(kind: Kind, value: Any, where: str) -> Any:
    """Return `value` in plain form; raise `BadValue` if it is not of that kind."""
    try:
        return kind.check(value)
    except Misfit as misfit:
        raise bad_value(misfit, where) from None


def weigh(run: Evaluation, value: Any, depth: int = 0) -> None:
    """Charge the run for all parts of `value`, as often as sending it would write them.

    An object with shared parts can be much larger to write than it was to make.
    """
    run.spend(1)
    if depth > DEPTH_MAX:
        raise BadValue(f"the value is nested deeper than {DEPTH_MAX} levels, or cyclic")
    if isinstance(value, (str, bytes)):
        run.allocate(len(value), CHARACTER_BYTES)
    elif isinstance(value, DataObject):
        for item in (attribute_values(value) | unknown_attributes(value)).values():
            weigh(run, item, depth + 1)
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            weigh(run, item, depth + 1)
