"""Indexes that somebody asked for are used by queries, also in tables that come later."""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

import pytest
from sqlalchemy import event

from infobus import DataObject, UsageError
from infobus.repository import Repository


class Quote(DataObject, name="indexes.Quote"):
    symbol: str
    price: float = 0.0
    tags: list[str] = []
    more: dict[str, object] = {}


@pytest.fixture
def quotes(repository):
    repository.store(
        [Quote(symbol=f"S{n % 100}", price=float(n), tags=[f"t{n % 100}"]) for n in range(2_000)]
    )
    return repository


@pytest.fixture
def plans(quotes, database):
    """How the database finds what a query asks for, statement by statement."""
    is_sqlite = quotes.url.startswith("sqlite")
    if not is_sqlite:
        database("ANALYZE")

    def plans(*arguments, **options):
        asked = []

        def note(connection, cursor, statement, parameters, context, is_many):
            if statement.startswith("SELECT") and "_part" in statement:
                asked.append((statement, parameters))

        event.listen(quotes._engine, "before_cursor_execute", note)
        quotes.query(*arguments, **options)
        event.remove(quotes._engine, "before_cursor_execute", note)
        with quotes._engine.connect() as connection:
            explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
            found = [connection.exec_driver_sql(f"{explain} {s}", p).all() for s, p in asked]
        return [" ".join(str(row[-1]) for row in rows) for rows in found]

    return plans


def test_queries_by_an_indexed_attribute_use_the_index(quotes, plans):
    where = 'symbol == "S7"'
    before = quotes.query("indexes.Quote", where, "price")
    assert not any("ix_indexes_quote_symbol" in plan for plan in plans("indexes.Quote", where))
    assert quotes.index("indexes.Quote", "symbol") == 1
    assert any("ix_indexes_quote_symbol" in plan for plan in plans("indexes.Quote", where))
    assert quotes.query("indexes.Quote", where, "price") == before
    assert quotes.index("indexes.Quote", "symbol") == 1


def test_lists_are_found_by_their_items(quotes, plans):
    where = '"t7" in tags'
    quotes.index("indexes.Quote", "tags")
    assert any("ix_indexes_quote_tags_value" in plan for plan in plans("indexes.Quote", where))
    assert len(quotes.query("indexes.Quote", where)) == 20
    assert len(quotes.query("indexes.Quote", '!("t7" in tags)')) == 1_980


@pytest.mark.parametrize("order", ["price", "-price"])
def test_the_first_few_in_order_come_from_the_index(quotes, plans, order):
    quotes.index("indexes.Quote", "price")
    found = [one.price for one in quotes.query("indexes.Quote", order=order, limit=3)]
    assert found == ([0, 1, 2] if order == "price" else [1999, 1998, 1997])
    plan = plans("indexes.Quote", order=order, limit=3)[0]
    assert "ix_indexes_quote_price" in plan
    assert "Sort" not in plan and "TEMP B-TREE" not in plan


def test_values_that_no_column_holds_are_found_beside_an_index(quotes):
    quotes.index("indexes.Quote", "symbol")
    quotes.store([Quote(symbol="S7\0", price=5000.0), Quote(symbol="S7", price=-0.0)])
    assert len(quotes.query("indexes.Quote", 'symbol == "S7"')) == 21
    (one,) = quotes.query("indexes.Quote", 'begins-with(symbol, "S7") && price == 5000')
    assert one.symbol == "S7\0"


def test_tables_of_later_subtypes_are_indexed_too(quotes, database):
    quotes.index("indexes.Quote", "symbol")

    class Option(Quote, name="indexes.Option"):
        strike: float = 0.0

    quotes.store([Option(symbol="S1")])
    assert quotes.index("indexes.Quote", "symbol") == 2
    with Repository(quotes._engine.url.render_as_string(hide_password=False)) as other:
        assert len(other.query("indexes.Quote", 'symbol == "S1"')) == 21


def test_what_cannot_be_indexed_is_refused(quotes):
    with pytest.raises(UsageError, match="did you mean symbol"):
        quotes.index("indexes.Quote", "symbl")
    with pytest.raises(UsageError, match="values of any kind"):
        quotes.index("indexes.Quote", "more")
    with pytest.raises(UsageError, match=r"no type 'indexes\.Quot'"):
        quotes.index("indexes.Quot", "symbol")
