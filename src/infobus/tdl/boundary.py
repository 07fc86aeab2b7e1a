"""Translate values between TDL and Python, and count what they cost.

    TDL       nil                      t     list  hash table  symbol  number, string, object
    Python    None, False, [] or {}    True  list  dict        str     the same

If a value of a known kind is expected, the kind decides what nil becomes. `inward` and `outward`
copy. `held` and `from_slot` are for the slots of objects: what you read is what you have set, so
an object and the program share a hash table, and a symbol, which could only come back as a
string, is refused.
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
        run.spend(len(value))
        run.allocate(len(value))
        return make_list([inward(run, item, depth + 1) for item in value])
    if isinstance(value, dict):
        table = Table()
        run.spend(len(value))
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
        items = elements(run, value)
        run.allocate(1 + len(items))
        return [outward(run, each, item, depth + 1) for each in items]
    if cls is Table:
        item = kind.item if isinstance(kind, MapOf) else kinds.ANY
        run.allocate(4 + 4 * len(value.entries))
        pairs = zip(value.keys(), values_of(run, value), strict=True)
        return {_key(key): outward(run, each, item, depth + 1) for key, each in pairs}
    if isinstance(value, DataObject):
        check_bound(value)
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


def values_of(run: Evaluation, table: Table) -> list[Any]:
    """Return the values in a hash table, as the program knows them."""
    if table.kind is None:
        return list(table.entries.values())
    return [from_slot(run, value, table.kind) for value in table.entries.values()]


def check_bound(obj: DataObject) -> None:
    """Signal a condition if a slot of the object has no value yet."""
    plan = obj.__bus_plan__
    if len(obj.__dict__) < plan.count:
        name = next(name for name in plan.attributes if name not in obj.__dict__)
        where = f"{obj.__bus_type__.name}.{name}"
        raise failed(
            f"{where}: expected {plan.attributes[name].type}, got no value: the slot is unbound; "
            "set it before the object leaves the program",
            WrongType,
        )


def from_slot(run: Evaluation, value: Any, kind: Kind, depth: int = 0) -> Any:
    """Return what an object holds as a value of `kind`, for the program.

    A map becomes a hash table that shares its entries with the object. Lists are copied.
    """
    if value.__class__ is dict:
        run.allocate(2)
        return Table(value, _item(kind, MapOf))
    if value.__class__ is not list:
        return inward(run, value)
    if depth > DEPTH_MAX:
        raise failed(f"a value is nested deeper than {DEPTH_MAX} levels", WrongType)
    run.spend(len(value))
    run.allocate(len(value))
    item = _item(kind, ListOf)
    return make_list([from_slot(run, each, item, depth + 1) for each in value])


def _item(kind: Kind, container: type[ListOf] | type[MapOf]) -> Kind:
    inner = kind.item if isinstance(kind, Maybe) else kind
    return inner.item if isinstance(inner, container) else kinds.ANY


def held(run: Evaluation, value: Any, kind: Kind, depth: int = 0) -> Any:
    """Return a value of the program in the form in which an object holds it.

    A hash table becomes the object's map itself, so later changes to either are changes to both.

    Raises:
        Misfit: It is not of that kind.
    """
    run.spend(1)
    cls = value.__class__
    if cls in _SCALARS or value is None or isinstance(value, DataObject):
        return kind.check(nothing(kind) if value is None else value)
    if cls is Symbol:
        text = value.name.removeprefix(":")
        hint = f'a slot cannot hold a symbol, because other programs read it; use "{text}"'
        raise Misfit(f"expected {kind}, got the symbol {value.name}: {hint}")
    inner = kind.item if isinstance(kind, Maybe) else kind
    fits = {Cell: (ListOf, type(kinds.ANY)), Table: (MapOf, type(kinds.ANY))}.get(cls, ())
    if not isinstance(inner, fits):
        raise Misfit(f"expected {kind}, got {short(value)}")
    if depth > DEPTH_MAX:
        raise Misfit(f"nested deeper than {DEPTH_MAX} levels, or cyclic")
    if cls is Cell:
        return _held_list(run, value, _item(inner, ListOf), depth + 1)
    return _held_map(run, value, _item(inner, MapOf), depth + 1)


def _held_list(run: Evaluation, value: Any, item: Kind, depth: int) -> list[Any]:
    items = elements(run, value)
    run.allocate(2 + len(items))
    result: list[Any] = []
    try:
        for each in items:
            result.append(held(run, each, item, depth))
    except Misfit as misfit:
        raise misfit.inside(f"[{len(result)}]") from None
    return result


def _held_map(run: Evaluation, table: Table, item: Kind, depth: int) -> dict[str, Any]:
    if table.kind is not None:
        if table.kind != item:
            raise Misfit(
                f"expected a hash table of {item}, got one that is in a slot of {table.kind} "
                "already, and cannot be in both; make a new one"
            )
        return table.entries
    run.allocate(4 + 4 * len(table.entries))
    result: dict[str, Any] = {}
    for key, value in table.items():
        name = slot_key(key)
        try:
            result[name] = held(run, value, item, depth)
        except Misfit as misfit:
            raise misfit.inside(f"[{name!r}]") from None
    table.entries, table.kind = result, item
    return result


def slot_key(value: Any) -> str:
    """Return a key of a hash table that is in a slot."""
    if value.__class__ is not str:
        hint = "" if value.__class__ is not Symbol else f', such as "{value.name.lstrip(":")}"'
        raise failed(
            f"a hash table in a slot has strings as keys{hint}; got {short(value)}", WrongType
        )
    return str(value)


_SCALARS = frozenset({str, int, float, bool, bytes, datetime})


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
