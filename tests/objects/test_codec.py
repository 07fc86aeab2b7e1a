# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadValue
from infobus.objects import (
    DataObject,
    Property,
    classes,
    codec,
    define_type,
    find_type,
    id_of,
    identify,
    registry,
    type_of,
)
from infobus.objects.codec import decode, descriptors, encode, known, learn
from infobus.objects.kinds import PAYLOAD_BYTES_MAX
from tests.objects import worlds


class Quote(DataObject):
    symbol: str
    price: float
    volume: int = 0


class Trade(DataObject):
    quote: Quote
    others: list[Quote] = []
    by_name: dict[str, DataObject | None] = {}


class FastQuote(Quote):
    delay: float = 0.0


class Tags(DataObject):
    names: list[str] = []
    counts: dict[str, list[int]] = {}


class Link(DataObject):
    value: Any = None
    next: Link | None = None


def round_trip(obj: Any) -> Any:
    fingerprint, payload, _ = encode(obj)
    return decode(fingerprint, payload, id_of(obj))


@given(worlds.declarations(), st.data())
def test_any_object_of_any_type_comes_back_equal(attributes, data):
    with worlds.another_process():
        cls = define_type("Random", [], attributes)
        obj = cls(**data.draw(worlds.values_for(cls)))
        assert round_trip(obj) == obj
        assert type(round_trip(obj)) is cls
        inside = Property(name="n", value=[obj, {"again": obj}], ref="r")
        assert round_trip(inside) == inside


@given(worlds.notifications)
def test_any_dict_comes_back_equal_and_untyped(notification):
    fingerprint, payload, needs = encode(notification)
    assert (fingerprint, needs) == (0, ())
    assert decode(0, payload) == notification


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.sampled_from([0, 1]))
def test_moments_stay_the_same_instant_to_the_microsecond(naive, fold):
    moment = naive.replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    received = round_trip(Link(value=moment)).value
    assert received == moment.astimezone(UTC)
    assert received.tzinfo is not None


def test_the_payload_is_a_map_that_anyone_can_read():
    _, payload, _ = encode(Quote(symbol="GMC", price=40))
    assert msgspec.msgpack.decode(payload) == {"symbol": "GMC", "price": 40.0, "volume": 0}


def test_a_flat_type_needs_itself_and_its_supertypes_in_one_cached_tuple():
    one = encode(FastQuote(symbol="a", price=1))[2]
    assert one == (type_of(Quote).fingerprint, type_of(FastQuote).fingerprint)
    assert encode(FastQuote(symbol="b", price=2))[2] is one


def test_nested_objects_keep_type_and_id_and_are_named_among_the_needs():
    fast = FastQuote(symbol="f", price=2)
    identify(fast, "fast-1")
    trade = Trade(quote=fast, others=[Quote(symbol="q", price=1)], by_name={"none": None})
    trade.by_name["p"] = Property(name="n", value={"deep": [fast]}, ref="r")
    fingerprint, payload, needs = encode(trade)
    received = decode(fingerprint, payload)
    assert received == trade
    assert type(received.quote) is FastQuote and id_of(received.quote) == "fast-1"
    assert set(needs) == {type_of(c).fingerprint for c in (Trade, Quote, FastQuote, Property)}
    assert encode({"a": [fast]})[2] == encode(fast)[2]


def test_the_types_of_objects_inside_are_found_without_decoding_them():
    quote, trade, fast = (type_of(one).fingerprint for one in (Quote, Trade, FastQuote))
    inner = FastQuote(symbol="GM", price=1.0)
    _, first, _ = encode({"a": [Trade(quote=inner)], "at": datetime(2026, 1, 1, tzinfo=UTC)})
    _, second, _ = encode(Trade(quote=Quote(symbol="GM", price=1.0)))
    assert codec.types_in([first]) == {trade, fast}
    assert codec.types_in([b"\xc1", second, memoryview(first), b""]) == {quote, trade, fast}


def test_the_object_id_given_with_the_payload_is_the_objects_id():
    fingerprint, payload, _ = encode(Quote(symbol="a", price=1))
    assert id_of(decode(fingerprint, payload, "abc")) == "abc"
    assert id_of(decode(fingerprint, payload)) is None


@pytest.mark.parametrize("wrap", [bytes, msgspec.Raw, memoryview, bytearray])
def test_a_payload_may_come_in_any_buffer(wrap):
    fingerprint, payload, _ = encode(Quote(symbol="a", price=1))
    assert decode(fingerprint, wrap(payload)) == Quote(symbol="a", price=1)


def test_types_of_more_than_fifteen_attributes_work_alike():
    Wide = define_type("Wide", [], {f"a{i}": (int, i) for i in range(300)})
    obj = Wide(a7=70)
    assert round_trip(obj) == obj
    assert type(round_trip(obj).__bus_tag__) is type(None)


def test_changes_in_place_are_checked_before_they_are_sent():
    tags = Tags()
    tags.names.append(5)
    with pytest.raises(BadValue, match=r"Tags.names\[0\]: expected str, got int 5"):
        encode(tags)
    trade = Trade(quote=Quote(symbol="a", price=1))
    trade.others.append("quote")
    with pytest.raises(BadValue, match=r"Trade.others\[0\]: expected Quote, got str 'quote'"):
        encode(trade)


def test_what_cannot_be_sent_is_named_with_its_place():
    for bad, where in [
        (Quote(symbol="\ud800", price=1), "Quote.symbol"),
        (Tags(counts={"\ud800": [1]}), "Tags.counts"),
        (Link(next=Link(value={"a": ["\ud800"]})), "Link.next.value['a'][0]"),
        ({"a": ["x", object()]}, "dict['a'][1]"),
        ({"a": datetime(2024, 1, 1)}, "dict['a']"),
        ({"a": 2**63}, "dict['a']"),
    ]:
        with pytest.raises(BadValue) as caught:
            encode(bad)
        assert caught.value.path.startswith(where)
    for bad in (5, None, [1], Quote, object()):
        with pytest.raises(BadValue, match="expected a DataObject or a dict"):
            encode(bad)


def test_cycles_are_refused_wherever_they_close():
    link = Link()
    link.next = Link(value=[link])
    with pytest.raises(BadValue, match=r"Link.next.value\[0\]: cyclic") as caught:
        encode(link)
    assert caught.value.path == "Link.next.value[0]"
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(BadValue, match="cyclic"):
        encode(loop)
    with pytest.raises(BadValue, match="cyclic"):
        Link(value=loop)


def test_the_same_object_twice_is_no_cycle():
    quote = Quote(symbol="a", price=1)
    trade = Trade(quote=quote, others=[quote, quote])
    assert round_trip(trade) == trade


def nested(levels: int) -> Link:
    link = Link()
    for _ in range(levels - 1):
        link = Link(next=link)
    return link


def test_nesting_is_allowed_to_the_same_depth_on_both_sides():
    assert round_trip(nested(64)) == nested(64)
    with pytest.raises(BadValue, match="nested deeper than 64 levels"):
        encode(nested(65))


def test_large_objects_are_sent_up_to_the_limit():
    text = "x" * PAYLOAD_BYTES_MAX
    for bad in (Quote(symbol=text, price=1), Link(value=text), {"a": text}):
        with pytest.raises(BadValue, match="16777216 are allowed"):
            encode(bad)
    assert encode(Quote(symbol=text[100:], price=1))


def test_large_untyped_values_come_back_equal():
    big = {"rows": [{"n": i, "text": "x" * (i % 50), "raw": b"1"} for i in range(2000)]}
    big["more"] = {"text": "y" * 5000, "when": datetime(2024, 1, 1, tzinfo=UTC)}
    assert round_trip(big) == big


def test_a_cached_property_is_not_sent():
    class Circle(DataObject):
        radius: float

        @cached_property
        def area(self):
            return 3 * self.radius**2

    circle = Circle(radius=1)
    assert circle.area == 3
    assert round_trip(circle) == circle == Circle(radius=1)
    assert msgspec.msgpack.decode(encode(circle)[1]) == {"radius": 1.0}


def test_descriptors_come_supertypes_first_and_are_learned_once():
    _, _, needs = encode(Trade(quote=FastQuote(symbol="a", price=1)))
    written = descriptors(reversed(needs))
    with worlds.another_process():
        assert not any(known(fp) for fp in needs) and known(0)
        learned = [learn(descriptor) for descriptor in written]
        assert [learn(descriptor) for descriptor in written] == learned
        assert set(learned) == set(needs) and all(known(fp) for fp in needs)
        assert learned.index(type_of(Quote).fingerprint) < learned.index(
            type_of(FastQuote).fingerprint
        )
        assert descriptors(learned) == written
        assert descriptors([12345]) == []


def junk(name: str, count: int) -> list[bytes]:
    with worlds.another_process():
        return [type_of(define_type(f"{name}.T{i}")).descriptor for i in range(count)]


def test_one_peer_can_describe_so_many_types_and_the_oldest_unused_go_first(monkeypatch):
    monkeypatch.setattr(classes, "TAUGHT_COUNT_MAX", 5)
    described = junk("junk", 20)
    with worlds.another_process():
        honest = [learn(one, "honest") for one in junk("honest", 5)]
        learned = [learn(one, "enemy") for one in described[:5]]
        used = decode(learned[0], b"\x80")
        learned += [learn(one, "enemy") for one in described[5:]]
        assert [fp for fp in learned if known(fp)] == [learned[0], *learned[-4:]]
        assert type_of(used).name == find_type(learned[0]).name == "junk.T0"
        assert all(map(known, honest))
        assert find_type("junk.T1") is None
        assert learn(described[1], "honest") and find_type("junk.T1").is_known


def test_the_number_of_types_from_outside_is_bounded(monkeypatch):
    monkeypatch.setattr(classes, "LEARNED_COUNT_MAX", 10)
    with worlds.another_process():
        honest = [learn(one, "honest") for one in junk("honest", 2)]
        for peer in range(2):
            for one in junk(f"enemy{peer}", 10):
                decode(learn(one, f"enemy{peer}"), b"\x80")
        assert len(registry.learned) == len(registry.teacher_of) == 10
        assert registry.learned.total == sum(registry.learned.values())
        late = [learn(one, "late") for one in junk("late", 3)]
        assert all(map(known, honest)) and all(map(known, late))


def test_a_declared_type_is_never_forgotten(monkeypatch):
    monkeypatch.setattr(classes, "LEARNED_COUNT_MAX", 2)
    (described,) = junk("mine", 1)
    with worlds.another_process():
        fingerprint = learn(described, "peer")
        define_type("mine.T0")
        for one in junk("other", 5):
            learn(one, "peer")
        assert known(fingerprint) and len(registry.learned) == 2


def test_the_bytes_of_types_from_outside_are_bounded(monkeypatch):
    described = junk("junk", 4)
    monkeypatch.setattr(classes, "LEARNED_BYTES_MAX", len(described[0]) * 3)
    with worlds.another_process():
        assert [known(learn(one)) for one in described] == [True] * 4
        assert len(registry.learned) == 3
