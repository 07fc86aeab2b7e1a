"""The wire form of objects: small, fast, and readable without a descriptor.

An object is a MessagePack map from attribute names to values, including unknown attributes.
Its type travels beside the map as a fingerprint; 0 stands for a plain dict. Inside a value, a
moment is a MessagePack timestamp, and an object is extension 1, which holds the array
[fingerprint, map, object id or nil].

Most objects hold no other objects; msgspec encodes or decodes each of them in one call. The
codec walks all others, to find nested objects and to preserve attributes that this process does
not know.
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
    AttributeMisfit,
    DataObject,
    Foreign,
    ObjectId,
    bad_value,
    identify,
    set_state,
    set_tag,
    spelled,
    type_of,
    unknown_attributes,
)
from infobus.objects.kinds import (
    INT_MAX,
    OBJECT_EXT,
    PAYLOAD_BYTES_MAX,
    VALUES_COUNT_MAX,
    Copying,
    Misfit,
    plain_dict,
)
from infobus.objects.members import Attribute
from infobus.objects.outbound import ENCODE_ERRORS, Packing, culprit, weigh
from infobus.objects.plans import ClassPlan
from infobus.objects.sealed import SEALED, SEALED_PART
from infobus.objects.untyped import COUNTED_BYTES, check_count, read_untyped

__all__ = [
    "PAYLOAD_BYTES_MAX",
    "Mismatched",
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
"""The buffers that `decode` accepts; bytes are fastest."""
_UINT64 = 0xCF  # the first byte of the only integers that may exceed a signed 64-bit integer

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
    """Return the type's fingerprint, the payload, and the fingerprints of all types it needs.

    The needed types include supertypes and the types of nested objects. A receiver that has
    their descriptors can read everything. A received object keeps the type and the attributes
    it was received with, unless you changed it in a way that this type forbids.

    Raises:
        BadValue: `obj` is neither an object nor a dict, holds a value that cannot be sent, is
            cyclic or nested deeper than 64 levels, or takes more than 16 MiB. `path` says
            where.
    """
    if obj.__class__ is dict:  # faster than the AttributeError below
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
    # More entries than attributes: a cached property, for example, which must not be sent.
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
    if len(payload) > COUNTED_BYTES:
        _check_size(payload, obj.__bus_type__.name)
    return plan.fingerprint, payload, plan.closure


def encode_event(
    obj: Any, sender: str, number: int
) -> tuple[int, bytes, tuple[int, ...], str | None]:
    """Encode `obj` for publication, as `encode` does; an object without an id gets the event's.

    The last value is the object's id if it had one before, else None.
    """
    try:
        plan = obj.__bus_plan__
        flat = plan.flat
        if flat is not None:
            body = flat.encode_new(obj, sender, number)
            if body is not None:
                return plan.fingerprint, body, plan.closure, None
    except AttributeError:
        pass  # Not an object; `encode` below says what is wrong.
    event_id = (sender, number)
    fingerprint, payload, types = encode(obj)
    named = identify(obj, event_id) if isinstance(obj, DataObject) else event_id
    return fingerprint, payload, types, None if named is event_id else spelled(named)


def decode(fingerprint: int, payload: Payload, object_id: ObjectId | None = None) -> Any:
    """Return the object in `payload`: an instance of the best known class, or a dict for 0.

    If the object was sent under another version of a known type, you get an instance of the
    class that this process knows. Attributes that were not sent have their default, or None if
    they are optional. Attributes that the class lacks are stored as unknown. If the class cannot
    hold the object, or there is no descriptor, you get a generic object: it has the type it was
    sent with, and all attributes as they were sent.

    Raises:
        BadFrame: The bytes are not an object. No bytes make this raise anything else.
    """
    try:
        return reader_for(fingerprint)(bytes(payload), object_id)
    except Mismatched as mismatched:
        return mismatched.object


def reader_for(fingerprint: int) -> Reader:
    """Return the fastest function that reads objects of a type: `read(payload, object_id)`.

    It does what `decode` does, but raises `Mismatched` if the class cannot hold the object. Ask
    again for every run of objects, because the process may learn new types in between.
    """
    plan = _plan_for(fingerprint)
    if plan is None:
        return partial(_decode_checked, fingerprint)
    if plan.reader is None:
        plan.reader = _quick_reader(plan)
    return plan.reader


def _quick_reader(plan: ClassPlan) -> Reader:
    """Make a reader for objects that match `plan` exactly; `_decode_walking` reads the rest."""
    read_map, new, integers = plan.decode, plan.new, plan.integers
    first_byte, header, fingerprint = plan.first_byte, plan.header, plan.fingerprint
    read_flat = plan.flat.decode if plan.flat is not None else _read_nothing
    rich = plan.rich

    def read(payload: bytes, object_id: ObjectId | None) -> Any:
        try:
            if (found := read_flat(payload, object_id)) is not None:
                return found
            if len(payload) > COUNTED_BYTES:
                check_count(payload)
            if payload[0] == first_byte or payload.startswith(header):
                state: Any = read_map(payload)
                if not (_UINT64 in payload and any(state[name] > INT_MAX for name in integers)):
                    for name, kind in rich:
                        kind.lift(state[name])
                    obj = new()
                    set_state(obj, state)
                    set_tag(obj, object_id)
                    return obj
        except (*_DECODE_ERRORS, Misfit):
            pass  # Perhaps unusual rather than wrong: the slow way decides.
        return _decode_checked(fingerprint, payload, object_id)

    return read


def _read_nothing(payload: bytes, object_id: ObjectId | None) -> Any:
    return None


def descriptors(fingerprints: Iterable[int]) -> list[bytes]:
    """Return the known descriptors of these types and their supertypes, supertypes first.

    A type of which this process knows only the fingerprint is left out.
    """
    return descriptors_of(fingerprints)


def types_in(payloads: Iterable[Payload]) -> set[int]:
    """The types of all objects inside these payloads, without those of the payloads themselves.

    Bytes that hold no object are skipped: decoding them reports what is wrong.
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


# --- encoding objects that are not flat --------------------------------------------------------


def _encode_untyped(value: Any) -> tuple[int, bytes, tuple[int, ...]]:
    if not isinstance(value, dict):
        return encode(carried(value))
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
    _check_size(payload, "dict")
    return 0, payload, needs


def carried(value: Any) -> Any:
    """Return what is published for `value`; see `payloads`."""
    from infobus.objects.payloads import carried  # late: most programs publish data objects

    return carried(value)


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
    _check_size(payload, name)
    return fingerprint, payload, tuple(packing.needs)


def _unsendable(body: Any, where: str, error: Exception) -> BadValue:
    path, problem = culprit(body, error, "[{!r}]" if where == "dict" else ".{}")
    return BadValue(f"{where}{path}: {problem}", path=where + path)


def _check_size(payload: bytes, where: str) -> None:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise BadValue(
            f"{where}: takes {len(payload)} bytes encoded; {PAYLOAD_BYTES_MAX} are allowed",
            path=where,
        )
    try:
        check_count(payload)
    except BadFrame:
        raise BadValue(
            f"{where}: holds more than {VALUES_COUNT_MAX:,} values; so many are allowed",
            path=where,
        ) from None


# --- decoding objects that are not flat, or do not match their plan --------------------------


class _Nested(msgspec.Struct, array_like=True):
    """The content of extension 1; later versions may append fields."""

    fingerprint: Annotated[int, Meta(ge=1)]
    body: Raw
    id: str | None = None


_decode_nested = msgspec.msgpack.Decoder(_Nested).decode


class Mismatched(Exception):
    """The class that this process has for a type cannot hold a received object of that type.

    `object` is the generic object: it has the type it was sent with, and the values it was sent
    with. The other attributes tell the first attribute that does not fit.
    """

    def __init__(self, obj: Any, misfit: AttributeMisfit) -> None:
        self.object = obj
        is_object = isinstance(obj, DataObject)
        self.type = type_of(obj).name if is_object else type(obj).__name__
        self.attribute = misfit.path.removeprefix(".")
        self.expected = misfit.expected
        self.sent = unknown_attributes(obj).get(self.attribute) if is_object else None
        super().__init__(f"{self.type}{misfit.path}: {misfit.problem}")


def _decode_checked(fingerprint: int, payload: bytes, object_id: ObjectId | None) -> Any:
    obj = _decode_walking(fingerprint, payload, object_id, 1)
    if obj.__class__ is DataObject and obj.__bus_tag__.__class__ is Foreign:
        misfit = obj.__bus_tag__.misfit
        if misfit is not None:
            raise Mismatched(obj, misfit)
    return obj


def _decode_walking(
    fingerprint: int, payload: bytes, object_id: ObjectId | None, depth: int
) -> Any:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise BadFrame(f"an object of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} are allowed")
    if depth == 1:
        check_count(payload)  # with all that is nested in it
    try:
        body = read_untyped(payload, depth, _read_ext)
    except _DECODE_ERRORS as error:
        raise BadFrame(f"not an object: {error}") from None
    if body.__class__ is not dict:
        raise BadFrame(f"not an object: expected a map, got {type(body).__name__}")
    if fingerprint == 0:
        return body
    return reconciled(class_for(fingerprint) or DataObject, fingerprint, body, object_id)


def _read_ext(ext: Ext, depth: int) -> Any:
    if ext.code != OBJECT_EXT:
        raise BadFrame(f"extension {ext.code} of MessagePack has no meaning here")
    nested = _decode_nested(ext.data)
    return _decode_walking(nested.fingerprint, bytes(nested.body), nested.id, depth)


def reconciled(
    cls: type[DataObject], fingerprint: int, body: dict[str, Any], object_id: ObjectId | None
) -> DataObject:
    """Make an instance of `cls` from `body`, which may be of another version of the type.

    No value is lost: attributes that the class lacks become unknown attributes. If the class
    cannot hold one of its attributes, the result is a generic object with all of `body`.
    """
    state: dict[str, Any] = {}
    filled: dict[str, Any] = {}
    unknown = dict(body)
    is_own_version = fingerprint == cls.__bus_plan__.fingerprint
    is_sealed = SEALED_PART in body
    for name, _, check, attribute in cls.__bus_plan__.fields:
        try:
            if name not in body:
                if is_sealed:
                    state[name] = filled[name] = SEALED
                    continue
                state[name] = _filled_in(attribute)
                filled[name] = attribute.fresh_default()
                continue
            value = body[name]
            state[name] = check(value)
        except Misfit as misfit:
            found = AttributeMisfit(f".{name}{misfit.path}", misfit.problem, attribute.type)
            obj = _new(DataObject)
            set_state(obj, {})
            set_tag(obj, Foreign(fingerprint, body, {}, object_id, found))
            return obj
        if attribute.kind.converts and not is_own_version and _differ(value, state[name]):
            filled[name] = check(value)  # A float here, but forwarded as the int it was.
        else:
            del unknown[name]
    obj = _new(cls)
    set_state(obj, state)
    is_exact = is_own_version and not unknown and not filled
    set_tag(obj, object_id if is_exact else Foreign(fingerprint, unknown, filled, object_id))
    return obj


def _filled_in(attribute: Attribute) -> Any:
    """Return the value of an attribute that was not sent; raise `Misfit` if there is none."""
    default = attribute.fresh_default()
    if not attribute.has_default:
        try:
            attribute.checker.check(default)
        except Misfit:
            raise Misfit(f"expected {attribute.type}, but it was not sent") from None
    return default


def _differ(received: Any, stored: Any) -> bool:
    return _encode(received) != _encode(stored)
