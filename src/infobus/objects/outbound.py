"""Prepare objects for encoding: choose what is sent, and walk over nested values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from infobus.errors import BadValue
from infobus.objects import registry
from infobus.objects.data import DataObject, Foreign, id_of, unknown_attributes
from infobus.objects.kinds import (
    DEPTH_MAX,
    OBJECT_EXT,
    PAYLOAD_BYTES_MAX,
    Copies,
    Misfit,
    shown,
)

SCALARS = frozenset({str, int, float, bool, bytes, type(None), datetime})
ENCODE_ERRORS = (TypeError, ValueError, OverflowError)

_encode = msgspec.msgpack.Encoder().encode


class Packing:
    """One walk over an object that is being encoded.

    A part that occurs several times is packed once, but written each time it occurs. So an
    object with shared parts is weighed before it is written: its bytes may be exponentially
    many.
    """

    def __init__(self) -> None:
        self.needs: dict[int, None] = {}
        self._open: set[int] = set()
        self._packed: Copies = {}
        self._is_shared = False

    def pack(self, value: Any, depth: int) -> Any:
        """Replace the objects in `value`, which is in plain form, by their extension."""
        if value.__class__ in SCALARS:
            return value
        if id(value) in self._open:
            raise Misfit("cyclic: it contains itself")
        if depth > DEPTH_MAX:
            raise Misfit(f"nested deeper than {DEPTH_MAX} levels")
        place = (depth, id(value))
        if place in self._packed:
            self._is_shared = True
        else:
            is_object = isinstance(value, DataObject)
            pack = self._pack_nested if is_object else self._pack_container
            self._packed[place] = value, pack(value, depth)
        return self._packed[place][1]

    def weigh(self, body: Any) -> None:
        """Raise `Misfit` if shared parts would make `body` too large."""
        if self._is_shared:
            weigh(body)

    def _pack_container(self, value: Any, depth: int) -> Any:
        self._open.add(id(value))
        packed: Any = {} if value.__class__ is dict else []
        key: Any = 0
        try:
            if value.__class__ is dict:
                for key, item in value.items():
                    packed[key] = self.pack(item, depth + 1)
            else:
                for item in value:
                    packed.append(self.pack(item, depth + 1))
        except Misfit as misfit:
            step = repr(key) if value.__class__ is dict else len(packed)
            raise misfit.inside(f"[{step}]") from None
        finally:
            self._open.discard(id(value))
        return packed

    def _pack_nested(self, obj: DataObject, depth: int) -> Ext:
        fingerprint, body = self.pack_object(obj, depth)
        self.weigh(body)
        try:
            return Ext(OBJECT_EXT, _encode((fingerprint, body, id_of(obj))))
        except ENCODE_ERRORS as error:
            path, problem = culprit(body, error, ".{}")
            raise Misfit(problem).inside(path) from None

    def pack_object(self, obj: DataObject, depth: int) -> tuple[int, dict[str, Any]]:
        """Return the fingerprint and the map of an object."""
        self._open.add(id(obj))
        name = ""
        try:
            state = sent_attributes(obj)
            fingerprint, closure = sent_type(obj, state)
            for name, kind in obj.__bus_plan__.containers:
                if name in state and name not in unknown_attributes(obj):
                    state[name] = kind.check(state[name])
            for name, value in state.items():
                if value.__class__ not in SCALARS:
                    state[name] = self.pack(value, depth + 1)
        except Misfit as misfit:
            raise misfit.inside(f".{name}") from None
        finally:
            self._open.discard(id(obj))
        self.needs.update(dict.fromkeys(closure))
        return fingerprint, state


def weigh(body: Any) -> None:
    """Check the size of `body`, which has shared parts, without writing it.

    Raises:
        Misfit: It would take more bytes than an object may have.
    """
    if (weight := _weight(body, {})) > PAYLOAD_BYTES_MAX:
        raise Misfit(
            f"takes at least {weight:,} bytes encoded, because parts of it occur many times; "
            f"{PAYLOAD_BYTES_MAX:,} are allowed"
        )


def _weight(value: Any, weights: dict[int, int]) -> int:
    """Return a lower bound of the bytes that `value` takes, visiting each shared part once."""
    if value.__class__ in (str, bytes):
        return 1 + len(value)
    if value.__class__ is Ext:
        return 2 + len(bytes(value.data))
    if value.__class__ not in (dict, list):
        return 1
    if id(value) not in weights:
        parts = [*value, *value.values()] if value.__class__ is dict else value
        weights[id(value)] = 1 + sum(_weight(part, weights) for part in parts)
    return weights[id(value)]


def sent_values(obj: DataObject) -> dict[str, Any]:
    """Return the attributes of a received object as they were sent, by name.

    What is missing was not sent: the class has filled it in from its default. What you have
    changed since is there as it is now. Before an object is sent, these are its attributes.

    >>> from infobus.objects import Property
    >>> sent_values(Property(name="n", value=[1], ref="r"))
    {'name': 'n', 'value': [1], 'ref': 'r'}
    """
    if not isinstance(obj, DataObject):
        raise BadValue(f"expected a data object, got {shown(obj)}")
    return sent_attributes(obj)


def sent_attributes(obj: DataObject) -> dict[str, Any]:
    """Return the attributes to send: all but defaults that only filled in for missing ones."""
    state = obj.__dict__
    names = obj.__bus_plan__.attributes
    tag = obj.__bus_tag__
    if len(state) < len(names):  # made by a TDL program, and not complete yet
        name = next(name for name in names if name not in state)
        path = f"{obj.__bus_type__.name}.{name}"
        raise BadValue(f"{path}: expected {names[name].type}, got no value", path=path)
    if tag.__class__ is not Foreign:
        return {name: state[name] for name in names}
    filled = tag.filled
    return {
        name: state[name] for name in names if name not in filled or state[name] != filled[name]
    } | tag.extra


def sent_type(obj: DataObject, state: dict[str, Any]) -> tuple[int, tuple[int, ...]]:
    """Return the fingerprint that an object is sent under, and those of the types it needs.

    A received object keeps the type it was received under if its values still fit that type.
    """
    tag = obj.__bus_tag__
    if tag.__class__ is not Foreign:
        return obj.__bus_plan__.fingerprint, obj.__bus_plan__.closure
    received = registry.types.get(tag.fingerprint)
    if received is None:
        return tag.fingerprint, (tag.fingerprint,)
    try:
        for attribute in received.attributes:
            if attribute.name in state:
                attribute.checker.check(state[attribute.name])
    except Misfit:
        if obj.__class__ is not DataObject:
            return obj.__bus_plan__.fingerprint, obj.__bus_plan__.closure
    return received.fingerprint, received.closure


def culprit(value: Any, error: Exception, step: str = "[{!r}]") -> tuple[str, str]:
    """Return the path to the part of `value` that msgspec refuses, and what is wrong with it."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        try:
            _encode(key)
            _encode(part)
        except ENCODE_ERRORS as inner:
            path, problem = culprit(part, inner)
            return step.format(key) + path, problem
    return "", f"cannot be sent: {error}"
