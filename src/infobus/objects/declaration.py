"""Derive the type of a Python class: annotations become attributes, methods operations."""

from __future__ import annotations

import builtins
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from infobus.errors import BadType
from infobus.objects import types
from infobus.objects.kinds import Kind, Misfit, ObjectRoot
from infobus.objects.members import Attribute, Operation, Parameter, make_attribute, refuse_objects
from infobus.objects.spelling import kind_of
from infobus.objects.types import Type, compose


def declared_type(cls: type[ObjectRoot], name: str, local_names: Mapping[str, Any]) -> Type:
    """Return the type, called `name`, that the class statement of `cls` describes.

    Quoted annotations may use `local_names` in addition to the module's names. A name that is
    found nowhere stands for a type that will be declared later.
    """
    supertypes = [base.__bus_type__ for base in cls.__bases__ if issubclass(base, ObjectRoot)]
    scope = _Scope(cls, name, local_names)
    attributes = list(_attributes(cls, name, scope, supertypes))
    operations = list(_operations(cls, scope))
    doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    same = next((s for s in supertypes if s.name == name), None)
    if same is None:
        return compose(name, supertypes, attributes, operations, doc)
    # The class repeats its base's type name: allowed only if it adds nothing. Composing under
    # another name shows whether it does.
    again = compose(f"{name}_", supertypes, attributes, operations, doc)
    if len(supertypes) > 1 or any(m.inherited_from is None for m in _members(again)):
        raise BadType(
            f"class {cls.__qualname__} adds to type {name}, which it extends: "
            'give the new type a name of its own (class keyword name="...")'
        )
    return same


def _members(known: Type) -> Iterator[Attribute | Operation]:
    yield from known.attributes
    yield from known.operations


class _Scope(dict[str, Any]):
    """The names that a class's annotations can use, including the class's own name."""

    def __init__(self, cls: type, name: str, local_names: Mapping[str, Any]) -> None:
        super().__init__(vars(builtins))
        self.update(vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {})
        self.update(local_names)
        self[cls.__name__] = _stand_in(name)

    def __missing__(self, name: str) -> type:
        return _stand_in(name)


def _stand_in(name: str) -> type:
    """Return a placeholder class that annotations can use for a type not yet declared."""
    return type(name, (ObjectRoot,), {"__bus_type__": types.unknown_type(0, name)})


def _hints(annotations: Mapping[str, Any], scope: _Scope, where: str) -> dict[str, Any]:
    try:
        # typing also resolves nested quotes, but only for a class that has the annotations.
        carrier = type(where, (), {"__annotations__": dict(annotations)})
        return typing.get_type_hints(carrier, {}, scope, include_extras=True)
    except Exception as error:  # Annotations are code: evaluating them can raise anything.
        raise BadType(f"{where}: cannot make sense of its annotations: {error}") from error


def _attributes(
    cls: type, where: str, scope: _Scope, supertypes: list[Type]
) -> Iterator[Attribute]:
    annotations = inspect.get_annotations(cls)
    for name, hint in _hints(annotations, scope, where).items():
        if hint is ClassVar or typing.get_origin(hint) is ClassVar:
            continue
        try:
            kind = kind_of(hint)
        except BadType as error:
            raise BadType(f"{where}.{name}: {error}") from None
        yield make_attribute(where, name, kind, doc_in(hint), _taken_from(cls, name))
    for supertype in supertypes:
        # `body = "..."` without an annotation gives an inherited attribute a new default.
        for above in supertype.attributes:
            if above.name not in annotations:
                for default in _taken_from(cls, above.name):
                    yield make_attribute(where, above.name, above.checker, above.doc, [default])


def doc_in(hint: Any) -> str:
    """Return the doc in `Annotated[str, "doc"]`, or an empty string."""
    metadata = typing.get_args(hint)[1:] if typing.get_origin(hint) is typing.Annotated else ()
    return next((text for text in metadata if isinstance(text, str)), "")


def _taken_from(cls: type, name: str) -> list[Any]:
    """Remove and return the default in the class body, if any.

    The class must not keep it: every object has a value of its own.
    """
    if name not in cls.__dict__:
        return []
    default = cls.__dict__[name]
    delattr(cls, name)
    return [default]


def _operations(cls: type, scope: _Scope) -> Iterator[Operation]:
    for name, method in list(cls.__dict__.items()):
        if not name.startswith("_") and inspect.isfunction(method):
            operation = operation_of(method, name, scope)
            if operation is not None:
                yield operation


def operation_of(
    method: Callable[..., Any], name: str, scope: Mapping[str, Any]
) -> Operation | None:
    """Return the operation that a method implements, or None if only Python can call it."""
    try:
        return require_operation(method, name, scope)
    except BadType:
        return None


def require_operation(method: Callable[..., Any], name: str, scope: Mapping[str, Any]) -> Operation:
    """Return the operation that a method implements.

    A method is an operation if the result and every parameter but the first are annotated
    with kinds that can be sent, and if its defaults fit them.

    Raises:
        BadType: It is none; the message says why.
    """
    names = scope if isinstance(scope, _Scope) else _Scope(type(name, (), {}), name, scope)
    hints = _hints(inspect.get_annotations(method), names, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadType(f"{name}: parameter {parameter} cannot be given by name")
    described = tuple(_parameter(p, hints, name) for p in parameters)
    result = _kind_in(hints, "return", f"{name}: its result")
    return Operation(name, described, result, inspect.getdoc(method) or "")


def _parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], where: str) -> Parameter:
    kind = _kind_in(hints, parameter.name, f"{where}: parameter {parameter.name}")
    if parameter.default is parameter.empty:
        return Parameter(parameter.name, kind)
    try:
        default = kind.check(parameter.default)
        refuse_objects(default)
    except Misfit as misfit:
        problem = f"the default of {parameter.name}{misfit.path}: {misfit.problem}"
        raise BadType(f"{where}: {problem}") from None
    return Parameter(parameter.name, kind, True, default)


def _kind_in(hints: Mapping[str, Any], name: str, where: str) -> Kind:
    if name not in hints:
        raise BadType(f"{where} is not annotated")
    try:
        kind = kind_of(hints[name])
    except BadType as error:
        raise BadType(f"{where}: {error}") from None
    if kind.is_rich:
        raise BadType(f"{where}: {kind} can be an attribute, but no parameter and no result")
    return kind
