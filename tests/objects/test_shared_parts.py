"""Objects that hold the same part many times: seconds and bytes stay bounded, whatever they share.

Each of the towers here has 40 levels, so that it takes 2**40 steps to whoever does not notice.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadValue
from infobus.objects import DataObject, codec, type_of
from tests.objects.worlds import text_of


class Pair(DataObject):
    left: Any = None
    right: DataObject | None = None


def of_maps(levels: int) -> dict[str, Any]:
    tower: dict[str, Any] = {}
    for _ in range(levels):
        tower = {"l": tower, "r": tower}
    return tower


def of_objects(levels: int) -> Pair:
    tower = Pair()
    for _ in range(levels):
        tower = Pair(left=tower, right=tower)
    return tower


def of_lists(levels: int) -> dict[str, Any]:
    tower: list[Any] = []
    for _ in range(levels):
        tower = [tower, tower]
    return {"tower": tower}


TOWERS = [of_maps, of_objects, of_lists, lambda levels: Pair(left=of_maps(levels))]


@pytest.mark.parametrize("tower_of", TOWERS)
def test_what_would_be_too_large_is_refused_at_once(tower_of):
    with pytest.raises(BadValue, match="occur many times; 16,777,216 are allowed"):
        codec.encode(tower_of(40))


@pytest.mark.parametrize("tower_of", TOWERS)
def test_what_is_small_enough_is_written_each_time_that_it_occurs(tower_of):
    fingerprint, payload, _ = codec.encode(tower_of(8))
    assert len(payload) > 2**8
    assert codec.decode(fingerprint, payload) == tower_of(8)


@pytest.mark.parametrize("tower_of", TOWERS)
def test_descriptions_and_texts_end(tower_of):
    lines = text_of(tower_of(40)).splitlines()
    assert len(lines) == 10_001
    assert lines[-1] == "... (the first 10,000 lines)"
    assert len(repr(Pair(left=tower_of(40)))) < 500_000
    assert type_of(Pair(left=tower_of(40))) is type_of(Pair)


def test_a_description_just_short_enough_is_whole():
    value = [[0] * 99] * 99 + [[0] * 98]  # with the first line, 1 + 99 * 100 + 99
    lines = text_of(value).splitlines()
    assert len(lines) == 10_000
    assert lines[-1] == "    [97]: 0"


def test_a_text_shows_as_much_as_there_is_room_for():
    assert repr(Pair(left=list(range(20_000)))).endswith(", 9997, ...], right=...)")


def test_errors_about_them_end():
    class Named(DataObject):
        name: str

    for tower in (of_maps(40), of_objects(40)):
        with pytest.raises(BadValue, match="expected str"):
            Named(name=tower)
    with pytest.raises(BadValue, match="neither a data object"):
        type_of(of_maps(40))


def test_a_part_that_fits_at_one_depth_may_be_too_deep_at_another():
    low = of_maps(30)
    high = low
    for _ in range(40):
        high = {"below": high}
    with pytest.raises(BadValue, match="nested deeper than 64 levels"):
        codec.encode({"low": low, "high": high})


@given(st.recursive(st.integers(0, 9), lambda part: st.lists(part, max_size=4), max_leaves=30))
def test_values_come_back_equal_whatever_they_share(value):
    shared = {"a": value, "b": [value, {"again": value}], "c": Pair(left=[value, value])}
    fingerprint, payload, _ = codec.encode(shared)
    assert codec.decode(fingerprint, payload) == shared


def test_parts_that_are_made_while_one_looks_are_not_taken_for_each_other():
    class Rows(list):  # type: ignore[type-arg]
        def __iter__(self):
            return ([n] for n in range(100))

    assert Pair(left=Rows()).left == [[n] for n in range(100)]


def test_an_object_shares_no_part_with_its_maker():
    part = [1]
    pair = Pair(left=[part, part])
    part.append(2)
    assert pair.left == [[1], [1]]
