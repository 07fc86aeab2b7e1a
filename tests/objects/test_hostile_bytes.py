"""Whatever the bytes hold: an object, or BadFrame, in bounded time and memory."""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.objects import DataObject, define_type, describe, type_of
from infobus.objects.codec import PAYLOAD_BYTES_MAX, decode, encode, learn
from infobus.objects.descriptors import DESCRIPTOR_BYTES_MAX
from tests.objects import worlds


class Flat(DataObject):
    text: str = "abc"
    number: int = 1
    names: list[str] = ["a", "b"]


class Deep(DataObject):
    any: Any = None
    one: DataObject | None = None
    many: dict[str, DataObject] = {}


SAMPLE = Deep(any=[1, {"a": Flat()}, None, 2.5, b"x"], one=Flat(), many={"k": Deep()})
FINGERPRINTS = [0, type_of(Flat).fingerprint, type_of(Deep).fingerprint, 77]


@st.composite
def mangled(draw: st.DrawFn, original: bytes) -> bytes:
    """`original` with some bytes changed, cut out or put in."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data)))
        change = draw(st.binary(max_size=3))
        data[position : position + draw(st.integers(0, 3))] = change
    return bytes(data)


def check(fingerprint: int, payload: bytes) -> None:
    """It is refused, or gives an object that can be shown and sent like any other."""
    try:
        obj = decode(fingerprint, payload)
    except BadFrame:
        return
    describe(obj)
    repr(obj)
    sent, normal, _ = encode(obj)
    assert encode(decode(sent, normal))[:2] == (sent, normal)


@given(st.sampled_from(FINGERPRINTS), st.binary(max_size=60))
def test_random_bytes(fingerprint, payload):
    check(fingerprint, payload)


@given(st.sampled_from(FINGERPRINTS), st.sampled_from([Flat(), SAMPLE]), st.data())
def test_mangled_objects(fingerprint, obj, data):
    check(fingerprint, data.draw(mangled(encode(obj)[1])))


@given(st.sampled_from(FINGERPRINTS), worlds.anything)
def test_well_formed_bytes_of_another_shape(fingerprint, value):
    check(fingerprint, msgspec.msgpack.encode(value))
    check(fingerprint, msgspec.msgpack.encode({"any": value, "text": value, "many": value}))


@given(st.binary(max_size=60))
def test_random_descriptors(data):
    with worlds.another_process(), pytest.raises(BadFrame):
        learn(data)


@given(st.data())
def test_mangled_descriptors(data):
    with worlds.another_process():

        def op(self, a: int, b: str = "x") -> list[int]:
            return []

        Base = define_type("Base", [], {"x": int})
        known = type_of(
            define_type("Thing", [Base], {"a": (int, 5), "b": "list[Flat]"}, {"op": op}, doc="d")
        )
    with worlds.another_process():
        try:
            fingerprint = learn(data.draw(mangled(known.descriptor)))
        except BadFrame:
            return
        check(fingerprint, encode({"a": 1, "b": [], "x": "?"})[1])


@pytest.mark.parametrize("fingerprint", FINGERPRINTS)
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
        b"\x91" * 3000,
        b"\x91" * 1_000_000,
        b"\x81\xa1a" * 100_000,
        b"\x81\xa3any" + b"\x91" * 100 + b"\xc0",
        b"\x81\xa3any" + b"\x91" * 100 + b"\xc4\xff" * 3000,
        b"\x81\x01\x02",
        b"\x81\xa1a\x81\x80\x01",
        b"\x81\xa1a\x81\x91\x01\x01",
        b"\x81\xa1a\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x81\xa1a\xd4\x05\x00",
        b"\x81\xa1a\xd4\x01\x00",
        b"\x81\xa1a\xd5\x01\x92\x00",
        b"\x81\xa1a\xc7\x04\x01\x93\x00\x80\xc0",
        b"\x81\xa1a\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x81\xa1a\xc7\x0c\xff" + b"\xff" * 12,
        b"\x81\xa1\xff\x01",
        b"\x80\x80",
    ],
)
def test_known_tricks_are_refused(fingerprint, payload):
    with pytest.raises(BadFrame):
        decode(fingerprint, payload)


def test_a_length_without_content_allocates_nothing():
    tracemalloc.start()
    try:
        for prefix in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
            with pytest.raises(BadFrame):
                decode(0, b"\x81\xa1a" + prefix + b"\x7f\xff\xff\xff" + b"\x01" * 10_000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def nested_objects(levels: int, fingerprint: int) -> bytes:
    body = b"\x80"
    for _ in range(levels - 1):
        inside = b"\x93" + msgspec.msgpack.encode(fingerprint) + body + b"\xc0"
        body = b"\x81\xa3one" + b"\xc9" + struct.pack(">I", len(inside)) + b"\x01" + inside
    return body


@pytest.mark.parametrize("fingerprint", FINGERPRINTS[1:])
def test_objects_nest_to_the_limit_and_no_further(fingerprint):
    obj = decode(fingerprint, nested_objects(64, fingerprint))
    assert encode(obj)[0] == fingerprint
    with pytest.raises(BadFrame, match="nested deeper than 64"):
        decode(fingerprint, nested_objects(65, fingerprint))


def test_keys_made_to_collide_do_not_cost_time():
    """Keys of a map must be strings, and that is found out before many are taken in."""
    keys = b"".join(b"\xcf" + struct.pack(">Q", i << 40) + b"\xc0" for i in range(200_000))
    payload = b"\x81\xa1a\xdf" + struct.pack(">I", 200_000) + keys
    with pytest.raises(BadFrame):
        decode(0, payload)


def test_oversized_payloads_and_descriptors_are_refused():
    for fingerprint in FINGERPRINTS:
        with pytest.raises(BadFrame, match="are allowed"):
            decode(fingerprint, b"\x83" + b"\x00" * PAYLOAD_BYTES_MAX)
    with pytest.raises(BadFrame, match="are allowed"):
        learn(b"\x00" * (DESCRIPTOR_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "str"},
        {"name": "a b"},
        {"name": "DataObject"},
        {"name": "T", "supertypes": [["T", 5]]},
        {"name": "T", "supertypes": [["U", -5]]},
        {"name": "T", "attributes": [{"name": "__class__", "type": "str"}]},
        {"name": "T", "attributes": [{"name": "a", "type": "strr ing"}]},
        {"name": "T", "attributes": [{"name": "a", "type": "list[" * 1000}]},
        {"name": "T", "attributes": [{"name": "a", "type": "int", "default": "x"}]},
        {"name": "T", "attributes": [{"name": "a", "type": "int"}] * 2},
        {"name": "T", "attributes": [{"name": f"a{i}", "type": "int"} for i in range(1025)]},
        {"name": "T", "operations": [{"name": "a", "result": "no such"}]},
    ],
)
def test_impossible_descriptors_are_refused(fields):
    with pytest.raises(BadFrame, match="not a type descriptor"):
        learn(msgspec.msgpack.encode(fields))


def test_a_long_line_of_supertypes_ends_at_a_limit():
    with worlds.another_process():
        above: list[list[Any]] = []
        for i in range(100):
            fields = {"name": f"T{i}", "supertypes": above, "attributes": [], "operations": []}
            above = [[f"T{i}", learn(msgspec.msgpack.encode(fields))]]
        received = decode(above[0][1], b"\x81\xa1a\x01")
        assert received.a == 1
        assert len(type(received).__mro__) < 80
