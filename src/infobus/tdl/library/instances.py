"""Objects: creating them, reading and changing slots, and asking for their classes."""

from __future__ import annotations

from typing import Any

from infobus.errors import BadValue
from infobus.objects.data import DataObject, type_of, unknown_attributes
from infobus.tdl.boundary import inward, outward
from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import Error, Signal, failed, wrong_type
from infobus.tdl.library.sequences import new_list
from infobus.tdl.library.strings import text
from infobus.tdl.machine import Evaluation
from infobus.tdl.reader import SourcePosition
from infobus.tdl.text import formatted, short
from infobus.tdl.values import (
    Deep,
    Symbol,
    attribute_name,
    class_precedence,
    full_name,
    precedence,
    shown_name,
)


def make(run: Evaluation, named: Any, initial: tuple[Any, ...]) -> DataObject:
    """Make an object of the class `named`; keywords set its slots.

    This never calls the class's own Python methods, not even its `__init__`.
    """
    if named.__class__ is not Symbol:
        raise wrong_type("make-instance", "the name of a class", short(named))
    cls = run.interpreter.class_named(full_name(named.name))
    plan = cls.__bus_plan__
    values = {}
    for name, value in keywords(initial):
        attribute = plan.attributes.get(name)
        # An unknown slot is refused below, with a hint.
        values[name] = value if attribute is None else outward(run, value, attribute.kind)
    run.allocate(4 + plan.count)
    obj = plan.new()
    DataObject.__init__(obj, **values)
    return obj


def keywords(arguments: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Return pairs of attribute and value from `:name value ...`."""
    names = arguments[::2]
    if len(arguments) % 2 or not all(n.__class__ is Symbol and n.is_keyword for n in names):
        raise failed("expected keywords, each with a value, such as :name value")
    return [
        (attribute_name(name.name[1:]), value)
        for name, value in zip(names, arguments[1::2], strict=True)
    ]


@builtin("make-instance", 1, None, is_deep=True)
def _make_instance(run: Evaluation, at: SourcePosition, named: Any, *initial: Any) -> Deep:
    obj = make(run, named, initial)
    initialize = run.interpreter.function("initialize-instance")
    yield initialize.invoke(run, [obj, *initial], at)
    return obj


def _slot(obj: Any, named: Any, who: str) -> str:
    if not isinstance(obj, DataObject):
        raise wrong_type(who, "an object", short(obj))
    return attribute_name(text(named, who))


@builtin("slot-value", 2)
def slot_value(run: Evaluation, obj: Any, named: Any) -> Any:
    """Return the value of a slot; unknown attributes of received objects count as slots."""
    name = _slot(obj, named, "slot-value")
    if name in obj.__bus_plan__.attributes:
        return inward(run, obj.__dict__[name])
    extra = unknown_attributes(obj)
    if name in extra:
        return inward(run, extra[name])
    known = " ".join([*obj.__bus_plan__.attributes, *extra]) or "none"
    raise BadValue(f"{type_of(obj).name} has no slot {name}; it has {known}")


@builtin("(setf slot-value)", 3)
def set_slot_value(run: Evaluation, value: Any, obj: Any, named: Any) -> Any:
    """Set a slot; the value must be of the slot's type."""
    name = _slot(obj, named, "slot-value")
    attribute = obj.__bus_plan__.attributes.get(name)
    sent = outward(run, value) if attribute is None else outward(run, value, attribute.kind)
    run.allocate(1)
    DataObject.__setattr__(obj, name, sent)
    return value


@builtin("slot-exists-p", 2)
def _slot_exists(run: Evaluation, obj: Any, named: Any) -> Any:
    name = _slot(obj, named, "slot-exists-p")
    return True if name in obj.__bus_plan__.attributes or name in unknown_attributes(obj) else None


@builtin("slot-names", 1)
def _slot_names(run: Evaluation, of: Any) -> Any:
    """Return the slots of an object, or of the class with this name."""
    if isinstance(of, DataObject):
        names = [*of.__bus_plan__.attributes, *unknown_attributes(of)]
    else:
        cls = run.interpreter.class_named(full_name(text(of, "slot-names")))
        names = list(cls.__bus_plan__.attributes)
    return new_list(run, [Symbol(name) for name in dict.fromkeys(names)])


@builtin("class-precedence-list", 1)
def _class_precedence_list(run: Evaluation, named: Any) -> Any:
    cls = run.interpreter.class_named(full_name(text(named, "class-precedence-list")))
    names = class_precedence(cls, cls.__bus_type__.lineage)
    return new_list(run, [Symbol(shown_name(name)) for name in names])


@builtin("type-of", 1)
def _type_of(run: Evaluation, value: Any) -> Any:
    return Symbol(shown_name(precedence(value)[0]))


@builtin("typep", 2)
def _typep(run: Evaluation, value: Any, named: Any) -> Any:
    name = "t" if named is True else full_name(text(named, "typep"))
    return True if name in precedence(value) else None


@builtin("error", 1, None)
def _error(run: Evaluation, what: Any, *arguments: Any) -> Any:
    """Signal an error: a format text with values, a class with slots, or a condition."""
    if isinstance(what, str):
        raise Signal(Error(message=formatted(run, what, arguments)))
    condition = make(run, what, arguments) if what.__class__ is Symbol else what
    if "tdl.Condition" not in precedence(condition):
        raise wrong_type("error", "a text or a condition", short(condition))
    raise Signal(condition)
