"""What is written and read in C is what Python would write and read, and nothing is kept of it."""

from __future__ import annotations

import copy
import gc
import pickle
import struct
import subprocess
import sys
import weakref
from functools import cached_property

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame, BadValue
from infobus.objects import DataObject, codec, id_of
from infobus.objects.data import set_tag
from infobus.objects.flat import Flat
from infobus.objects.kinds import INT_MAX, INT_MIN

pytestmark = pytest.mark.skipif(
    Flat is None, reason="no C compiler, or no headers of Python, when infobus was installed"
)


class Reading(DataObject):
    place: str
    number: int
    celsius: float
    is_sure: bool
    raw: bytes
    note: str | None = None
    count: int | None = None
    share: float | None = None
    is_old: bool | None = None
    more: bytes | None = None


FLAT = Reading.__bus_plan__.flat
FINGERPRINT = Reading.__bus_plan__.fingerprint
EDGES = [0, 31, 32, 127, 128, 255, 256, 65_535, 65_536, 2**31, 2**32 - 1, 2**32, INT_MAX]
integers = st.sampled_from([*EDGES, *(-n for n in EDGES), INT_MIN]) | st.integers(INT_MIN, INT_MAX)
texts = st.text(max_size=40) | st.sampled_from(["é" * 16, "x" * 255, "x" * 256, "x" * 65_536])
binary = st.binary(max_size=40) | st.sampled_from([b"x" * 255, b"x" * 256, b"x" * 65_536])
floats = st.floats(allow_nan=False)
readings = st.builds(
    Reading,
    place=texts,
    number=integers,
    celsius=floats,
    is_sure=st.booleans(),
    raw=binary,
    note=st.none() | texts,
    count=st.none() | integers,
    share=st.none() | floats,
    is_old=st.none() | st.booleans(),
    more=st.none() | binary,
)


def one(place: str = "kiln") -> Reading:
    return Reading(place=place, number=300, celsius=21.5, is_sure=True, raw=b"\0\1")


def read_in_python(body: bytes) -> Reading | None:
    """What the codec makes of it without C; None if it refuses."""
    plan = Reading.__bus_plan__
    plan.flat, plan.reader = None, None
    try:
        return codec.decode(FINGERPRINT, body, "id")
    except BadFrame:
        return None
    finally:
        plan.flat, plan.reader = FLAT, None


@given(readings)
def test_objects_are_written_as_msgspec_writes_them(reading):
    assert FLAT.encode(reading) == msgspec.msgpack.encode(reading.__dict__)


@given(readings)
def test_what_was_written_is_read_again(reading):
    read = FLAT.decode(FLAT.encode(reading), "id")
    assert read == reading
    assert type(read) is Reading
    assert id_of(read) == "id"


@given(st.lists(st.sampled_from(["", "kiln", "kilo", "Ölofen", "x" * 64, "x" * 65, "x" * 66])))
def test_texts_that_come_again_are_read_as_any_other(places):
    bodies = [FLAT.encode(one(place)) for place in places]
    read = FLAT.decode_run(bodies, "node", list(range(len(bodies))))
    assert [reading.place for reading in read] == places


@given(st.data())
def test_bytes_that_are_not_quite_right_are_read_as_python_reads_them_or_not_at_all(data):
    body = bytearray(FLAT.encode(data.draw(readings)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    read = FLAT.decode(bytes(body), "id")
    assert read is None or read.__dict__ == read_in_python(bytes(body)).__dict__


@pytest.mark.parametrize("size", range(len(FLAT.encode(one())) if FLAT else 0))
def test_bytes_that_end_early_are_not_read(size):
    assert FLAT.decode(FLAT.encode(one())[:size], None) is None


@pytest.mark.parametrize("head", [b"\xdb\xff\xff\xff\xff", b"\xda\xff\xff", b"\xd9\xff", b"\xbf"])
def test_a_text_longer_than_its_bytes_is_not_read(head):
    start = Reading.__bus_plan__.header + msgspec.msgpack.encode("place")
    assert FLAT.decode(start + head + b"kiln", None) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 2**63),
        ("number", 1.0),
        ("number", True),
        ("number", None),
        ("celsius", 1),
        ("is_sure", 1),
        ("place", b"kiln"),
        ("place", "\ud800"),
        ("raw", "text"),
        ("note", 5),
        ("more", []),
    ],
)
def test_values_that_the_type_does_not_have_are_left_to_python(name, value):
    reading = one()
    reading.__dict__[name] = value
    assert FLAT.encode(reading) is None
    assert FLAT.encode_run([reading], 1000) is None
    if value != "\ud800":
        body = msgspec.msgpack.encode(reading.__dict__)
        assert FLAT.decode(body, None) is None
        assert FLAT.decode_run([body], "node", [1]) is None


def test_a_float_of_four_bytes_and_attributes_in_another_order_are_left_to_python():
    written = FLAT.encode(one())
    double = struct.pack(">Bd", 0xCB, 21.5)
    assert FLAT.decode(written.replace(double, struct.pack(">Bf", 0xCA, 21.5)), None) is None
    backwards = msgspec.msgpack.encode(dict(reversed(one().__dict__.items())))
    assert FLAT.decode(backwards, None) is None
    assert codec.decode(FINGERPRINT, backwards) == one()


def test_an_object_gets_its_id_when_it_is_first_written_for_publication():
    reading = one()
    assert FLAT.encode_new(reading, "node", 10) == FLAT.encode(reading)
    assert id_of(reading) == "node:a"
    assert FLAT.encode_new(reading, "node", 11) is None
    assert id_of(reading) == "node:a"


def test_an_object_that_is_too_large_is_left_to_python_which_refuses_it():
    reading = one()
    reading.raw = bytes(codec.PAYLOAD_BYTES_MAX)
    assert FLAT.encode(reading) is FLAT.encode_new(reading, "node", 1) is None
    assert id_of(reading) is None
    with pytest.raises(BadValue, match="are allowed"):
        codec.encode_event(reading, "node", 1)


def test_a_run_holds_different_objects_of_one_class_without_ids():
    first, second, named = one(), one(), one()
    set_tag(named, "x")
    bodies = FLAT.encode_run([first, second], 1000)
    assert bodies == [FLAT.encode(first)] * 2
    for others in ([first, second, first], [first, named], [first, {}], [first, DataObject()]):
        assert FLAT.encode_run(others, 1000) is None
    assert FLAT.encode_run([first, second], len(bodies[0]) - 1) is None
    assert id_of(first) is id_of(second) is None
    FLAT.identify_run([first, second], "node", [1, 2])
    assert (id_of(first), id_of(second)) == ("node:1", "node:2")
    read = FLAT.decode_run(bodies, "node", [1, 2])
    assert read == [first, second]
    assert [id_of(reading) for reading in read] == ["node:1", "node:2"]


def test_wrong_arguments_are_refused():
    for call in (
        lambda: FLAT.encode_new(one()),
        lambda: FLAT.encode_run((one(),), 10),
        lambda: FLAT.encode_run([one()], "10"),
        lambda: FLAT.identify_run([one()], "node", []),
        lambda: FLAT.identify_run([5], "node", [1]),
        lambda: FLAT.decode(b""),
        lambda: FLAT.decode_run([b""], "node", []),
        lambda: Flat(Reading),
        lambda: Flat(Reading, 5, b"\x80", (), 10, True),
        lambda: Flat(Reading, Reading.__dict__, b"\x80", ((1, 2, 3),), 10, True),
        lambda: Flat(Reading, DataObject.__bus_tag__, b"\x80", (("a", b"", "?"),), 10, True),
        lambda: Flat(Reading, DataObject.__bus_tag__, b"\x80", (5,), 10, True),
        lambda: Flat(Reading, DataObject.__bus_tag__, b"\x80" * 4, (), 10, True),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_objects_read_in_c_are_like_any_other():
    read = FLAT.decode(FLAT.encode(one()), "id")
    assert repr(read) == repr(one())
    assert pickle.loads(pickle.dumps(read)) == copy.deepcopy(read) == one()
    assert weakref.ref(read)() is read
    read.number = 7
    assert read.__dict__["number"] == 7
    assert FLAT.encode(read) == msgspec.msgpack.encode(read.__dict__)
    with pytest.raises(BadValue, match=r"Reading\.number: expected int"):
        read.number = "seven"
    with pytest.raises(AttributeError, match="no attribute"):
        _ = read.missing


def test_a_class_that_computes_an_attribute_is_left_to_python():
    class Doubling:
        __slots__ = ()

        @property
        def cents(self) -> int:
            return 2 * self.__dict__["cents"]

    class Price(Doubling, DataObject):
        cents: int

    price = Price(cents=2)
    assert price.cents == 4
    assert Price.__bus_plan__.flat is None
    assert codec.decode(*codec.encode(price)[:2]).__dict__ == {"cents": 2}


def test_no_finaliser_runs_when_a_class_is_made():
    gone = []

    class Closing(DataObject):
        number: int

        def __del__(self) -> None:
            gone.append(self.number)

    assert Closing.__bus_plan__.flat is None
    assert not gone


def test_types_with_lists_objects_moments_or_many_attributes_are_left_to_python():
    class Listed(DataObject):
        names: list[str]

    many = {f"n{number}": int for number in range(33)}
    wide = type("Wide", (DataObject,), {"__annotations__": many})
    assert Listed.__bus_plan__.flat is wide.__bus_plan__.flat is None
    few = dict(list(many.items())[:32])
    broad = type("Broad", (DataObject,), {"__annotations__": few})
    obj = broad(**dict.fromkeys(few, 1))
    assert broad.__bus_plan__.flat.decode(broad.__bus_plan__.flat.encode(obj), None) == obj


def test_nothing_is_kept_whatever_was_asked():
    good, bad = FLAT.encode(one()), FLAT.encode(one())[:-1]
    unfit = one()
    unfit.__dict__["more"] = 5
    numbers = list(range(1000, 1003))

    def ask_everything() -> None:
        reading = one()
        FLAT.encode(reading)
        FLAT.encode(unfit)
        FLAT.encode_run([reading, one()], 1000)
        FLAT.encode_run([reading, unfit], 1000)
        FLAT.encode_run([reading, reading], 1000)
        FLAT.identify_run([one(), one(), one()], "node", numbers)
        FLAT.encode_new(reading, "node", 1000)
        FLAT.encode_new(reading, "node", 1000)
        FLAT.decode(good, "id")
        FLAT.decode(bad, "id")
        FLAT.decode_run([good, good, good], "node", numbers)
        FLAT.decode_run([good, good, bad], "node", numbers)

    for _ in range(100):
        ask_everything()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(2000):
        ask_everything()
    gc.collect()
    assert sys.getallocatedblocks() - before < 500


def test_the_collector_walks_only_over_objects_that_may_refer_to_themselves():
    class Cached(DataObject):
        number: int

        @cached_property
        def itself(self) -> Cached:
            return self

    class Slotted(Reading):
        __slots__ = ("more_of_it",)

    class Caching:
        @cached_property
        def itself(self) -> object:
            return self

    class Mixed(DataObject, Caching):
        number: int

    flat = Cached.__bus_plan__.flat
    one_of_them = flat.decode(flat.encode(Cached(number=1)), None)
    assert one_of_them.itself is one_of_them
    gone = weakref.ref(one_of_them)
    del one_of_them
    gc.collect()
    assert gone() is None
    body = FLAT.encode(one())
    assert gc.is_tracked(flat.decode(flat.encode(Cached(number=1)), None))
    mixed = Mixed.__bus_plan__.flat
    assert gc.is_tracked(mixed.decode(mixed.encode(Mixed(number=1)), None))
    assert gc.is_tracked(Slotted.__bus_plan__.flat.decode(body, None))
    assert not gc.is_tracked(FLAT.decode(body, None))


def test_the_collector_is_as_it_was_after_a_run():
    good, bad = FLAT.encode(one()), b"\xc1"
    for bodies in ([good, good], [good, bad]):
        FLAT.decode_run(bodies, "node", [1, 2])
        assert gc.isenabled()
        gc.disable()
        try:
            FLAT.decode_run(bodies, "node", [1, 2])
            assert not gc.isenabled()
        finally:
            gc.enable()


def test_classes_that_are_let_go_are_collected():
    def make() -> weakref.ref[type]:
        cls = type("Passing", (), {"__slots__": ("tag",)})
        Flat(cls, cls.tag, b"\x80", (), 10, True).encode(cls())
        return weakref.ref(cls)

    held = make()
    gc.collect()
    assert held() is None


@pytest.mark.world
def test_without_the_module_everything_is_the_same():
    program = """
import sys
sys.modules["infobus.objects._flat"] = None
from infobus.objects import DataObject, codec, id_of, runs
class Price(DataObject):
    symbol: str
    cents: int
assert Price.__bus_plan__.flat is None
prices = [Price(symbol="GMC", cents=n) for n in range(3)]
fingerprint, bodies, _ = runs.encode(prices, 100)
runs.identify(prices, "node", [1, 2, 3])
read = runs.decode(fingerprint, bodies, "node", [1, 2, 3])
assert read == prices and [id_of(price) for price in read] == ["node:1", "node:2", "node:3"]
assert codec.encode_event(Price(symbol="A", cents=1), "node", 4)[3] is None
assert codec.decode(*codec.encode(prices[0])[:2]) == prices[0]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
