"""Descriptors: types as bytes, so that a type can be sent before its objects.

A descriptor is a MessagePack map. Readers skip fields they do not know:

    name         str
    doc          str, may be missing
    supertypes   [[name, fingerprint], ...]
    attributes   [{name, type, doc, default}, ...]          no `default`: there is none
    operations   [{name, parameters, result, doc}, ...]     parameters are like attributes
    code         {source, signature}, may be missing        TDL methods sent with the type
    author       {key, signature}, may be missing           who answers for all of it

The fingerprint is an 8-byte BLAKE2b hash over the meaning alone, in canonical order: name,
supertypes, and the type's own attributes and operations without their docs. Fields that later
versions add to descriptors stay out of the hash, or older nodes could not check it.
"""

from __future__ import annotations

from _blake2 import blake2b  # hashlib's own, but without loading OpenSSL (5 ms)
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from infobus.errors import BadFrame, BadType
from infobus.objects import kinds
from infobus.objects.members import (
    Attribute,
    Operation,
    Parameter,
    check_member_name,
    make_attribute,
)
from infobus.objects.spelling import parse_kind
from infobus.objects.untyped import read_untyped

DESCRIPTOR_BYTES_MAX = 64 * 1024
SUPERTYPE_COUNT_MAX = 64
MEMBER_COUNT_MAX = 1024

Fingerprint = Annotated[int, Meta(ge=0)]  # MessagePack itself stops at 2**64 - 1.
# Dicts are written with sorted keys, so that equal defaults give equal bytes.
_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


class TravellingCode(NamedTuple):
    """Methods that are sent with a type: TDL source, and its author's signature if any.

    The code is not part of the type's meaning: no receiver has to run it.
    """

    source: str
    signature: bytes = b""


class Authorship(NamedTuple):
    """Who has signed a descriptor, unchecked, and what was signed."""

    key: bytes
    """A public key of 32 bytes (Ed25519), or a certificate."""
    signature: bytes
    message: bytes


class Description(Struct, frozen=True):
    """A type without its inherited members; supertypes appear by name and fingerprint."""

    name: str
    supertypes: tuple[tuple[str, int], ...]
    attributes: tuple[Attribute, ...]
    operations: tuple[Operation, ...]
    doc: str
    code: TravellingCode | None = None

    @property
    def fingerprint(self) -> int:
        """A number from 1 to 2**64 - 1 that depends only on the type's meaning."""
        meaning = [
            self.name,
            sorted(self.supertypes),
            sorted(same_bytes(a) for a in self.attributes),
            sorted(same_bytes(o) for o in self.operations),
        ]
        digest = blake2b(_canonical(meaning), digest_size=8).digest()
        return int.from_bytes(digest, "big") or 1  # 0 on the wire means "untyped".

    def write(self) -> bytes:
        """Return the descriptor; raise `BadType` if it would exceed a limit."""
        fields: dict[str, Any] = {
            "name": self.name,
            "doc": self.doc,
            "supertypes": self.supertypes,
            "attributes": [_parameter_fields(a) for a in self.attributes],
            "operations": [
                {
                    "name": o.name,
                    "parameters": [_parameter_fields(p) for p in o.parameters],
                    "result": str(o.result),
                    "doc": o.doc,
                }
                for o in self.operations
            ],
        }
        if self.code is not None:
            fields["code"] = self.code._asdict()
        for what, some, most in (
            ("supertypes", self.supertypes, SUPERTYPE_COUNT_MAX),
            ("attributes", self.attributes, MEMBER_COUNT_MAX),
            ("operations", self.operations, MEMBER_COUNT_MAX),
        ):
            if len(some) > most:
                raise BadType(f"type {self.name} has {len(some)} {what}; {most} are allowed")
        descriptor = _canonical(fields)
        if len(descriptor) > DESCRIPTOR_BYTES_MAX:
            raise BadType(
                f"type {self.name} is too large: its descriptor has {len(descriptor)} bytes, "
                f"{DESCRIPTOR_BYTES_MAX} are allowed"
            )
        return descriptor


def same_bytes(member: Attribute | Operation) -> bytes:
    """Return bytes that are equal exactly if two members mean the same."""
    return _canonical(member.meaning())


def _parameter_fields(parameter: Parameter) -> dict[str, Any]:
    fields = {"name": parameter.name, "type": parameter.type, "doc": parameter.doc}
    return fields | ({"default": parameter.default} if parameter.has_default else {})


class _ParameterFields(msgspec.Struct):
    name: str
    type: str
    doc: str = ""
    default: Raw | UnsetType = UNSET


class _OperationFields(msgspec.Struct):
    name: str
    result: str
    parameters: Annotated[list[_ParameterFields], Meta(max_length=MEMBER_COUNT_MAX)] = []
    doc: str = ""


class _CodeFields(msgspec.Struct):
    source: str
    signature: bytes = b""


class _Fields(msgspec.Struct):
    name: str
    supertypes: Annotated[list[tuple[str, Fingerprint]], Meta(max_length=SUPERTYPE_COUNT_MAX)] = []
    attributes: Annotated[list[_ParameterFields], Meta(max_length=MEMBER_COUNT_MAX)] = []
    operations: Annotated[list[_OperationFields], Meta(max_length=MEMBER_COUNT_MAX)] = []
    doc: str = ""
    code: _CodeFields | None = None


_decode = msgspec.msgpack.Decoder(_Fields).decode


def read(descriptor: bytes) -> Description:
    """Parse a descriptor; raise `BadFrame`, and nothing else, if the bytes are wrong."""
    if len(descriptor) > DESCRIPTOR_BYTES_MAX:
        raise BadFrame(
            f"a type descriptor of {len(descriptor)} bytes; {DESCRIPTOR_BYTES_MAX} are allowed"
        )
    try:
        return _described(_decode(descriptor))
    except (msgspec.MsgspecError, BadFrame, ValueError, TypeError, RecursionError) as error:
        raise BadFrame(f"not a type descriptor: {error}") from None


def authored_bytes(descriptor: bytes, key: bytes) -> bytes:
    """Return what the author of a descriptor signs: all of it, whatever later versions add."""
    fields = _decode_fields(descriptor)
    fields.pop("author", None)
    return b"infobus type 1\0" + _canonical([key, fields])


def with_author(descriptor: bytes, key: bytes, signature: bytes) -> bytes:
    """Return the descriptor with its author; raise `BadType` if it is too large then."""
    fields = _decode_fields(descriptor)
    fields["author"] = Raw(_canonical({"key": key, "signature": signature}))
    made = _canonical(fields)
    if len(made) > DESCRIPTOR_BYTES_MAX:
        raise BadType(f"with its author, a descriptor has {len(made)} bytes: too many")
    return made


def authorship(descriptor: bytes) -> Authorship | None:
    """Return who says to be the author of a descriptor that was read; None if nobody does."""
    try:
        fields = _decode_fields(descriptor)
        told = fields.get("author")
        if told is None:
            return None
        author = _decode_author(told)
        return Authorship(author.key, author.signature, authored_bytes(descriptor, author.key))
    except (msgspec.MsgspecError, ValueError):
        return None


class _AuthorFields(msgspec.Struct):
    key: Annotated[bytes, Meta(max_length=8192)]
    signature: Annotated[bytes, Meta(max_length=128)]


_decode_fields = msgspec.msgpack.Decoder(dict[str, Raw]).decode
_decode_author = msgspec.msgpack.Decoder(_AuthorFields).decode


def _described(fields: _Fields) -> Description:
    name = kinds.check_type_name(fields.name)
    supertypes = tuple((kinds.check_type_name(s), fp) for s, fp in fields.supertypes)
    if name in dict(supertypes):
        raise BadType(f"type {name} names itself as its supertype")
    attributes = tuple(_parameter(name, a) for a in fields.attributes)
    operations = tuple(
        Operation(
            check_member_name(o.name, name),
            tuple(_parameter(f"{name}.{o.name}", p) for p in o.parameters),
            parse_kind(o.result),
            o.doc,
        )
        for o in fields.operations
    )
    names = [a.name for a in attributes] + [o.name for o in operations]
    if len(set(names)) < len(names):
        raise BadType(f"type {name} has two members of one name")
    code = (
        None if fields.code is None else TravellingCode(fields.code.source, fields.code.signature)
    )
    return Description(name, supertypes, attributes, operations, fields.doc, code)


def _parameter(where: str, fields: _ParameterFields) -> Attribute:
    default = () if fields.default is UNSET else (read_untyped(bytes(fields.default)),)
    return make_attribute(where, fields.name, parse_kind(fields.type), fields.doc, default)
