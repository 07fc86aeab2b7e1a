"""Attributes with Python classes of their own: what is carried, and what comes back."""

import contextlib
import copy
import datetime as dt
import pickle
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Any, Literal, Optional
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import BadFrame, BadType, BadValue
from infobus.filters import compile
from infobus.objects import DataObject, codec, define_type, json_forms, registry, type_of
from infobus.objects.bodies import put_together, take_apart
from infobus.objects.data import attribute_values
from infobus.objects.spelling import kind_of, parse_kind
from tests.objects.worlds import another_process


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    LOW = 1
    HIGH = 7


class Trade(DataObject):
    id: UUID
    side: Side
    price: Decimal
    level: Level = Level.LOW
    day: dt.date = dt.date(2026, 1, 2)
    at: dt.time = dt.time(9, 30)
    took: dt.timedelta = dt.timedelta(seconds=1.5)
    mode: Literal["fast", "slow", 3] = "fast"
    tags: set[str] = set()  # noqa: RUF012
    pair: tuple[int, str] = (1, "x")
    prices: list[Decimal] = []  # noqa: RUF012
    best: Optional[Decimal] = None  # noqa: UP045  it must work in this spelling, too
    either: int | str | None = None


def trade(**values: Any) -> Trade:
    return Trade(**{"id": UUID(int=7), "side": Side.BUY, "price": Decimal("41.10"), **values})


spans = st.integers(-(2**50), 2**50).map(lambda us: dt.timedelta(microseconds=us))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    Decimal: decimals,
    UUID: st.uuids(),
    dt.date: st.dates(),
    dt.time: st.times(),
    dt.timedelta: spans,
    Side: st.sampled_from(Side),
    Level: st.sampled_from(Level),
    Literal["a", "b", 3, True]: st.sampled_from(["a", "b", 3, True]),
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=5),
    float: st.floats(allow_nan=False),
}
_scalar_hints = st.sampled_from(list(_SCALARS))


@st.composite
def hints_with_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """An annotation with a rich kind, and a value for it."""
    hint = draw(_scalar_hints)
    value = _SCALARS[hint]
    match draw(st.sampled_from("plain list set frozenset tuple places map maybe union".split())):
        case "list":
            return list[hint], draw(st.lists(value, max_size=4))
        case "set":
            return set[hint], draw(st.sets(value, max_size=4))
        case "frozenset":
            return frozenset[hint], draw(st.frozensets(value, max_size=4))
        case "tuple":
            return tuple[hint, ...], tuple(draw(st.lists(value, max_size=4)))
        case "places":
            other = draw(_scalar_hints)
            return tuple[hint, list[other]], (draw(value), draw(st.lists(_SCALARS[other])))
        case "map":
            return dict[str, hint], draw(st.dictionaries(st.text(max_size=3), value, max_size=3))
        case "maybe":
            return hint | None, draw(st.none() | value)
        case "union":
            return Decimal | int | list[bool] | None, draw(
                decimals | _SCALARS[int] | st.lists(st.booleans()) | st.none()
            )
    return hint, draw(value)


@settings(max_examples=150)
@given(hints_with_values())
def test_whatever_is_set_comes_back_from_the_wire_and_from_stores(case):
    hint, value = case
    cls = define_type("Rich", [], {"held": hint, "count": int})
    obj = cls(held=value, count=1)
    assert obj.held == value
    fingerprint, payload, _ = codec.encode(obj)
    again = codec.decode(fingerprint, payload)
    assert again == obj and again.held == value and type(again) is cls
    assert put_together(*take_apart(obj)).held == value
    assert codec.encode(again)[1] == payload  # also after it was read: byte for byte
    assert msgspec.json.decode(json_forms.to_json(obj))["count"] == 1


@settings(max_examples=150)
@given(hints_with_values())
def test_a_stranger_learns_the_type_byte_for_byte_and_reads_the_same(case):
    hint, value = case
    cls = define_type("Rich", [], {"held": (hint, value)})
    fingerprint, payload, types = codec.encode(cls(held=value))
    taught = codec.descriptors(types)
    expected = attribute_values(cls(held=value))["held"]
    with another_process():
        assert [codec.learn(descriptor) for descriptor in taught] == [fingerprint]
        assert codec.descriptors([fingerprint]) == taught
        found = codec.decode(fingerprint, payload)
        assert plain_enums(found.held) == plain_enums(expected)
        assert codec.encode(found)[:2] == (fingerprint, payload)
        assert type(found).__bus_type__.attributes["held"].default == found.__dict__["held"]


def plain_enums(value: Any) -> Any:
    """The value as somebody has it who knows an enum by its values alone."""
    if isinstance(value, dict):
        return {key: plain_enums(one) for key, one in value.items()}
    if isinstance(value, list | set | frozenset | tuple):
        plain = type(value).__mro__[-2]
        return plain(plain_enums(one) for one in value)
    return value.value if isinstance(value, Enum) else value


@given(_scalar_hints, _scalar_hints, st.booleans())
def test_the_text_of_a_kind_is_read_back_as_the_same_kind(one, other, is_deep):
    kind = kind_of(tuple[one, set[other], dict[str, one | None]] if is_deep else list[one])
    assert str(parse_kind(str(kind))) == str(kind)


def test_an_object_holds_what_is_carried():
    held = trade(tags={"b", "a"}, prices=[Decimal("1.50")], either="x").__dict__
    assert held["side"] == "buy" and held["price"] == "41.10" and held["took"] == 1.5
    assert held["tags"] == ["a", "b"] and held["prices"] == ["1.50"] and held["pair"] == [1, "x"]


def test_values_may_be_given_as_the_bus_carries_them():
    written = trade(id=str(UUID(int=7)), side="buy", price="41.10", day="2026-01-02", took=1.5)
    assert written == trade()
    assert trade(price=0.1).price == Decimal("0.1") and trade(price=3).price == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("side", "hold"),
        ("side", Level.LOW),
        ("price", "much"),
        ("price", Decimal("NaN")),
        ("price", Decimal("Infinity")),
        ("price", "9" * 2000),
        ("price", True),
        ("id", "7"),
        ("id", 7),
        ("day", dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
        ("day", "yesterday"),
        ("took", dt.timedelta(days=999_999_999, microseconds=1)),
        ("took", float("nan")),
        ("took", 1e300),
        ("mode", "medium"),
        ("mode", True),
        ("tags", "abc"),
        ("tags", {1}),
        ("pair", (1,)),
        ("pair", ("x", 1)),
        ("prices", ["1", "x"]),
        ("either", 1.5),
        ("either", [1]),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_set(name, value):
    with pytest.raises(BadValue, match=f"Trade.{name}"):
        trade(**{name: value})
    obj = trade()
    with pytest.raises(BadValue, match=f"Trade.{name}"):
        setattr(obj, name, value)
    assert obj == trade()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("side", "hold"),
        ("price", "NaN"),
        ("price", 1),
        ("id", ""),
        ("took", float("inf")),
        ("day", "x"),
        ("tags", [1]),
        ("pair", []),
        ("either", 1.0),
        ("prices", ["x"]),
    ],
)
def test_hostile_values_on_the_wire_make_a_generic_object(name, value):
    fingerprint, payload, _ = codec.encode(trade())
    body = msgspec.msgpack.decode(payload) | {name: value}
    found = codec.decode(fingerprint, msgspec.msgpack.encode(body))
    if found.__class__ is Trade:  # an int is as good as the text of a decimal number
        assert (name, value) == ("price", 1) and found.price == 1
        return
    assert type(found) is DataObject and found.__bus_tag__.misfit.path.startswith(f".{name}")
    with pytest.raises(codec.Mismatched):
        codec.reader_for(fingerprint)(msgspec.msgpack.encode(body), None)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_bad_frame(noise):
    with contextlib.suppress(BadFrame):
        codec.decode(type_of(Trade).fingerprint, noise)


def test_filters_compare_the_values_as_people_mean_them():
    obj = trade(tags={"a"}, prices=[Decimal("1.5")], best=Decimal("2.5"), either=5)
    for text in (
        "price > 41 && price < 41.2",
        "price == 41.1",
        'side == "buy" && level == 1',
        'day >= "2026-01-01" && day < "2026-02-01"',
        "took > 1 && took <= 1.5",
        '"a" in tags && 1.5 in prices',
        "best == 2.5",
        "either == 5",
    ):
        assert compile(text).matches(obj), text
    assert not compile("price > 42").matches(obj)


def test_a_container_that_is_a_copy_says_so_when_it_is_changed():
    obj = trade(tags={"a"}, prices=[Decimal(1)])
    with pytest.raises(TypeError, match="set the attribute to a new one"):
        obj.tags.add("b")
    with pytest.raises(TypeError, match="set the attribute to a new one"):
        obj.prices.append(Decimal(2))
    obj.tags = obj.tags | {"b"}
    assert obj.tags == {"a", "b"} and repr(obj.tags | set()) in ("{'a', 'b'}", "{'b', 'a'}")


def test_objects_can_be_copied_and_pickled():
    obj = trade(tags={"a"}, prices=[Decimal(1)])
    assert pickle.loads(pickle.dumps(obj)) == obj == copy.deepcopy(obj)
    assert pickle.loads(pickle.dumps(obj.tags)) == {"a"}


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (str | UUID, "cannot be told apart"),
        (list[int] | set[int], "cannot be told apart"),
        (set[dict[str, int]], "must be hashable"),
        (Flag("Bits", "A B"), "use int"),
        (Enum("Odd", {"A": 1.5}), "only str, int and bool"),
        (tuple[()], "without places"),
        ("enum[Side, BUY=]", "values as in JSON"),
        ("literal[]", "values as in JSON"),
        ("set[str", "expected ']'"),
        ("tuple[int, ...", "expected ']'"),
        ("uuid | str", "cannot be told apart"),
    ],
)
def test_impossible_kinds_are_refused(hint, message):
    with pytest.raises(BadType, match=message):
        define_type("Impossible", [], {"a": hint})


def test_a_new_member_of_an_enum_is_a_mismatch_for_those_who_do_not_know_it():
    wider = define_type("Signal", [], {"side": Enum("Side", {"BUY": "buy", "HOLD": "hold"})})
    new, payload, types = codec.encode(wider(side="hold"))
    old_payload = codec.encode(wider(side="buy"))[1]
    taught = codec.descriptors(types)
    with another_process():
        known = define_type("Signal", [], {"side": Side})
        codec.learn(taught[-1])
        assert isinstance(codec.decode(new, old_payload), known)
        assert codec.decode(new, old_payload).side is Side.BUY
        assert codec.decode(new, payload).side == "hold"  # as it was sent, and generic
        assert type(codec.decode(new, payload)) is DataObject


def test_types_say_what_they_hold():
    shown = {a.name: a.type for a in type_of(Trade).attributes}
    assert shown["side"] == 'enum[Side, BUY="buy", SELL="sell"]'
    assert shown["mode"] == 'literal["fast", "slow", 3]'
    assert shown["either"] == "int | str | None" and shown["best"] == "decimal | None"
    assert registry.find_type("Trade") == type_of(Trade)


def test_an_id_of_its_own_for_each_object():
    one, other = trade(id=uuid4()), trade(id=uuid4())
    assert one != other
