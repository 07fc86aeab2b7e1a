"""Runs of objects are read as their objects would be, one by one."""

from functools import cached_property

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus import BadFrame, DataObject
from infobus.objects import codec, id_of, runs


class Quote(DataObject):
    symbol: str
    cents: int
    tags: list[str] = []  # noqa: RUF012 - each object gets its own


fitting = st.fixed_dictionaries(
    {
        "symbol": st.text(max_size=5),
        "cents": st.integers(-(2**63), 2**63 - 1),
        "tags": st.lists(st.text(max_size=3), max_size=2),
    }
)
unusual = st.dictionaries(
    st.sampled_from(["symbol", "cents", "tags", "more"]),
    st.text(max_size=5) | st.integers(2**63, 2**64 - 1) | st.booleans() | st.none(),
    max_size=4,
)
bodies = st.lists(fitting.map(msgspec.msgpack.encode), min_size=1, max_size=5)
strange = (fitting | unusual).map(msgspec.msgpack.encode) | st.sampled_from([b"", b"\xc1", b"\x07"])
fingerprint = Quote.__bus_plan__.fingerprint
ids = [("node", number) for number in range(10)]


def read_together(some):
    return runs.decode(fingerprint, some, "node", list(range(len(some))))


def read_singly(some):
    """What the codec makes of each, None where it refuses."""
    objects = []
    for body, object_id in zip(some, ids, strict=False):
        try:
            objects.append(codec.decode(fingerprint, body, object_id))
        except BadFrame:
            objects.append(None)
    return objects


@given(bodies)
def test_objects_just_as_the_type_says_are_read_together(some):
    read = read_together(some)
    assert read == read_singly(some)
    assert [id_of(obj) for obj in read] == [id_of(obj) for obj in read_singly(some)]


@given(bodies, strange, st.integers(0, 5))
def test_with_any_other_object_among_them_they_are_read_singly(some, other, at):
    some.insert(at, other)
    read = read_together(some)
    assert read is None or read == read_singly(some)


def test_of_a_type_nobody_has_told_nothing_is_read_together():
    assert runs.decode(12345, [b"\x80"], "node", [1]) is None


@pytest.mark.parametrize("way", ["in C, if that is built", "in Python"])
def test_alike_objects_are_written_together(way):
    class Price(DataObject):
        symbol: str
        cents: int

    if way == "in Python":
        Price.__bus_plan__.flat = None
    some = [Price(symbol="GMC", cents=number) for number in range(3)]
    written = [codec.encode(price) for price in some]
    assert runs.encode(some, 100) == (written[0][0], [w[1] for w in written], written[0][2])
    assert runs.encode(some, 5) is None
    assert runs.encode([some[0], some[0]], 100) is None
    assert runs.encode([*some, Quote(symbol="", cents=1)], 100) is None
    runs.identify(some[:1], "node", [1])
    assert id_of(some[0]) == "node:1"
    assert runs.encode(some, 100) is None


@pytest.mark.parametrize("objects", [[{"n": 1}], [Quote(symbol="", cents=1)], [Quote], [5]])
def test_what_is_not_flat_is_written_singly(objects):
    assert runs.encode(objects, 100) is None


@pytest.mark.parametrize("way", ["in C, if that is built", "in Python"])
def test_what_a_class_caches_in_its_objects_is_not_sent(way):
    class Rated(DataObject):
        cents: int

        @cached_property
        def euros(self):
            return self.cents / 100

    if way == "in Python":
        Rated.__bus_plan__.flat = None

    def used():
        rated = Rated(cents=250)
        assert rated.euros == 2.5
        return rated

    wanted = msgspec.msgpack.encode({"cents": 250})
    assert codec.encode(used())[1] == codec.encode_event(used(), "node", 1)[1] == wanted
    written = runs.encode([used(), used()], 100)
    assert written is None or written[1] == [wanted, wanted]
