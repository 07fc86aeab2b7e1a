"""The wire form of objects: small, readable without a descriptor, and quick.

An object is a MessagePack map from attribute names to values, unknown attributes included.
Which type it has is said beside it, by a fingerprint; 0 stands for a plain dict. Inside a
value, moments are MessagePack timestamps, and an object is extension 1, which holds the
array [fingerprint, map, object id or nil].

Objects that hold no other objects, the common case, are encoded and decoded by one call of
msgspec each. All others are walked, to find what is nested in them and to keep whatever this
process does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Raw
from msgspec.msgpack import Ext

from infobus.errors import BadFrame, BadValue
from infobus.objects import registry
from infobus.objects.classes import class_for, descriptors_of, known, learn
from infobus.objects.data import (
    DataObject,
    Foreign,
    ObjectId,
    bad_value,
    identify,
    set_state,
    set_tag,
    spelled,
)
from infobus.objects.kinds import (
    INT_MAX,
    PAYLOAD_BYTES_MAX,
    Copying,
    Misfit,
    plain_dict,
    shown,
)
from infobus.objects.outbound import ENCODE_ERRORS, OBJECT_EXT, Packing, culprit, weigh
from infobus.objects.plans import Plan
from infobus.objects.untyped import read_untyped

__all__ = [
    "PAYLOAD_BYTES_MAX",
    "decode",
    "descriptors",
    "encode",
    "encode_event",
    "known",
    "learn",
    "reader_for",
    "types_in",
]

Payload: TypeAlias = bytes | Raw | memoryview
"""What can be decoded; bytes are quickest."""
_UINT64 = 0xCF  # the first byte of the only integers that may be too large

_encode = msgspec.msgpack.Encoder().encode
_new = object.__new__
_plan_for = registry.ready.get
Reader = Callable[[bytes, ObjectId | None], Any]
_DECODE_ERRORS = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    RecursionError,
)


def encode(obj: Any) -> tuple[int, bytes, tuple[int, ...]]:
    """The type's fingerprint, the payload, and the fingerprints of all types it needs.

    The last covers supertypes and the objects that sit inside; a receiver that holds their
    descriptors can read everything. A received object is sent on under the type it came
    with, with all that came with it, unless it was changed in a way which that type forbids.

    Raises:
        BadValue: `obj` is no object or dict, holds something that cannot be sent, is cyclic
            or nested deeper than 64 levels, or takes more than 16 MiB. `path` says where.
    """
    if obj.__class__ is dict:  # a missing attribute would take longer to find out
        return _encode_untyped(obj)
    try:
        plan = obj.__bus_plan__
        tag = obj.__bus_tag__
    except AttributeError:
        return _encode_untyped(obj)
    if plan.flat is not None and tag.__class__ is not Foreign:
        found = plan.flat.encode(obj)
        if found is not None:
            return plan.fingerprint, found, plan.closure
    state = obj.__dict__
    if plan.is_deep or tag.__class__ is Foreign or len(state) != plan.count:
        return _encode_walking(obj)
    name = ""
    try:
        for name, kind in plan.containers:
            kind.check(state[name])
        payload = _encode(state)
    except Misfit as misfit:
        raise bad_value(misfit, f"{obj.__bus_type__.name}.{name}") from None
    except ENCODE_ERRORS as error:
        raise _unsendable(state, obj.__bus_type__.name, error) from None
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise _oversized(payload, obj.__bus_type__.name)
    return plan.fingerprint, payload, plan.closure


def encode_event(
    obj: Any, sender: str, number: int
) -> tuple[int, bytes, tuple[int, ...], str | None]:
    """As `encode`, for publication: an object without an id gets the event's.

    The last value is the id of an object that had one before, else None.
    """
    try:
        plan = obj.__bus_plan__
        flat = plan.flat
        if flat is not None:
            body = flat.encode_new(obj, sender, number)
            if body is not None:
                return plan.fingerprint, body, plan.closure, None
    except AttributeError:
        pass  # The long way says what is wrong.
    event_id = (sender, number)
    fingerprint, payload, types = encode(obj)
    named = identify(obj, event_id) if isinstance(obj, DataObject) else event_id
    return fingerprint, payload, types, None if named is event_id else spelled(named)


def decode(fingerprint: int, payload: Payload, object_id: ObjectId | None = None) -> Any:
    """The object in `payload`: an instance of the best class known here, or a dict for 0.

    Another version of a known type gives an instance of the class known here. Attributes
    that were not sent have their default, else None; those that the class does not have, or
    has with another kind, are kept as unknown. Without any descriptor, all are unknown.

    Raises:
        BadFrame: The bytes are no object. Nothing else is raised, whatever they hold.
    """
    if payload.__class__ is not bytes:
        payload = bytes(payload)
    plan = _plan_for(fingerprint)
    if plan is None:
        return _decode_walking(fingerprint, payload, object_id, 1)
    return reader_for(fingerprint)(payload, object_id)


def reader_for(fingerprint: int) -> Reader:
    """The quickest way to read objects of a type: `read(payload, object_id)`.

    Ask again for every run of objects, because what is known about types may change.
    """
    plan = _plan_for(fingerprint)
    if plan is None:
        return partial(decode, fingerprint)
    if plan.reader is None:
        plan.reader = _quick_reader(plan)
    return plan.reader


def _quick_reader(plan: Plan) -> Reader:
    """Reads objects that are just as `plan` says, and leaves all others to `_decode_walking`."""
    read_map, new, integers = plan.decode, plan.new, plan.integers
    first_byte, header, fingerprint = plan.first_byte, plan.header, plan.fingerprint
    read_flat = plan.flat.decode if plan.flat is not None else _read_nothing

    def read(payload: bytes, object_id: ObjectId | None) -> Any:
        try:
            if (found := read_flat(payload, object_id)) is not None:
                return found
            if payload[0] == first_byte or payload.startswith(header):
                state: Any = read_map(payload)
                if not (_UINT64 in payload and any(state[name] > INT_MAX for name in integers)):
                    obj = new()
                    set_state(obj, state)
                    set_tag(obj, object_id)
                    return obj
        except _DECODE_ERRORS:
            pass  # Perhaps only unusual; the slow way decides.
        return _decode_walking(fingerprint, payload, object_id, 1)

    return read


def _read_nothing(payload: bytes, object_id: ObjectId | None) -> Any:
    """Stands in for the quicker way where there is none."""
    return None


def descriptors(fingerprints: Iterable[int]) -> list[bytes]:
    """The descriptors held for these types and their supertypes, supertypes first.

    Types of which only the fingerprint is known are left out.
    """
    return descriptors_of(fingerprints)


def types_in(payloads: Iterable[Payload]) -> set[int]:
    """The types of all objects that sit inside these payloads; their own are said beside them.

    Bytes that are no object are passed over: whoever decodes them says what is wrong.
    """
    found: set[int] = set()
    unread: list[Payload] = []

    def look(code: int, content: memoryview) -> None:
        if code == OBJECT_EXT:
            nested = _decode_nested(content)
            found.add(nested.fingerprint)
            unread.append(nested.body)

    read = msgspec.msgpack.Decoder(ext_hook=look).decode
    for payload in payloads:
        unread.append(payload)
        while unread:
            with suppress(*_DECODE_ERRORS):
                read(unread.pop())
    return found


# --- encoding what is not flat ---------------------------------------------------------------


def _encode_untyped(value: Any) -> tuple[int, bytes, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise BadValue(f"expected a DataObject or a dict to send, got {shown(value)}")
    needs: tuple[int, ...] = ()
    try:
        copying = Copying()
        body = plain_dict(value, 1, copying)
        if copying.has_objects:
            packing = Packing()
            body = packing.pack(body, 1)
            packing.weigh(body)
            needs = tuple(packing.needs)
        elif copying.is_shared:
            weigh(body)
        payload = _encode(body)
    except Misfit as misfit:
        raise bad_value(misfit, "dict") from None
    except ENCODE_ERRORS as error:
        raise _unsendable(body, "dict", error) from None
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise _oversized(payload, "dict")
    return 0, payload, needs


def _encode_walking(obj: DataObject) -> tuple[int, bytes, tuple[int, ...]]:
    if isinstance(obj, type):
        raise BadValue(f"expected a DataObject or a dict to send, got the class {obj.__name__}")
    packing = Packing()
    name = obj.__bus_type__.name
    try:
        fingerprint, body = packing.pack_object(obj, 1)
        packing.weigh(body)
    except Misfit as misfit:
        raise bad_value(misfit, name) from None
    try:
        payload = _encode(body)
    except ENCODE_ERRORS as error:
        raise _unsendable(body, name, error) from None
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise _oversized(payload, name)
    return fingerprint, payload, tuple(packing.needs)


def _unsendable(body: Any, where: str, error: Exception) -> BadValue:
    path, problem = culprit(body, error, "[{!r}]" if where == "dict" else ".{}")
    return BadValue(f"{where}{path}: {problem}", path=where + path)


def _oversized(payload: bytes, where: str) -> BadValue:
    return BadValue(
        f"{where}: takes {len(payload)} bytes encoded; {PAYLOAD_BYTES_MAX} are allowed", path=where
    )


# --- decoding what is not flat, or not as expected -------------------------------------------


class _Nested(msgspec.Struct, array_like=True):
    """The content of extension 1; later versions may append to it."""

    fingerprint: Annotated[int, Meta(ge=1)]
    body: Raw
    id: str | None = None


_decode_nested = msgspec.msgpack.Decoder(_Nested).decode


def _decode_walking(
    fingerprint: int, payload: bytes, object_id: ObjectId | None, depth: int
) -> Any:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise BadFrame(f"an object of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} are allowed")
    try:
        body = read_untyped(payload, depth, _read_ext)
    except _DECODE_ERRORS as error:
        raise BadFrame(f"not an object: {error}") from None
    if body.__class__ is not dict:
        raise BadFrame(f"not an object: expected a map, got {type(body).__name__}")
    if fingerprint == 0:
        return body
    return _reconciled(class_for(fingerprint) or DataObject, fingerprint, body, object_id)


def _read_ext(ext: Ext, depth: int) -> Any:
    if ext.code != OBJECT_EXT:
        raise BadFrame(f"extension {ext.code} of MessagePack has no meaning here")
    nested = _decode_nested(ext.data)
    return _decode_walking(nested.fingerprint, bytes(nested.body), nested.id, depth)


def _reconciled(
    cls: type[DataObject], fingerprint: int, body: dict[str, Any], object_id: ObjectId | None
) -> DataObject:
    """An instance of `cls` with all that `body` says, though it may be of another version."""
    state: dict[str, Any] = {}
    filled: dict[str, Any] = {}
    is_own_version = fingerprint == cls.__bus_plan__.fingerprint
    for name, _, check, attribute in cls.__bus_plan__.fields:
        try:
            value = body[name]
            state[name] = check(value)
        except (KeyError, Misfit):
            # What does not fit stays in the body, and so becomes an unknown attribute.
            state[name] = attribute.fresh_default()
            filled[name] = attribute.fresh_default()
            continue
        if attribute.kind.converts and not is_own_version and _differ(value, state[name]):
            filled[name] = check(value)  # Here it is a float; it is sent on as the int it was.
        else:
            del body[name]
    obj = _new(cls)
    set_state(obj, state)
    is_exact = is_own_version and not body and not filled
    set_tag(obj, object_id if is_exact else Foreign(fingerprint, body, filled, object_id))
    return obj


def _differ(received: Any, stored: Any) -> bool:
    return _encode(received) != _encode(stored)
