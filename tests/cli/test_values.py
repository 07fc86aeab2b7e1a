# ruff: noqa: RUF012  (a default list in a data object is copied for each object)
import base64
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus import BadValue, DataObject, UsageError, type_of
from infobus.cli.lines import to_json
from infobus.cli.marks import attributes_of, marked, marked_attributes, object_from_marked, unmarked
from infobus.cli.values import object_from_items, object_from_json
from infobus.objects.codec import carried
from infobus.objects.payloads import native


class Part(DataObject, name="cli_test.Part"):
    label: str


class GoldPart(Part, name="cli_test.GoldPart"):
    carat: int


class Order(DataObject, name="cli_test.Order"):
    customer: str
    price: float = 0.0
    is_urgent: bool = False
    at: datetime | None = None
    seal: bytes = b""
    parts: list[Part] = []
    notes: dict[str, list[int]] = {}
    anything: object = None


ORDER = type_of(Order)


class TestUntyped:
    def test_text_stays_text_and_json_is_read(self):
        found = object_from_items(["a=1", "b:=1", "c:=[true, null]", "d=x=y:=z"])
        assert found == {"a": "1", "b": 1, "c": [True, None], "d": "x=y:=z"}

    def test_one_json_object_is_the_object(self):
        assert object_from_items([' {"a": {"b": 2}}']) == {"a": {"b": 2}}

    @pytest.mark.parametrize(
        ("items", "problem"),
        [
            (["price"], "'price' is not an attribute: write key=text, key:=json"),
            (["=1"], "'=1' is not an attribute"),
            (["a=1", "a=2"], "'a' is given twice"),
            (["a:=nonsense"], "the value of a is not JSON"),
            (['{"a": '], "the object is not JSON"),
            (["{" * 100_000], "the object is n"),
            (['{"a": ' + "[" * 100_000], "nested too deep"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, items, problem):
        with pytest.raises(UsageError, match=problem):
            object_from_items(items)

    def test_a_json_value_that_is_no_object_is_refused(self):
        with pytest.raises(UsageError, match="expected a JSON object"):
            object_from_json("[1]")


class TestTyped:
    def test_text_is_read_as_the_attribute_wants_it(self):
        found = object_from_items(
            ["customer=42", "price=41.5", "is_urgent=true", "at=1993-12-06T09:30:00", "seal=aGk="],
            ORDER,
        )
        assert found == Order(
            customer="42",
            price=41.5,
            is_urgent=True,
            at=datetime(1993, 12, 6, 9, 30, tzinfo=UTC),
            seal=b"hi",
        )

    def test_nested_objects_are_of_the_declared_type_or_a_named_subtype(self):
        text = '[{"label": "a"}, {"_type": "cli_test.GoldPart", "label": "b", "carat": 18}]'
        found = object_from_items(["customer=x", f"parts={text}"], ORDER)
        assert found.parts == [Part(label="a"), GoldPart(label="b", carat=18)]

    @pytest.mark.parametrize(
        ("items", "problem"),
        [
            (["customer=x", "price=41,5"], "Order.price: expected float, got str '41,5'"),
            (["customer:=1"], "Order.customer: expected str, got int 1"),
            (["customer=x", "at=noon"], "Order.at: expected datetime | None, got str 'noon'"),
            (["customer=x", "seal=%"], "Order.seal: expected bytes, got str '%'"),
            (["customer=x", "pirce=1"], "did you mean 'price'"),
            (["price=1"], "Order.customer: expected str, got no value"),
            (["customer=x", 'parts:=[{"label": 1}]'], "Part.label: expected str, got int 1"),
        ],
    )
    def test_what_does_not_fit_is_named_by_the_object(self, items, problem):
        with pytest.raises(BadValue) as raised:
            object_from_items(items, ORDER)
        assert problem in str(raised.value)

    @given(
        customer=st.text(st.characters(exclude_categories=["Cs"])),
        price=st.floats(allow_nan=False, allow_infinity=False),
        at=st.none() | st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC)),
        seal=st.binary(),
        labels=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    )
    def test_what_sub_prints_as_json_pub_reads_back(self, customer, price, at, seal, labels):
        parts = [Part(label=label) for label in labels]
        parts += [GoldPart(label=label, carat=1) for label in labels]
        order = Order(customer=customer, price=price, at=at, seal=seal, parts=parts)
        assert object_from_json(to_json(attributes_of(order)), ORDER) == order

    def test_bytes_are_written_in_base64(self):
        assert base64.b64encode(b"hi").decode() in to_json({"seal": b"hi"})


def test_json_for_a_terminal_spells_out_what_a_terminal_would_obey() -> None:
    shown = to_json({"name\x9b": "a\u202eb"})
    assert shown == '{"name\\u009b":"a\\u202eb"}'


class Anything(DataObject, name="cli_test.Anything"):
    anything: object
    share: float
    by_name: dict[str, object] = {}


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.binary()
    | st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC))
    | st.builds(GoldPart, label=texts, carat=st.integers(0, 9))
)
keys = texts | st.sampled_from(["$bytes", "$map", "$float", "$time", "_type"])
values = st.recursive(
    scalars, lambda inside: st.lists(inside) | st.dictionaries(keys, inside), max_leaves=10
)


def through_json(value):
    return msgspec.json.decode(to_json(value))


@given(values)
def test_any_value_goes_through_json_and_back(value):
    assert unmarked(through_json(marked(value))) == value


@given(values, st.floats(allow_nan=False), st.dictionaries(keys, values))
def test_any_object_goes_through_json_and_back(value, share, by_name):
    obj = Anything(anything=value, share=share, by_name=by_name)
    again = object_from_marked(type_of(obj), through_json(marked_attributes(obj)))
    assert again == obj


@dataclass
class Rich:
    price: Decimal
    key: uuid.UUID
    day: date
    wait: timedelta
    tags: frozenset[str]
    either: int | bytes | None
    pair: tuple[bytes, Decimal]
    blobs: set[bytes]
    nested: list[Part]


def test_rich_kinds_go_through_json_and_back():
    rich = Rich(
        Decimal("41.10"),
        uuid.UUID(int=7),
        date(2026, 11, 19),
        timedelta(seconds=1.5),
        frozenset({"a", "b"}),
        b"\xff",
        (b"\0", Decimal("0.1")),
        {b"\1", b"\2"},
        [GoldPart(label="x", carat=9)],
    )
    twin = carried(rich)
    again = object_from_marked(type_of(twin), through_json(marked_attributes(rich)))
    assert again == twin
    assert native(again) == rich


@pytest.mark.parametrize("value", [{"$bytes": "%"}, {"$time": "noon"}, {"_type": "cli_test.None"}])
def test_marks_that_mean_nothing_are_refused(value):
    with pytest.raises(UsageError):
        unmarked(value)
