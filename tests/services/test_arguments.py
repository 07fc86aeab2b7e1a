"""The short way of plain values agrees with the long way of all others."""

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from infobus import BadValue
from infobus.errors import BadFrame
from infobus.objects import codec
from infobus.services.arguments import read, write

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.just("\ud800")
    | st.just("x" * 5000)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
MAPS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
STRANGE_MAPS = st.dictionaries(SCALARS.filter(lambda key: key != "\ud800"), VALUES, max_size=3)


def outcome(act, *errors):
    """What comes of it; text, because NaN is not even equal to itself."""
    try:
        return repr(act())
    except errors as error:
        return f"{type(error).__name__}: {error}"


def packed(value):
    try:
        return msgspec.msgpack.encode(value)
    except (ValueError, OverflowError):
        return b"\x80"


@given(MAPS)
@example({"value": 2**63 - 1})
@example({"value": 2**63})
@example({"value": True})
def test_values_are_written_alike(values):
    long = outcome(lambda: codec.encode(values)[1:], BadValue)
    assert outcome(lambda: write(values), BadValue) == long


def test_values_that_take_too_much_are_refused():
    large = {"value": b"x" * (16 * 1024 * 1024)}
    assert "16777216" in outcome(lambda: write(large), BadValue)


@given(st.one_of(st.binary(max_size=40), MAPS.map(packed), STRANGE_MAPS.map(packed)))
@example(b"\x81\xa5value\xcf" + b"\xff" * 8)
@example(b"\x81\xa5value\xc1")
def test_bytes_are_read_alike(payload):
    long = outcome(lambda: codec.decode(0, payload), BadFrame)
    assert outcome(lambda: read(payload), BadFrame) == long
