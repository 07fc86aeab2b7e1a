"""Objects: creating them, reading and changing slots, and asking for their classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from infobus.errors import BadValue
from infobus.objects.data import (
    DataObject,
    Foreign,
    bad_value,
    set_state,
    set_tag,
    type_of,
    unknown_attributes,
)
from infobus.objects.kinds import ANY, Misfit
from infobus.tdl.boundary import check_bound, from_slot, held, outward
from infobus.tdl.classes.renewal import fresh_default, renew
from infobus.tdl.classes.table import Recipe
from infobus.tdl.compiler import builtin
from infobus.tdl.conditions import Error, Signal, Unbound, failed, wrong_type
from infobus.tdl.library.sequences import new_list
from infobus.tdl.library.strings import text
from infobus.tdl.machine import Evaluation, allows_others
from infobus.tdl.reader import SourcePosition
from infobus.tdl.text import formatted, short
from infobus.tdl.values import (
    BUILT_IN_CLASSES,
    ClassObject,
    Deep,
    Symbol,
    attribute_name,
    built_in_precedence,
    class_precedence,
    full_name,
    precedence,
    shown_name,
)

SLOTS_SHOWN_MAX = 20
CLOSE = 0.8
"""How much of two names must agree for one to be suggested for the other."""


def class_in(run: Evaluation, named: Any, who: str) -> type[DataObject]:
    """Return the class that a symbol or a class object names."""
    if named.__class__ not in (Symbol, ClassObject):
        raise wrong_type(who, "the name of a class", short(named))
    if named.name in BUILT_IN_CLASSES:
        raise failed(
            f"{who}: {named.name} is built in and has no slots; expected a class of objects"
        )
    return run.interpreter.class_named(full_name(named.name))


def new(run: Evaluation, cls: type[DataObject]) -> DataObject:
    """Return an object whose slots are all unbound.

    This never calls the class's own Python methods, not even its `__init__`.
    """
    plan = cls.__bus_plan__
    run.allocate(4 + plan.count)
    obj = plan.new()
    set_state(obj, {})
    set_tag(obj, None)
    return obj


def initialize(run: Evaluation, obj: Any, *initial: Any) -> Any:
    """Set slots by keywords, and the others that are unbound to their defaults.

    This is the last method of `initialize-instance`. It ignores keywords that are not for slots:
    `make-instance` has checked them.
    """
    if not isinstance(obj, DataObject):
        raise wrong_type("initialize-instance", "an object", short(obj))
    recipe = run.interpreter.recipe(obj.__class__)
    attributes, state = obj.__bus_plan__.attributes, obj.__dict__
    done = set()
    for keyword, value in keywords(initial):
        for name in recipe.slots_for(keyword):
            if name not in done:  # of several initargs for one slot, the first counts
                done.add(name)
                put(run, obj, name, value)
    for name, attribute in attributes.items():
        if attribute.has_default and name not in state:
            state[name] = fresh_default(run, attribute)
    return obj


def keywords(arguments: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Return pairs of keyword and value from `:name value ...`."""
    names = arguments[::2]
    if len(arguments) % 2 or not all(n.__class__ is Symbol and n.is_keyword for n in names):
        raise failed("expected keywords, each with a value, such as :name value")
    return [(name.name, value) for name, value in zip(names, arguments[1::2], strict=True)]


def _check_initargs(
    run: Evaluation, obj: DataObject, initial: tuple[Any, ...], recipe: Recipe
) -> None:
    """Signal a condition if a keyword is for no slot, and no method takes it."""
    strange = [name for name, _ in keywords(initial) if not recipe.slots_for(name)]
    if not strange or allows_others(initial):
        return
    generic = run.interpreter.initializer
    written = [m.parameters for m in generic.plan(run, [obj]).methods if m.is_written]
    taken = {key for one in written for key in one.keys or ()}
    run.spend(len(taken))
    unknown = [name for name in strange if name not in taken and name != ":allow-other-keys"]
    if unknown and not any(one.others_allowed for one in written):
        raise no_such(run, obj, attribute_name(unknown[0][1:]), "attribute")


@builtin("make-instance", 1, None, is_deep=True)
def _make_instance(run: Evaluation, at: SourcePosition, named: Any, *initial: Any) -> Deep:
    recipe = run.interpreter.recipe(class_in(run, named, "make-instance"))
    if recipe.default_initargs:
        given = {name for name, _ in keywords(initial)}
        for keyword, (code, frame) in recipe.default_initargs.items():
            if keyword not in given:
                value = yield from run.value_of(code, frame)
                initial = (*initial, Symbol(keyword), value)
    obj = new(run, recipe.cls)
    _check_initargs(run, obj, initial, recipe)
    generic = run.interpreter.initializer
    if len(generic.methods) == 1:  # only the one of the language
        initialize(run, obj, *initial)
    else:
        yield generic.invoke(run, [obj, *initial], at)
    return obj


def _slot(run: Evaluation, obj: Any, named: Any, who: str) -> str:
    if not isinstance(obj, DataObject):
        raise wrong_type(who, "an object", short(obj))
    if run.interpreter.outdated:
        renew(run, obj)
    return attribute_name(text(named, who))


def no_such(run: Evaluation, obj: DataObject, name: str, what: str) -> BadValue:
    """Return the error for a slot that an object does not have, with a hint."""
    names = [*obj.__bus_plan__.attributes, *run.interpreter.recipe(obj.__class__).shared]
    run.spend(sum(map(len, names)) // 4)
    close = [other for other in names if _are_close(name, other)]
    hint = f"; did you mean {close[0]!r}?" if close else ""
    known = " ".join([*names[:SLOTS_SHOWN_MAX], *(["..."] if len(names) > SLOTS_SHOWN_MAX else [])])
    if what == "slot":
        hint = hint or f"; it has {known or 'none'}"
        return BadValue(f"{type_of(obj).name} has no slot {name}{hint}")
    return BadValue(f"{type_of(obj).name} has no {what} {name!r}{hint}")


def _are_close(one: str, other: str) -> bool:
    """Return whether two names have most letters in common; this takes linear time."""
    common = sum((Counter(one) & Counter(other)).values())
    return 2 * common >= CLOSE * (len(one) + len(other))


@builtin("slot-value", 2)
def slot_value(run: Evaluation, obj: Any, named: Any) -> Any:
    """Return the value of a slot; unknown attributes of received objects count as slots."""
    name = _slot(run, obj, named, "slot-value")
    attribute = obj.__bus_plan__.attributes.get(name)
    if attribute is not None:
        try:
            value = obj.__dict__[name]
        except KeyError:
            raise _unbound(obj, name) from None
        return value if value.__class__ in _AS_IT_IS else from_slot(run, value, attribute.kind)
    shared = run.interpreter.recipe(obj.__class__).shared.get(name)
    if shared is not None:
        if not shared.value:
            raise _unbound(obj, name)
        return shared.value[0]
    extra = unknown_attributes(obj)
    if name in extra:
        return from_slot(run, extra[name], ANY)
    raise no_such(run, obj, name, "slot")


_AS_IT_IS = frozenset({str, int, float})


def _unbound(obj: DataObject, name: str) -> Signal:
    return failed(f"the slot {name} of {type_of(obj).name} is unbound: it has no value", Unbound)


@builtin("(setf slot-value)", 3)
def set_slot_value(run: Evaluation, value: Any, obj: Any, named: Any) -> Any:
    """Set a slot; the value must be of the slot's type."""
    put(run, obj, _slot(run, obj, named, "slot-value"), value)
    run.allocate(1)
    return value


def put(run: Evaluation, obj: DataObject, name: str, value: Any) -> None:
    """Set the slot `name`, wherever its value is kept."""
    attribute = obj.__bus_plan__.attributes.get(name)
    shared = None if attribute else run.interpreter.recipe(obj.__class__).shared.get(name)
    tag = obj.__bus_tag__
    try:
        if shared is not None:
            if shared.kind != ANY:
                shared.kind.check(outward(run, value, shared.kind))
            shared.value[:] = [value]
        elif attribute is None:
            is_untyped = tag.__class__ is Foreign and obj.__class__ is DataObject
            if name not in unknown_attributes(obj) and not is_untyped:
                raise no_such(run, obj, name, "attribute")
            run.spend(len(unknown_attributes(obj)) // 8)
            DataObject.__setattr__(obj, name, held(run, value, ANY))
        else:
            plain = value
            if value.__class__ is not attribute.kind.exact:
                plain = held(run, value, attribute.kind)
            if tag.__class__ is Foreign:
                run.spend((len(tag.extra) + len(tag.filled)) // 8)  # both may be copied
                DataObject.__setattr__(obj, name, plain)
            obj.__dict__[name] = plain
    except Misfit as misfit:
        raise bad_value(misfit, f"{type_of(obj).name}.{name}") from None


@builtin("slot-boundp", 2)
def _slot_boundp(run: Evaluation, obj: Any, named: Any) -> Any:
    name = _slot(run, obj, named, "slot-boundp")
    if name in obj.__bus_plan__.attributes:
        return True if name in obj.__dict__ else None
    shared = run.interpreter.recipe(obj.__class__).shared.get(name)
    if shared is not None:
        return True if shared.value else None
    if name in unknown_attributes(obj):
        return True
    raise no_such(run, obj, name, "slot")


@builtin("slot-exists-p", 2)
def _slot_exists(run: Evaluation, obj: Any, named: Any) -> Any:
    name = _slot(run, obj, named, "slot-exists-p")
    is_own = name in obj.__bus_plan__.attributes or name in unknown_attributes(obj)
    is_shared = name in run.interpreter.recipe(obj.__class__).shared
    return True if is_own or is_shared else None


@builtin("slot-names", 1)
def _slot_names(run: Evaluation, of: Any) -> Any:
    """Return the slots of an object, or of a class."""
    if isinstance(of, DataObject):
        renew(run, of)
        cls, extra = of.__class__, unknown_attributes(of)
    else:
        cls, extra = class_in(run, of, "slot-names"), {}
    names = [*cls.__bus_plan__.attributes, *run.interpreter.recipe(cls).shared, *extra]
    return new_list(run, [Symbol(name) for name in dict.fromkeys(names)])


@builtin("class-precedence-list", 1)
def _class_precedence_list(run: Evaluation, named: Any) -> Any:
    if named.__class__ in (Symbol, ClassObject) and named.name in BUILT_IN_CLASSES:
        return new_list(run, [Symbol(name) for name in built_in_precedence(named.name)])
    cls = class_in(run, named, "class-precedence-list")
    names = class_precedence(cls, cls.__bus_type__.lineage)
    return new_list(run, [Symbol(shown_name(name)) for name in names])


@builtin("type-of", 1)
def _type_of(run: Evaluation, value: Any) -> Any:
    renew(run, value)
    return Symbol(shown_name(precedence(value)[0]))


@builtin("class-of", 1)
def _class_of(run: Evaluation, value: Any) -> Any:
    renew(run, value)
    run.allocate(1)
    return ClassObject(precedence(value)[0])


@builtin("find-class", 1, 2)
def _find_class(run: Evaluation, named: Any, *must_exist: Any) -> Any:
    name = "t" if named is True else full_name(_name(named, "find-class"))
    if run.interpreter.has_class(name):
        run.allocate(1)
        return ClassObject(name)
    if must_exist and must_exist[0] is None:
        return None
    raise failed(f"there is no class {name}", Unbound)


@builtin("class-name", 1)
def _class_name(run: Evaluation, value: Any) -> Any:
    if value.__class__ is not ClassObject:
        raise wrong_type("class-name", "a class, as class-of and find-class return", short(value))
    return Symbol(shown_name(value.name))


def _name(value: Any, who: str) -> str:
    return value.name if value.__class__ is ClassObject else text(value, who)


@builtin("typep", 2)
def _typep(run: Evaluation, value: Any, named: Any) -> Any:
    renew(run, value)
    name = "t" if named is True else full_name(_name(named, "typep"))
    names = precedence(value)
    run.spend(len(names) // 16)
    if name in names:
        return True
    if not run.interpreter.has_class(name):
        raise failed(f"typep: there is no class {name}", Unbound)
    return None


@builtin("error", 1, None)
def _error(run: Evaluation, what: Any, *arguments: Any) -> Any:
    """Signal an error: a format text with values, a class with slots, or a condition."""
    if isinstance(what, str):
        raise Signal(Error(message=formatted(run, what, arguments)))
    condition = what
    if what.__class__ in (Symbol, ClassObject):
        condition = _condition(run, what, arguments)
    if "tdl.Condition" not in precedence(condition):
        raise wrong_type("error", "a text or a condition", short(condition))
    check_bound(condition)
    raise Signal(condition)


def _condition(run: Evaluation, named: Any, initial: tuple[Any, ...]) -> DataObject:
    recipe = run.interpreter.recipe(class_in(run, named, "error"))
    if recipe.default_initargs:
        raise failed("error: a class with :default-initargs; use (error (make-instance ...))")
    condition = new(run, recipe.cls)
    _check_initargs(run, condition, initial, recipe)
    initialize(run, condition, *initial)
    return condition
