"""The interpreter: store a program's definitions, and run it within its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from infobus.errors import BadType, BadValue, TdlError, TdlLimit
from infobus.objects import kinds, registry
from infobus.objects.classes import attach_code
from infobus.objects.data import DataObject
from infobus.objects.descriptors import TravellingCode as TravellingCode
from infobus.objects.kinds import Kind
from infobus.objects.members import Attribute, Operation
from infobus.subjects import matches
from infobus.tdl.boundary import checked, inward, outward
from infobus.tdl.classes.table import ClassParts, ClassTable, SharedSlot
from infobus.tdl.compiler import BUILTINS, REFUSED_FUNCTIONS, SPECIAL, Scope, compiled, refusal
from infobus.tdl.conditions import Leave, LimitReached, Unbound, Unwinding, WrongType, failed
from infobus.tdl.forms import control, definitions, local_names, loops, places  # noqa: F401  what they define is looked up by name
from infobus.tdl.forms.classes import ClassForm, WrittenSlot
from infobus.tdl.generics import Generic, Method, Parameters
from infobus.tdl.library import bus_functions, tables  # noqa: F401  what they define is looked up by name
from infobus.tdl.library.instances import initialize, set_slot_value, slot_value
from infobus.tdl.limits import Capabilities, ProgramLimits
from infobus.tdl.machine import Builtin, Code, Evaluation, Frame, translated
from infobus.tdl.reader import SourcePosition, read
from infobus.tdl.retention import retained_bytes
from infobus.tdl.signatures import check_key, sign
from infobus.tdl.sources import Sources
from infobus.tdl.text import print_plainly, written
from infobus.tdl.values import ALIASES, BUILT_IN_CLASSES, Deep, Function, Symbol, attribute_name

OUTSIDE = SourcePosition(0, 0, "the host")
METHODS = "methods"
"""The purpose in the signatures of methods that are sent with a type."""

RESERVED = ("initialize-instance", "print-object")
"""The generic functions that the language itself calls."""


class Interpreter:
    """Runs TDL programs; each program can use the definitions of the ones before.

    A program can only compute, within `limits`. It cannot reach Python, the machine or the bus
    unless you give it `capabilities`. Several threads may use one interpreter if its programs
    are written for that. The interpreter signs methods that are sent with their classes with
    `key`.

    >>> tdl = Interpreter()
    >>> tdl.run("(defun square (x) (* x x)) (mapcar #'square '(1 2 3))")
    [1, 4, 9]
    >>> tdl.call("square", 12)
    144
    >>> tdl.run("(loop)")
    Traceback (most recent call last):
    infobus.errors.TdlLimit: 1:1: out of fuel: the program took more than 1000000 steps
    """

    def __init__(
        self,
        *,
        limits: ProgramLimits | None = None,
        capabilities: Capabilities | None = None,
        key: bytes | None = None,
    ) -> None:
        self.limits = limits or ProgramLimits()
        self.capabilities = capabilities or Capabilities()
        self.variables: dict[str, Any] = {}
        self._classes = ClassTable(self._python_method, self.note_definition)
        self.classes = self._classes.classes
        self.outdated = self._classes.outdated
        self.recipe = self._classes.recipe
        self.slots_above = self._classes.slots_above
        self.class_named = self._classes.named
        self.initializer = Generic("initialize-instance", Parameters(1, has_rest=True))
        first = Builtin("initialize-instance", initialize, 1, None)
        self.initializer.add(Method(("t",), first))
        self.printer = Generic("print-object", Parameters(2))
        self.printer.add(Method(("t", "t"), Builtin("print-object", print_plainly, 2, 2)))
        own = (self.initializer, self.printer)
        self._functions: dict[str, Function] = {generic.name: generic for generic in own}
        self._key = None if key is None else check_key(key)
        self._sources = Sources()
        self._travelling: set[str] = set()
        self._has_news = False
        self._definition_count = 0
        self._kept: list[Any] = []
        self._retained = 0
        self._uncounted = 0

    # For Python programs.

    def run(self, source: str, origin: str = "") -> Any:
        """Run a program, and return the value of its last form as a Python value.

        If any part of the program cannot be read, none of it runs. If the program fails, its
        definitions up to that point stay.

        Raises:
            TdlError: The program cannot be read, or it failed; the error says where.
            TdlLimit: The program reached one of its limits.
        """
        return self._within_limits(self._program(source, origin), _to_python)

    def show(self, source: str, origin: str = "") -> str:
        """Run a program as `run` does, and return the value as TDL text."""
        return str(self._within_limits(self._program(source, origin), written))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the function `name` with Python values, and return a Python value."""
        return self._within_limits(
            lambda run: self.function(name).invoke(run, _inward(run, arguments), OUTSIDE),
            _to_python,
        )

    def apply(self, function: Function, arguments: Iterable[Any]) -> Any:
        """Call a function that a program returned, or passed to a capability."""
        return self._within_limits(
            lambda run: function.invoke(run, _inward(run, arguments), OUTSIDE), _to_python
        )

    def perform(self, obj: DataObject, operation: Operation, /, *given: Any, **named: Any) -> Any:
        """Carry out an operation of `obj` with the generic function of the same name."""
        names = [parameter.name for parameter in operation.parameters]
        values = dict(zip(names, given, strict=False)) | named
        where = f"{obj.__bus_type__.name}.{operation.name}"
        strange = [name for name in values if name not in names]
        if len(given) > len(names) or strange:
            what = strange[0] if strange else f"{len(given)} arguments"
            raise BadValue(f"{where} does not take {what}; it is {operation.signature}")
        arguments = []
        for parameter in operation.parameters:
            if parameter.name not in values and not parameter.has_default:
                raise BadValue(f"{where} needs {parameter.name}; it is {operation.signature}")
            value = values.get(parameter.name, parameter.default)
            arguments.append(checked(parameter.kind, value, f"{where}({parameter.name})"))
        return self._within_limits(
            lambda run: self._implementation(run, where, operation.name).invoke(
                run, _inward(run, [obj, *arguments]), OUTSIDE
            ),
            lambda run, value: _result(run, value, operation.result, f"{where}()"),
        )

    def names(self) -> list[str]:
        """Return all names that are defined now, for completion."""
        known = [*SPECIAL, *BUILTINS, *self._functions, *self.variables, *ALIASES]
        classes = [*BUILT_IN_CLASSES, *self.classes, *registry.current]
        return sorted({name for name in [*known, *classes] if not name.startswith("(")})

    # For the language itself.

    def function(self, name: str) -> Function:
        """Return the function called `name`; signal a condition if there is none."""
        found = BUILTINS.get(name) or self._functions.get(name)
        if found is None:
            raise failed(f"there is no function {name}{_hint(name)}", Unbound)
        return found

    def define_function(self, name: str, function: Function) -> None:
        """Define the function `name`; a program cannot redefine built-in functions."""
        if name in BUILTINS or name in SPECIAL:
            raise failed(f"{name} is part of the language and cannot be defined anew")
        if name in RESERVED:
            raise failed(f"{name} is part of the language; write methods for it")
        if (complaint := refusal(name)) is not None:
            raise failed(complaint)
        if name not in self._functions:
            self.note_definition()
        self._functions[name] = function

    def forget_function(self, name: str) -> None:
        """Remove the function `name`, if the program has defined one."""
        if name not in RESERVED:
            self._functions.pop(name, None)

    def generic(self, name: str, parameters: Parameters) -> Generic:
        """Return the generic function called `name`, making one if there is none."""
        found = self._functions.get(name)
        if found is None:
            # The keywords of one method are not for all others.
            found = Generic(name, replace(parameters, keys=None, others_allowed=False))
            self.define_function(name, found)
        if not isinstance(found, Generic):
            raise failed(f"{name} is a function without methods; remove it first with "
                         f"(fmakunbound '{name}), or choose another name")  # fmt: skip
        return found

    def set_variable(self, name: str, value: Any) -> None:
        """Set a global variable of the program."""
        if name not in self.variables:
            self.note_definition()
        self.variables[name] = value

    def note_definition(self) -> None:
        """Count one more definition; do not call this for one that replaces another."""
        self._definition_count += 1
        if self._definition_count > self.limits.definitions_count:
            raise LimitReached(f"more than {self.limits.definitions_count} definitions were made")

    def keep(self, value: Any) -> None:
        """Count a value that the host holds for the program, such as a subscribed function."""
        self.note_definition()
        self._kept.append(value)

    def has_class(self, name: str) -> bool:
        """Return whether there is a class called `name`, built-in or not."""
        return name in BUILT_IN_CLASSES or self._classes.find(name) is not None

    def known_class_name(self, name: str) -> str:
        """Return `name` if methods can specialize on it."""
        if name not in BUILT_IN_CLASSES:
            self.class_named(name)
        return name

    def define_class(
        self,
        run: Evaluation,
        form: ClassForm,
        attributes: list[Attribute],
        shared: dict[str, SharedSlot],
        frame: Frame,
    ) -> None:
        """Make the class that a form describes, with its accessors and operations."""
        name = form.name
        if name in BUILT_IN_CLASSES or name in ALIASES:
            raise failed(f"{name} is part of the language and cannot be defined anew")
        if not any(matches(pattern, name) for pattern in self.limits.classes):
            allowed = ", ".join(self.limits.classes)
            raise failed(f"the host does not let this program define {name}, only {allowed}")
        bases = [self.class_named(above) for above in form.supertypes]
        inherited = {member for base in bases for member in base.__bus_type__.attributes.names}
        if twice := inherited & shared.keys():
            raise failed(f"{name}.{min(twice)} is inherited as a slot of each object; it cannot "
                         "have :allocation :class")  # fmt: skip
        parts = ClassParts(name, bases, attributes, form.operations, form.doc, frame=frame)
        parts.default_initargs, parts.shared = form.default_initargs, shared
        for slot in form.slots:
            parts.given[attribute_name(slot.name)] = slot.given
            for keyword in slot.initargs:
                parts.initargs.setdefault(keyword, []).append(attribute_name(slot.name))
        made = self._classes.define(run, parts)
        if form.travels:
            self._travelling.add(name)
        self._has_news = self._has_news or bool(made)
        for slot in form.slots:
            self._define_accessors(name, slot)

    def _define_accessors(self, name: str, slot: WrittenSlot) -> None:
        for reader in slot.readers:
            method = Method((name,), _reader(reader, slot.name))
            self.generic(reader, method.parameters).add(method)
            text = f"(defmethod {reader} ((o {name})) (slot-value o '{slot.name}))"
            self._sources.note_method(text, reader, name)
        for writer in slot.writers:
            method = Method(("t", name), _writer(writer, slot.name))
            self.generic(writer, method.parameters).add(method)
            change = f"(setf (slot-value o '{slot.name}) v)"
            text = f"(defmethod {writer} (v (o {name})) {change})"
            self._sources.note_method(text, writer, "t", name)

    def _python_method(self, operation: Operation) -> Callable[..., Any]:
        # The names of parameters are the program's, so none of ours may be a keyword.
        def method(obj: DataObject, /, *given: Any, **named: Any) -> Any:
            return self.perform(obj, operation, *given, **named)

        method.__name__ = operation.name
        method.__doc__ = operation.doc
        return method

    def _implementation(self, run: Evaluation, where: str, operation: str) -> Function:
        for name in (operation.replace("_", "-"), operation):
            if name in self._functions:
                return self._functions[name]
        signal = failed(f"nobody has written a method for this operation: there is no function "
                        f"{operation}", Unbound)  # fmt: skip
        signal.locate(run, SourcePosition(0, 0, where))
        raise signal

    def _program(self, source: str, origin: str) -> Callable[[Evaluation], Deep]:
        if len(source) > self.limits.source_length:
            raise TdlLimit(
                f"{origin or 'the program'} has {len(source)} characters; "
                f"{self.limits.source_length} are allowed",
                line=1,
                column=1,
                origin=origin,
            )
        forms = read(source, origin)
        try:
            codes = [compiled(form, Scope()) for form in forms]
        except RecursionError:
            raise _too_deep() from None

        def start(run: Evaluation) -> Deep:
            value = None
            for form, code in zip(forms, codes, strict=True):
                value = yield _at(run, code, form.at)
                self._sources.note(form)
                self._has_news = True
            self.send_methods_along()
            return value

        return start

    def send_methods_along(self) -> None:
        """Attach new methods to the types that carry their methods, before these are sent."""
        if not self._has_news:
            return
        self._has_news = False
        for name in sorted(self._travelling):
            cls = self.classes[name]
            source = self._sources.methods_of(cls.__bus_type__.lineage)
            fields = (name, cls.__bus_type__.fingerprint, source)
            signature = b"" if self._key is None else sign(self._key, METHODS, *fields)
            try:
                attach_code(cls, TravellingCode(source, signature))
            except BadType as error:
                raise translated(error) from None

    def _within_limits(
        self, start: Callable[[Evaluation], Deep], finish: Callable[[Evaluation, Any], Any]
    ) -> Any:
        run = Evaluation(self, self._memory_left())
        given = run.memory
        try:
            return finish(run, run.drive(start(run)))
        except Unwinding as unwinding:
            unwinding.locate(run, OUTSIDE)
            raise unwinding.error() from None
        except Leave:
            text = "a block was left that had ended already"
            raise TdlError(text, line=1, column=1) from None
        except RecursionError:
            raise _too_deep() from None
        finally:
            self._uncounted += given - max(0, run.memory)

    def _memory_left(self) -> int:
        """Return how many bytes the next run may allocate.

        Measuring what the program retains takes a walk over all its values. So this happens
        only when the runs since the last walk have allocated much, or when little is left.
        """
        limit = self.limits.memory_bytes
        if self._uncounted > limit // 8 or self._retained > limit // 8 * 7:
            functions = self._functions.values()
            roots = [*self.variables.values(), *functions, *self._kept, *self._classes.roots()]
            self._retained, self._uncounted = retained_bytes(roots), 0
        return limit - self._retained - self._uncounted - self._classes.bytes


def _too_deep() -> TdlLimit:
    return TdlLimit("the program is nested too deep for the stack of Python", line=1, column=1)


def _at(run: Evaluation, code: Code, at: SourcePosition) -> Deep:
    """Evaluate a top-level form; an error without a position gets the form's own."""
    try:
        return (yield from run.value_of(code, [None]))
    except Unwinding as unwinding:
        unwinding.locate(run, at)
        raise


def _inward(run: Evaluation, values: Iterable[Any]) -> list[Any]:
    return [inward(run, value) for value in values]


def _to_python(run: Evaluation, value: Any) -> Any:
    return value if isinstance(value, Function) else outward(run, value)


def _result(run: Evaluation, value: Any, kind: Kind, where: str) -> Any:
    if kind == kinds.NOTHING:
        return None  # every method has a value, but this operation returns none
    try:
        return checked(kind, outward(run, value, kind), where)
    except BadValue as error:
        raise failed(f"the result does not fit: {error}", WrongType) from None


def _hint(name: str) -> str:
    """Return what a program can use instead of a function that it does not have."""
    if name in REFUSED_FUNCTIONS:
        return f", which is not part of TDL: {REFUSED_FUNCTIONS[name]}"
    lower = name.lower()
    return f": case counts, so write {lower}" if lower != name and lower in BUILTINS else ""


def _reader(name: str, slot: str) -> Builtin:
    return Builtin(name, lambda run, obj: slot_value(run, obj, Symbol(slot)), 1, 1)


def _writer(name: str, slot: str) -> Builtin:
    put = lambda run, value, obj: set_slot_value(run, value, obj, Symbol(slot))  # noqa: E731
    return Builtin(name, put, 2, 2)
