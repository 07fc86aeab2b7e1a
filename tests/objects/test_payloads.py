"""Objects of other libraries: they travel as data objects and arrive as what they were."""

import dataclasses
import datetime as dt
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pydantic
import pytest

from infobus.errors import BadType, BadValue
from infobus.filters import compile
from infobus.objects import DataObject, codec, type_of
from infobus.objects.json_forms import json_schema, to_dict, to_json
from infobus.objects.payloads import carried, native, twin_class, typed, wanted_classes
from tests.objects.worlds import another_process


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclasses.dataclass
class Order:
    """What somebody has ordered."""

    id: int
    lines: list[Line]
    colour: Annotated[Colour, "of the box"] = Colour.RED
    tags: set[str] = dataclasses.field(default_factory=set)
    above: "Order | None" = None
    total: Decimal = dataclasses.field(init=False, default=Decimal(0))

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("the id is negative")


@dataclasses.dataclass
class Express(Order):
    until: dt.date = dt.date(2026, 1, 1)


class Reading(pydantic.BaseModel):
    celsius: float
    taken: dt.date = pydantic.Field(alias="takenOn", description="the day")
    lines: list[Line] = []


class Tick(msgspec.Struct):
    symbol: str
    price: Decimal
    more: dict[str, Line] = {}


class Place(NamedTuple):
    x: int
    y: float = 0.5


class Person(TypedDict):
    name: str
    age: NotRequired[int]


order = Order(7, [Line("a", Decimal("1.10"))], Colour.BLUE, {"x"}, Order(1, []))
VALUES: list[Any] = [
    order,
    Express(2, [], until=dt.date(2026, 5, 5)),
    Reading(celsius=21.5, takenOn=dt.date(2026, 1, 1), lines=[Line("b", Decimal(2))]),
    Tick("GM", Decimal("41.5"), {"k": Line("c", Decimal(3))}),
    Place(1, 2.5),
    "text",
    b"\0bytes",
    pa.table({"a": [1, 2], "b": ["x", None]}),
    pa.record_batch({"a": [1, 2]}),
    pa.table({"a": pa.array([], pa.int64())}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_it_arrives_as_what_it_was(value):
    fingerprint, payload, _ = codec.encode(value)
    found = native(codec.decode(fingerprint, payload))
    assert found == value and type(found) is type(value)
    assert codec.encode(found)[:2] == (fingerprint, payload)


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_a_stranger_reads_it_and_passes_it_on(value):
    fingerprint, payload, types = codec.encode(value)
    taught = codec.descriptors(types)
    with another_process():
        for descriptor in taught:
            codec.learn(descriptor)
        found = codec.decode(fingerprint, payload)
        assert isinstance(found, DataObject) and type_of(found).fingerprint == fingerprint
        assert codec.encode(found)[:2] == (fingerprint, payload)


def test_it_is_a_type_of_the_bus_like_any_other():
    known = type_of(twin_class(Express))
    assert known.name == "Express" and [one.name for one in known.supertypes] == ["Order"]
    assert type_of(twin_class(Order)).doc == "What somebody has ordered."
    assert known.attributes["colour"].doc == "of the box"
    assert known.attributes["lines"].type == "list[Line]"
    assert known.attributes["above"].type == "Order | None"
    assert type_of(Order) == type_of(order) == type_of(carried(order))
    assert type_of(Reading).attributes["taken"].doc == "the day"


def test_filters_see_its_attributes():
    assert compile('id > 5 && colour == "blue" && "x" in tags').matches(order)
    assert compile("price == 41.5").matches(Tick("GM", Decimal("41.5")))
    assert compile("above.id == 1").matches(order) and not compile("id > 5").matches(5)
    assert compile('contains(text, "ex")').matches("text") and compile("rows == 2").matches(
        VALUES[7]
    )


def test_a_class_that_refuses_what_came_makes_a_mismatch():
    twin = twin_class(Order)
    with pytest.raises(codec.Mismatched, match="the id is negative"):
        native(twin(id=-1, lines=[]))
    bad = twin_class(bytes), codec.decode(*codec.encode(VALUES[7])[:2])
    bad[1].data = b"no arrow"
    with pytest.raises(codec.Mismatched):
        native(bad[1])


def test_a_consumer_gets_the_class_that_it_asked_for():
    assert typed(order, (Order,)) is order and typed("a", (Order, str)) == "a"
    assert typed({"name": "Ann"}, (Person,)) == {"name": "Ann"}
    assert typed({"id": 3, "lines": [{"sku": "a", "price": "1", "count": 2}]}, (Order,)) == Order(
        3, [Line("a", Decimal(1), 2)]
    )
    with pytest.raises(codec.Mismatched, match="expected Order or str, it is bytes"):
        typed(b"", (Order, str))
    with pytest.raises(codec.Mismatched, match="age"):
        typed({"name": "Ann", "age": "old"}, (Person,))


def test_what_a_consumer_may_ask_for():
    assert wanted_classes(Order | str) == (Order, str) and wanted_classes(Any) == ()
    assert wanted_classes(pa.Table) == (pa.Table,) and wanted_classes(dict[str, Any]) == (dict,)
    with pytest.raises(BadType, match="cannot be published"):
        wanted_classes(complex)


@pytest.mark.parametrize("value", [5, None, [1], {1}, object(), Order, 1.5])
def test_what_cannot_be_published_is_said(value):
    with pytest.raises(BadValue, match="expected a DataObject or a dict"):
        codec.encode(value)


def test_an_attribute_that_cannot_be_sent_is_named():
    @dataclasses.dataclass
    class Odd:
        number: complex

    with pytest.raises(BadValue, match=r"Odd.number: .*complex"):
        codec.encode(Odd(1j))
    with pytest.raises(BadValue, match=r"Order.lines\[0\]"):
        codec.encode(Order(1, ["x"]))  # type: ignore[list-item]


def test_a_name_of_its_own():
    @dataclasses.dataclass
    class Sale:
        __bus_name__ = "shop.Sale"
        id: int

    assert type_of(twin_class(Sale)).name == "shop.Sale"


def test_dicts_and_json():
    assert to_dict(order)["lines"] == [{"sku": "a", "price": Decimal("1.10"), "count": 1}]
    found = msgspec.json.decode(to_json(order))
    assert found["lines"][0]["price"] == "1.10" and found["colour"] == "blue"
    assert to_json("text") == '{"text":"text"}'


def test_the_json_schema_of_a_type_has_what_it_mentions():
    schema = json_schema(Order)
    assert schema["$ref"] == "#/$defs/Order" and set(schema["$defs"]) == {"Order", "Line"}
    own = schema["$defs"]["Order"]
    assert own["required"] == ["id", "lines"] and own["description"]
    assert own["properties"]["colour"]["enum"] == ["red", "blue"]
    assert own["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    both = json_schema(type_of(Order), Tick)
    assert "$ref" not in both and set(both["$defs"]) == {"Line", "Order", "Tick"}
