"""Large objects are counted before they are decoded: small values take more than their bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext, encode

from infobus.errors import BadFrame, BadValue
from infobus.objects import DataObject, codec, runs, untyped
from infobus.objects.kinds import DEPTH_MAX, VALUES_COUNT_MAX
from infobus.objects.untyped import COUNTED_BYTES, count_in_python, count_values
from tests.objects import worlds

ALL = VALUES_COUNT_MAX


def in_python(data: bytes) -> int:
    return count_in_python(data, 0, len(data), 0, DEPTH_MAX)


def counted(value: object) -> int:
    """The count, as a walk over the decoded value finds it."""
    if isinstance(value, dict):
        return len(value) + sum(map(counted, value.values()))
    if isinstance(value, list):
        return len(value) + sum(map(counted, value))
    if isinstance(value, Ext):
        return counted(msgspec.msgpack.decode(value.data)) if value.code == 1 else 0
    return 0


exts = worlds.anything.map(lambda value: Ext(1, encode([7, {"a": value}, None])))
others = st.builds(Ext, st.integers(2, 100), st.binary(max_size=40))
deep = st.recursive(
    worlds.scalars | exts | others,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(worlds.short_text, inner),
    max_leaves=20,
)


@settings(max_examples=40)
@given(deep)
def test_every_element_of_lists_maps_and_nested_objects_counts(value: object) -> None:
    data = encode(value)
    assert count_values(data) == in_python(data) == counted(msgspec.msgpack.decode(data))


@given(st.binary(max_size=200) | st.builds(lambda v, n: encode(v)[:n], deep, st.integers(0, 99)))
def test_any_bytes_are_counted_alike_with_and_without_the_module_in_c(data: bytes) -> None:
    assert min(count_values(data), ALL + 1) == min(in_python(data), ALL + 1)


@pytest.mark.parametrize("size", [2, 15, 16, 255, 256, 65_535, 65_536])
def test_lengths_of_all_sizes_are_skipped(size: int) -> None:
    values = [b"x" * size, "x" * size, Ext(5, b"x" * size), Ext(5, b"x" * 16), [0] * size]
    data = encode([*values, {str(n): 1 for n in range(size)}])
    assert count_values(data) == in_python(data) == 6 + 2 * size


def test_nesting_without_end_is_refused_before_it_is_decoded() -> None:
    data = b"\x01"
    for _ in range(DEPTH_MAX + 2):
        data = encode(Ext(1, data))
    assert count_values(data) == in_python(data) == ALL + 1


class Table(DataObject, name="count.Table"):
    rows: list[list[int]]


def many(count: int) -> bytes:
    """A list of so many empty lists, in few bytes."""
    return b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count


@pytest.mark.parametrize("fingerprint", [0, Table.__bus_type__.fingerprint])
def test_an_object_of_too_many_values_is_not_decoded(
    fingerprint: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = encode("rows")
    too_many = b"\x81" + key + many(COUNTED_BYTES)
    for name in ("read_untyped", "_decode_nested"):
        monkeypatch.setattr(codec, name, None)
    with pytest.raises(BadFrame, match="more than 1,000,000 values"):
        codec.decode(fingerprint, too_many)
    assert runs.decode(fingerprint, [too_many, too_many], "node", [1, 2]) is None


def test_nobody_can_publish_what_nobody_would_read() -> None:
    rows: list[list[int]] = [[]] * (COUNTED_BYTES + 1)
    for obj in (Table(rows=rows), {"rows": rows}):
        with pytest.raises(BadValue, match="holds more than 1,000,000 values; so many are allowed"):
            codec.encode(obj)
    codec.encode({"text": "x" * (COUNTED_BYTES + 1), "rows": [[]] * 100})
    assert untyped.count_values(codec.encode({"rows": [[]] * 100})[1]) == 101
