"""`defclass` and `define-condition`, which define classes that are types of the bus.

    (defclass plant.Recipe (plant.Plan Auditable)
      ((name  :type str :initarg :called)
       (steps :type (list-of str) :initform nil :accessor recipe-steps :documentation "...")
       (made  :allocation :class :initform 0))
      (:documentation "What to do with a wafer.")
      (:default-initargs :called "unnamed")
      (:operations (add-step ((step str) (count int 1)) int "Returns how many there are."))
      (:travels t))

You can set every slot with a keyword of its name, and with its initargs. An initform is evaluated
once, when the class is defined, because a default is part of the type; a default initarg is
evaluated for each object. Operations are declared in the type; the methods of the generic
function with the same name implement them. A slot with `:allocation :class` belongs to the
program, not to the type: its value is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infobus.errors import BadType, BusError
from infobus.objects.kinds import ANY, Kind, ListOf, MapOf, Misfit
from infobus.objects.members import Operation, Parameter, check_member_name, make_attribute
from infobus.objects.spelling import optional, parse_kind
from infobus.tdl.boundary import checked, held, nothing, outward
from infobus.tdl.classes.table import SharedSlot, SlotAbove
from infobus.tdl.compiler import (
    Scope,
    check_names,
    compiled,
    expect,
    group_in,
    name_in,
    special,
    symbol_name,
)
from infobus.tdl.conditions import Unwinding, failed
from infobus.tdl.forms.definitions import function_name
from infobus.tdl.machine import Code, Evaluation, Frame, translated
from infobus.tdl.reader import Atom, Form, Parenthesized, bad_form
from infobus.tdl.values import Deep, Symbol, attribute_name, full_name

NOT_KINDS = {"symbol", "keyword", "function", "cons", "list", "hash-table"}
_KINDS = {"string": "str", "integer": "int", "boolean": "bool", "t": "any", "null": "None",
          "double-float": "float", "number": "float", "nil": "None"}  # fmt: skip


def kind_in(form: Form) -> Kind:
    """Return the kind that a `:type` names: `str`, `list[str]`, (list-of str), (or str null)."""
    try:
        if isinstance(form, Parenthesized):
            return _composed(form)
        text = form.value.name if form.value.__class__ is Symbol else form.value
        if text in NOT_KINDS:
            hint = "str" if text in ("symbol", "keyword") else "(list-of any), (map-of any) or any"
            raise bad_form(form.at, f"a slot cannot have the type {text}, which Python does not "
                                    f"know; use {hint}")  # fmt: skip
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
    initargs: list[str] = field(default_factory=list)
    is_shared: bool = False
    given: set[str] = field(default_factory=set)
    """The options that it was written with."""


@dataclass
class ClassForm:
    """A compiled `defclass` or `define-condition` form."""

    name: str
    supertypes: list[str]
    slots: list[WrittenSlot]
    doc: str = ""
    operations: list[Operation] = field(default_factory=list)
    default_initargs: dict[str, Code] = field(default_factory=dict)
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
    check_names(supertypes, form.items[2:])
    if head == "define-condition" and not supertypes:
        supertypes = [full_name("condition")]
    written = ClassForm(
        name_in(named, "the name of a class"),
        supertypes,
        [_slot(item, scope) for item in group_in(slots, "slots").items],
    )
    names: list[str | None] = []
    for option in options:
        names.append(_add_option(written, option, scope))
        if names[-1] in names[:-1]:
            raise bad_form(option.at, f"the option {names[-1]} is given twice")
    if head == "define-condition" and written.default_initargs:
        raise bad_form(form.at, "a condition cannot have :default-initargs; use :initform")
    members = [attribute_name(slot.name) for slot in written.slots]
    members += [operation.name for operation in written.operations]
    if len(set(members)) < len(members):
        raise bad_form(form.at, f"class {written.name} has two members of one name")

    def deep(run: Evaluation, frame: Frame) -> Deep:
        try:
            attributes, shared = [], {}
            above = run.interpreter.slots_above(run, written.supertypes)
            for slot in written.slots:
                _inherit_type(written.name, slot, above)
                default = []
                if slot.initform is not None:
                    default = [(yield from run.value_of(slot.initform, frame))]
                name = attribute_name(slot.name)
                where = f"{written.name}.{name}"
                if slot.is_shared:
                    shared[check_member_name(name, written.name)] = SharedSlot(slot.kind, default)
                    for value in default if slot.kind != ANY else ():
                        checked(slot.kind, outward(run, value, slot.kind), where)
                    continue
                default = [_default(run, value, slot.kind, where) for value in default]
                attributes.append(make_attribute(written.name, name, slot.kind, slot.doc, default))
            run.interpreter.define_class(run, written, attributes, shared, frame)
        except Unwinding as unwinding:
            unwinding.locate(run, form.at)
            raise
        except BusError as error:
            signal = translated(error)
            signal.locate(run, form.at)
            raise signal from None
        return Symbol(written.name)

    return Code(deep, is_deep=True)


def _inherit_type(cls: str, slot: WrittenSlot, above: Mapping[str, SlotAbove]) -> None:
    """Give a slot without `:type` the one of the slot that it redeclares."""
    name = attribute_name(slot.name)
    found = above.get(name)
    if isinstance(found, SharedSlot) and ":initform" not in slot.given:
        raise failed(f"{cls}.{name} is inherited as a slot with :allocation :class; "
                     "leave it out, or give it an :initform of its own")  # fmt: skip
    if found is not None and ":type" not in slot.given:
        slot.kind = found.kind


def _default(run: Evaluation, value: Any, kind: Kind, where: str) -> Any:
    try:
        return held(run, value, kind)
    except Misfit as misfit:
        problem = f"the default does not fit: {misfit.problem}"
        raise BadType(f"{where}{misfit.path}: {problem}") from None


def _slot(form: Form, scope: Scope) -> WrittenSlot:
    parts = form.items if isinstance(form, Parenthesized) else (form,)
    if len(parts) % 2 == 0:
        raise bad_form(form.at, "expected (slot :option value ...)")
    name = name_in(parts[0], "the name of a slot")
    slot = WrittenSlot(name, parse_kind("any"))
    for option, value in zip(parts[1::2], parts[2::2], strict=True):
        given = symbol_name(option) or ""
        if given in slot.given and given in _ONCE:
            raise bad_form(option.at, f"the option {given} of slot {name} is given twice")
        slot.given.add(given)
        match given:
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
                slot.writers.append(function_name(value))
            case ":initarg":
                slot.initargs.append(_keyword(value))
            case ":allocation" if symbol_name(value) in (":class", ":instance"):
                slot.is_shared = symbol_name(value) == ":class"
            case _:
                known = (
                    ":type :initform :initarg :accessor :reader :writer :documentation, "
                    ":allocation :class or :instance"
                )
                raise bad_form(option.at, f"expected one of {known}")
    return slot


_ONCE = (":type", ":initform", ":documentation", ":allocation")


def _keyword(form: Form) -> str:
    name = symbol_name(form)
    if name is None or not name.startswith(":"):
        raise bad_form(form.at, "expected a keyword, such as :name")
    return name


def _text(form: Form) -> str:
    if isinstance(form, Atom) and isinstance(form.value, str):
        return form.value
    raise bad_form(form.at, "expected a string")


def _add_option(written: ClassForm, form: Form, scope: Scope) -> str | None:
    """Take in one option of a class, and return its name."""
    parts = group_in(form, "a class option").items
    name = symbol_name(parts[0]) if parts else None
    match name:
        case ":documentation" if len(parts) == 2:
            written.doc = _text(parts[1])
        case ":operations":
            written.operations.extend(_operation(item) for item in parts[1:])
        case ":travels" if len(parts) == 2:
            written.travels = symbol_name(parts[1]) != "nil"
        case ":default-initargs" if len(parts) % 2:
            for keyword, value in zip(parts[1::2], parts[2::2], strict=True):
                if _keyword(keyword) in written.default_initargs:
                    raise bad_form(keyword.at, f"{_keyword(keyword)} is given twice")
                written.default_initargs[_keyword(keyword)] = compiled(value, scope)
        case ":metaclass" | ":report":
            raise bad_form(form.at, f"TDL has no {name}; leave it out, or give the condition's "
                                    "text as :message")  # fmt: skip
        case _:
            known = (
                '(:documentation "..."), (:default-initargs :name form ...), '
                "(:operations ...), (:travels t)"
            )
            raise bad_form(form.at, f"expected one of {known}")
    return name


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
