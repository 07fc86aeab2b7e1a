"""What a service can be asked to do, as data: read from a class, sent, and read again."""

from __future__ import annotations

import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from infobus.errors import BadCall, BadFrame, BadType
from infobus.objects import Operation, Type, codec
from infobus.objects.declaration import require_operation
from infobus.objects.kinds import Misfit
from infobus.objects.members import Members, Parameter, check_member_name
from infobus.objects.spelling import parse_kind

INTERFACE_BYTES_MAX = 256 * 1024
_STREAMS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


class ServiceOperation(Operation, frozen=True, eq=False, dict=True):
    """An operation of a service. Of a stream, `result` is the kind of its items."""

    is_stream: bool = False
    is_idempotent: bool = False

    def __repr__(self) -> str:
        return self.signature

    @property
    def signature(self) -> str:
        """The operation as one line, such as `quotes(symbol: str) -> stream of float`."""
        whole = super().signature
        if not self.is_stream:
            return whole
        head, _, result = whole.rpartition(" -> ")
        return f"{head} -> stream of {result}"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, unchecked.

        Raises:
            BadCall: They do not fit the parameters.
        """
        names = self._names
        if not kwargs and len(args) == len(names):
            return dict(zip(names, args, strict=True))
        if len(args) > len(names):
            raise self._bad(f"takes {len(names)} arguments, got {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise self._bad(f"has no parameter {name!r}")
            if name in bound:
                raise self._bad(f"got two values for {name!r}")
            bound[name] = value
        if len(bound) < len(names):
            missing = [p.name for p in self.parameters if not p.has_default and p.name not in bound]
            if missing:
                raise self._bad(f"needs a value for {', '.join(map(repr, missing))}")
        return bound

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self._names)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in plain form, with defaults for those that were not given.

        Raises:
            BadCall: They do not fit the parameters.
        """
        is_whole = given.keys() == self._name_set
        bound = dict(given) if is_whole else self.bind((), given)
        for parameter in self.parameters:
            name, kind = parameter.name, parameter.kind
            if name not in bound:
                bound[name] = parameter.fresh_default()
                continue
            value = bound[name]
            if value.__class__ is kind.exact:
                continue
            try:
                bound[name] = kind.check(value)
            except Misfit as misfit:
                raise self._bad(f"{name}{misfit.path}: {misfit.problem}") from None
        return bound

    def _bad(self, problem: str) -> BadCall:
        text = f"{self.name}: {problem}; it is {self.signature}"
        return BadCall(text, signatures=(self.signature,))


_ROOTS = frozenset({"infobus.services.service.Service", "infobus.services.service.DynamicService"})
"""Classes whose methods are no operations."""


@dataclass(frozen=True, eq=False)
class Interface:
    """The operations of a service, and what its author says about it."""

    name: str
    operations: Members[ServiceOperation]
    doc: str = ""
    left_out: tuple[str, ...] = ()
    """Of a class: annotated methods that cannot be operations, each with the reason."""

    @classmethod
    def of_class(cls, served: type, local_names: Mapping[str, Any] | None = None) -> Interface:
        """What a class offers: its public methods whose signatures are fully annotated."""
        found: dict[str, ServiceOperation] = {}
        left_out: dict[str, str] = {}
        doc = ""
        for base in reversed(served.__mro__):
            if base is object or f"{base.__module__}.{base.__name__}" in _ROOTS:
                continue
            doc = inspect.cleandoc(vars(base).get("__doc__") or doc)
            for name, method in vars(base).items():
                if name.startswith("_") or not inspect.isfunction(method):
                    continue
                try:
                    found[name] = _operation(method, name, local_names or {})
                    left_out.pop(name, None)
                except BadType as error:
                    if name not in found and inspect.get_annotations(method):
                        left_out[name] = str(error)
        return cls(served.__name__, Members(found.values()), doc, tuple(left_out.values()))

    @classmethod
    def of_type(cls, type_: Type) -> Interface:
        """What the objects of a bus type can be asked to do."""
        operations = (
            ServiceOperation(o.name, o.parameters, o.result, o.doc) for o in type_.operations
        )
        return cls(type_.name, Members(operations), type_.doc)

    def encode(self) -> bytes:
        """The interface as bytes.

        Raises:
            BadType: It is too large to be sent.
        """
        written = _Interface(self.name, self.doc, [_written(one) for one in self.operations])
        encoded = msgspec.msgpack.encode(written)
        if len(encoded) > INTERFACE_BYTES_MAX:
            raise BadType(
                f"service {self.name}: its operations take {len(encoded)} bytes to describe, "
                f"{INTERFACE_BYTES_MAX} are allowed"
            )
        return encoded


@lru_cache(maxsize=1024)
def read_interface(encoded: bytes) -> Interface:
    """The interface in some bytes; raises `BadFrame` whatever is wrong with them."""
    if len(encoded) > INTERFACE_BYTES_MAX:
        raise BadFrame(f"an interface of {len(encoded)} bytes; {INTERFACE_BYTES_MAX} are allowed")
    try:
        written = _decode(encoded)
        operations = [_read(one) for one in written.operations]
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, BadFrame) as error:
        raise BadFrame(f"not an interface: {error}") from None
    return Interface(written.name, Members(operations), written.doc)


class _Parameter(msgspec.Struct, array_like=True):
    name: str
    kind: str
    doc: str = ""
    default: bytes | None = None  # a map with the one value, if there is one


class _Operation(msgspec.Struct, array_like=True):
    name: str
    parameters: Annotated[list[_Parameter], Meta(max_length=1000)]
    result: str
    doc: str = ""
    is_stream: bool = False
    is_idempotent: bool = False


class _Interface(msgspec.Struct, array_like=True):
    name: str
    doc: str
    operations: Annotated[list[_Operation], Meta(max_length=10_000)]


_decode = msgspec.msgpack.Decoder(_Interface).decode


def _written(operation: ServiceOperation) -> _Operation:
    parameters = [
        _Parameter(
            p.name,
            p.type,
            p.doc,
            codec.encode({"default": p.default})[1] if p.has_default else None,
        )
        for p in operation.parameters
    ]
    return _Operation(
        operation.name,
        parameters,
        str(operation.result),
        operation.doc,
        operation.is_stream,
        operation.is_idempotent,
    )


def _read(written: _Operation) -> ServiceOperation:
    parameters = []
    for one in written.parameters:
        kind = parse_kind(one.kind)
        check_member_name(one.name, written.name)
        default = None
        if one.default is not None:
            default = codec.decode(0, one.default).get("default")
        parameters.append(Parameter(one.name, kind, one.default is not None, default, one.doc))
    return ServiceOperation(
        check_member_name(written.name, "operation"),
        tuple(parameters),
        parse_kind(written.result),
        written.doc,
        None,
        written.is_stream,
        written.is_idempotent,
    )


def _operation(
    method: Callable[..., Any], name: str, local_names: Mapping[str, Any]
) -> ServiceOperation:
    """The operation that a method implements; raises `BadType` if it is for Python alone."""
    scope = {**getattr(method, "__globals__", {}), **local_names}
    item = _item_of(method, scope)
    if item is not None:

        def standing_in() -> None: ...

        standing_in.__annotations__ = {**inspect.get_annotations(method), "return": item}
        standing_in.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        standing_in.__doc__ = method.__doc__
        found = require_operation(standing_in, name, scope)
    else:
        found = require_operation(method, name, scope)
    is_idempotent = getattr(method, "is_idempotent", False)
    details = (found.parameters, found.result, found.doc, None)
    return ServiceOperation(name, *details, item is not None, is_idempotent)


def _item_of(method: Callable[..., Any], scope: dict[str, Any]) -> Any:
    """What a stream is a stream of; None if the method returns none."""
    result = inspect.get_annotations(method).get("return")
    if isinstance(result, str):
        try:
            result = eval(result, scope)  # as `typing.get_type_hints` does
        except Exception:
            return None
    if typing.get_origin(result) in _STREAMS:
        return typing.get_args(result)[0]
    return None
