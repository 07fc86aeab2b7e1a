"""Headers of stored objects: given back by queries, and seen by filters."""

from typing import Any

import pytest

from infobus import DataObject, Event
from infobus.headers import Headers
from infobus.repository import Repository

ALL = {"trace": "4bf92f", "n": 3, "share": float("inf"), "is_last": True, "key": b"\0", "$x": "y"}


class Order(DataObject, name="stored_headers.Order"):
    price: float
    note: str | None = None
    tags: list[str] = []  # noqa: RUF012


def event(number: int, data: Any, **headers: Any) -> Event:
    return Event("orders.a", data, "node", number, 1e9 + number, number, headers=Headers(headers))


@pytest.fixture
def stored(repository: Repository) -> Repository:
    repository.store(
        [
            event(1, Order(price=1.0, tags=["a"]), **ALL),
            event(2, Order(price=2.0)),
            event(3, Order(price=3.0, note="x"), n=9),
            event(4, {"price": 4.0}, n=1),
        ]
    )
    return repository


def test_queries_give_them_back(stored: Repository) -> None:
    found = stored.query("stored_headers.Order", order="price")
    assert [dict(found.headers_of(one)) for one in found] == [ALL, {}, {"n": 9}]
    [row] = stored.query("dict", rows=True)
    assert row["_headers"] == {"n": 1}
    assert [("_headers" in row) for row in stored.query("stored_headers.Order", rows=True)].count(
        True
    ) == 2


def test_filters_see_them_beside_what_the_database_decides(stored: Repository) -> None:
    def prices(where: str, **options: Any) -> list[float]:
        found = stored.query("stored_headers.Order", where, "price", **options)
        return [one.price for one in found]

    for is_indexed in (False, True):
        if is_indexed:
            stored.index("stored_headers.Order", "price")
        assert prices('header("n") >= 3') == [1.0, 3.0]
        assert prices('price > 1 && header("n") == 9') == [3.0]
        assert prices('!exists(header("n"))') == [2.0]
        assert prices("price >= 1", limit=2) == [1.0, 2.0]
        assert prices('"a" in tags && header("is_last")') == [1.0]


def test_an_object_that_comes_again_has_the_headers_of_its_last_event(stored: Repository) -> None:
    again = stored.query("stored_headers.Order", "price == 1")[0]
    stored.store([event(5, again, n=7)])
    assert dict(stored.query("stored_headers.Order", "price == 1").headers_of(again)) == {"n": 7}
    stored.store([event(6, again)])
    assert not stored.query("stored_headers.Order", "price == 1").headers
    assert stored.delete("stored_headers.Order", 'header("n") == 9') == 1
    assert len(stored.query("stored_headers.Order")) == 2
