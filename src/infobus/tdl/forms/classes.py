"""`defclass` and `define-condition`, which define classes that are types of the bus.

    (defclass plant.Recipe (plant.Plan Auditable)
      ((name  :type str)
       (steps :type (list-of str) :initform nil :accessor recipe-steps :documentation "..."))
      (:documentation "What to do with a wafer.")
      (:operations (add-step ((step str) (count int 1)) int "Returns how many there are."))
      (:travels t))

You can set every slot with a keyword of its name. An initform is evaluated once, when the class
is defined, because a default is part of the type. Operations are declared in the type; the
methods of the generic function with the same name implement them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from infobus.errors import BadType, BusError
from infobus.objects.kinds import Kind, ListOf, MapOf
from infobus.objects.members import Operation, Parameter, check_member_name, make_attribute
from infobus.objects.spelling import optional, parse_kind
from infobus.tdl.boundary import checked, nothing, outward
from infobus.tdl.compiler import Scope, compiled, expect, group_in, name_in, special, symbol_name
from infobus.tdl.conditions import Unwinding
from infobus.tdl.machine import Code, Evaluation, Frame, translated
from infobus.tdl.reader import Atom, Form, Parenthesized, bad_form
from infobus.tdl.values import Deep, Symbol, attribute_name, full_name

_KINDS = {"string": "str", "integer": "int", "boolean": "bool", "t": "any", "null": "None",
          "double-float": "float", "number": "float", "nil": "None"}  # fmt: skip


def kind_in(form: Form) -> Kind:
    """Return the kind that a `:type` names: `str`, `list[str]`, (list-of str), (or str null)."""
    try:
        if isinstance(form, Parenthesized):
            return _composed(form)
        text = form.value.name if form.value.__class__ is Symbol else form.value
        if isinstance(text, str):
            return parse_kind(_KINDS.get(text, text))
    except BadType as error:
        raise bad_form(form.at, str(error)) from None
    raise bad_form(form.at, "expected a type")


def _composed(form: Parenthesized) -> Kind:
    parts = form.items
    head = symbol_name(parts[0]) if len(parts) in (2, 3) else None
    if head in ("list-of", "map-of") and len(parts) == 2:
        item = kind_in(parts[1])
        return ListOf(item) if head == "list-of" else MapOf(item)
    if head == "or" and len(parts) == 3:
        names = [symbol_name(part) for part in parts]
        if "null" in names:
            return optional(kind_in(parts[3 - names.index("null")]))
    raise bad_form(form.at, "expected (list-of type), (map-of type) or (or type null)")


@dataclass
class WrittenSlot:
    """A compiled slot; its initform is evaluated when the class is defined."""

    name: str
    kind: Kind
    doc: str = ""
    initform: Code | None = None
    readers: list[str] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)


@dataclass
class ClassForm:
    """A compiled `defclass` or `define-condition` form."""

    name: str
    supertypes: list[str]
    slots: list[WrittenSlot]
    doc: str = ""
    operations: list[Operation] = field(default_factory=list)
    travels: bool = False


@special("defclass", "define-condition")
def _defclass(form: Parenthesized, scope: Scope) -> Code:
    head = symbol_name(form.items[0])
    usage = f"({head} name (superclass ...) (slot ...) option ...)"
    named, above, slots, *options = expect(form, 3, None, usage)
    supertypes = [
        full_name(name_in(item, "the name of a class"))
        for item in group_in(above, "superclasses").items
    ]
    if head == "define-condition" and not supertypes:
        supertypes = [full_name("condition")]
    written = ClassForm(
        name_in(named, "the name of a class"),
        supertypes,
        [_slot(item, scope) for item in group_in(slots, "slots").items],
    )
    for option in options:
        _add_option(written, option)
    members = [attribute_name(slot.name) for slot in written.slots]
    members += [operation.name for operation in written.operations]
    if len(set(members)) < len(members):
        raise bad_form(form.at, f"class {written.name} has two members of one name")

    def deep(run: Evaluation, frame: Frame) -> Deep:
        try:
            attributes = []
            for slot in written.slots:
                default = []
                if slot.initform is not None:
                    value = yield from run.value_of(slot.initform, frame)
                    default = [outward(run, value, slot.kind)]
                where = (written.name, attribute_name(slot.name))
                attributes.append(make_attribute(*where, slot.kind, slot.doc, default))
            run.interpreter.define_class(run, written, attributes)
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        except BusError as error:
            signal = translated(error)
            signal.locate(run, form.at)
            raise signal from None
        return Symbol(written.name)

    return Code(deep, is_deep=True)


def _slot(form: Form, scope: Scope) -> WrittenSlot:
    parts = form.items if isinstance(form, Parenthesized) else (form,)
    if len(parts) % 2 == 0:
        raise bad_form(form.at, "expected (slot :option value ...)")
    name = name_in(parts[0], "the name of a slot")
    slot = WrittenSlot(name, parse_kind("any"))
    for option, value in zip(parts[1::2], parts[2::2], strict=True):
        match symbol_name(option):
            case ":type":
                slot.kind = kind_in(value)
            case ":initform":
                slot.initform = compiled(value, scope)
            case ":documentation":
                slot.doc = _text(value)
            case ":accessor":
                slot.readers.append(name_in(value, "the name of an accessor"))
                slot.writers.append(f"(setf {slot.readers[-1]})")
            case ":reader":
                slot.readers.append(name_in(value, "the name of a reader"))
            case ":writer":
                slot.writers.append(name_in(value, "the name of a writer"))
            case ":initarg" if symbol_name(value) == f":{name}":
                pass  # Ignored: the slot's own name is always its keyword.
            case ":initarg":
                raise bad_form(value.at, f"the initarg of {name} is :{name}, as for all slots")
            case _:
                known = ":type :initform :documentation :accessor :reader :writer"
                raise bad_form(option.at, f"expected one of {known}")
    return slot


def _text(form: Form) -> str:
    if isinstance(form, Atom) and isinstance(form.value, str):
        return form.value
    raise bad_form(form.at, "expected a string")


def _add_option(written: ClassForm, form: Form) -> None:
    parts = group_in(form, "a class option").items
    match symbol_name(parts[0]) if parts else None:
        case ":documentation" if len(parts) == 2:
            written.doc = _text(parts[1])
        case ":operations":
            written.operations.extend(_operation(item) for item in parts[1:])
        case ":travels" if len(parts) == 2:
            written.travels = symbol_name(parts[1]) != "nil"
        case _:
            known = '(:documentation "..."), (:operations ...), (:travels t)'
            raise bad_form(form.at, f"expected one of {known}")


def _operation(form: Form) -> Operation:
    usage = '(operation ((parameter type default) ...) result "documentation")'
    parts = group_in(form, usage).items
    if not 2 <= len(parts) <= 4:
        raise bad_form(form.at, f"expected {usage}")
    try:
        name = check_member_name(attribute_name(name_in(parts[0], "a name")), "operation")
        listed = group_in(parts[1], "parameters").items
        parameters = tuple(_parameter(item) for item in listed)
    except BusError as error:
        raise bad_form(form.at, str(error)) from None
    result = kind_in(parts[2]) if len(parts) > 2 else parse_kind("any")
    return Operation(name, parameters, result, _text(parts[3]) if len(parts) > 3 else "")


def _parameter(form: Form) -> Parameter:
    parts = form.items if isinstance(form, Parenthesized) else (form,)
    if not 1 <= len(parts) <= 3:
        raise bad_form(form.at, "expected (parameter type default)")
    name = check_member_name(attribute_name(name_in(parts[0], "a parameter")), "operation")
    kind = kind_in(parts[1]) if len(parts) > 1 else parse_kind("any")
    if len(parts) < 3:
        return Parameter(name, kind)
    return Parameter(name, kind, True, checked(kind, _constant(parts[2], kind), name))


def _constant(form: Form, kind: Kind) -> Any:
    """Return a literal default: a number, a string, t, or nil, which the kind translates."""
    if isinstance(form, Atom) and form.value.__class__ is not Symbol:
        return form.value
    match symbol_name(form):
        case "nil":
            return nothing(kind)
        case "t":
            return True
    raise bad_form(form.at, "expected a number, a string, t or nil as default")
