"""Headers: which there may be, and their bytes."""

import copy
import pickle
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame, BadValue
from infobus.headers import HEADERS_BYTES_MAX, NO_HEADERS, Headers, decode, encode

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
values = (
    st.text(st.characters(codec="utf-8"), max_size=40)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.binary(max_size=40)
)


@given(st.dictionaries(names, values, max_size=20))
def test_what_is_written_can_be_read(given: dict[str, Any]) -> None:
    read = decode(encode(given))
    assert read == given
    assert [type(one) for one in read.values()] == [type(one) for one in given.values()]
    assert list(read) == list(given)


class Word(StrEnum):
    RED = "red"


def test_values_that_are_nearly_plain_are_made_plain() -> None:
    class Count(int):
        pass

    read = decode(encode({Word.RED: Word.RED, "n": Count(3)}))
    assert [(type(n), n, type(v), v) for n, v in read.items()] == [
        (str, "red", str, "red"),
        (str, "n", int, 3),
    ]


def test_nothing_is_nothing() -> None:
    assert encode(None) == encode({}) == encode(NO_HEADERS) == b""
    assert decode(b"") is NO_HEADERS


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        (5, "headers=5: expected a mapping"),
        ([("a", 1)], "expected a mapping"),
        ({"": 1}, "header '' has no name"),
        ({1: 1}, "header 1 has no name"),
        ({"trace": None}, "header 'trace' is a NoneType; expected text"),
        ({"tags": ["a"]}, "header 'tags' is a list"),
        ({"n": 2**63}, "header 'n' is a whole number of more than 64 bits"),
        ({"half": "\ud800"}, "header 'half' holds half a surrogate pair"),
        ({str(n): n for n in range(65)}, "65 headers; at most 64"),
        ({"a": 1, "large": b"x" * 8200}, "at most 8192 are allowed. The largest is 'large'"),
    ],
)
def test_what_cannot_be_sent_is_named(headers: Any, problem: str) -> None:
    with pytest.raises(BadValue) as caught:
        encode(headers)
    assert problem in str(caught.value)


def test_the_bound_is_exact() -> None:
    room = HEADERS_BYTES_MAX - len(encode({"a": b"x" * 300})) + 300
    assert len(encode({"a": b"x" * room})) == HEADERS_BYTES_MAX
    with pytest.raises(BadValue):
        encode({"a": b"x" * (room + 1)})


pack = msgspec.msgpack.encode


@pytest.mark.parametrize(
    "junk",
    [
        b"\xc1",
        b"\x81",
        b"\x81\xa1a",
        b"\x81\xa1a\x01x",
        pack([1]),
        pack({"a": None}),
        pack({"a": [1]}),
        pack({"a": {}}),
        pack({1: 1}),
        pack({"": 1}),
        pack({"a": 2**63}),
        pack({"a": msgspec.msgpack.Ext(1, b"x")}),
        pack({str(n): n for n in range(65)}),
        b"\x81\xa1a" + b"\x91" * 5000,
        b"\x00" * 9000,
    ],
)
def test_other_bytes_are_refused_in_one_way(junk: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(junk)


@given(st.binary(max_size=60))
def test_any_bytes_give_headers_or_that_error(junk: bytes) -> None:
    try:
        found = decode(junk)
    except BadFrame:
        return
    assert decode(encode(found)) == found or any(v != v for v in found.values())


def test_headers_never_change_and_travel_between_processes() -> None:
    headers = Headers({"trace": "a"})
    with pytest.raises(TypeError):
        headers["trace"] = "b"  # type: ignore[index]
    assert pickle.loads(pickle.dumps(headers)) == copy.deepcopy(headers) == headers
    assert hash(Headers({"trace": "a"})) == hash(headers)
    assert repr(headers) == "Headers({'trace': 'a'})"
