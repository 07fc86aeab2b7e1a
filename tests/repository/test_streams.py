"""Streamed results, values that the bus would refuse, and a catalog that somebody deleted."""

import itertools
import logging
from datetime import date, datetime
from decimal import Decimal

import pytest

from infobus import BadValue, DataObject, UsageError
from infobus.repository import Repository
from infobus.repository.query_server import QueryServer


class Sample(DataObject, name="streams.Sample"):
    number: int
    text: str = ""
    real: float = 1.0


class Listed(Sample, name="streams.Listed"):
    tags: list[str]
    places: dict[str, float]


@pytest.fixture
def samples(repository):
    repository.store([Sample(number=number) for number in range(1_200)])
    return repository


def test_a_stream_rebuilds_objects_as_they_are_taken(samples, monkeypatch):
    rebuilt = []
    from infobus.repository import queries

    class Counting(queries.Rebuilding):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            rebuilt.extend(self.objects)

    monkeypatch.setattr(queries, "Rebuilding", Counting)
    stream = samples.stream("streams.Sample", order="number")
    assert [one.number for one in itertools.islice(stream, 3)] == [0, 1, 2]
    assert len(rebuilt) <= 2 * queries.PAGE_COUNT
    assert [one.number for one in stream] == [*range(3, 1_200)]


def test_a_stream_that_is_closed_early_lets_others_write(samples):
    stream = samples.stream("streams.Sample", where="number >= 5", rows=True)
    assert next(stream)["number"] >= 5
    stream.close()
    assert samples.delete("streams.Sample") == 1_200


def test_the_query_server_streams(samples, monkeypatch):
    monkeypatch.setattr(Repository, "query", None)
    server = QueryServer(samples)
    assert [one.number for one in server.query("streams.Sample", "number == 7")] == [7]
    (row,) = server.rows("streams.Sample", "", ["-number"], 1)
    assert row["number"] == 1_199


def test_wrong_questions_are_refused_as_for_a_query(samples):
    with pytest.raises(UsageError, match="limit"):
        next(samples.stream("streams.Sample", limit=-1))


@pytest.mark.parametrize(
    "value",
    [Decimal(1), date(2026, 11, 18), {1, 2}, datetime(2026, 11, 18), 2**70, {"a": [2**70]}, {1: 2}],
)
def test_dicts_are_refused_as_the_bus_refuses_them(repository, value):
    with pytest.raises(BadValue, match="'x'"):
        repository.store([{"x": value}])


def test_values_that_fit_no_column_have_their_place_in_the_order(repository):
    texts = ["a\0b", "b", "c\0", "d"]
    repository.store([Sample(number=1, text=text) for text in texts])
    assert [one.text for one in repository.query("streams.Sample", order="-text")][::-1] == texts
    repository.store([Sample(number=2, real=real) for real in (-1.0, -0.0, 2.0)])
    found = repository.query("streams.Sample", "number == 2", order="real")
    assert [str(one.real) for one in found] == ["-1.0", "-0.0", "2.0"]


def test_keys_of_a_dict_do_not_hide_the_real_ones(repository):
    repository.store([{"_id": "mine", "_time": 5, "n": 1}], subject="s")
    (row,) = repository.query("dict", rows=True)
    assert row["_subject"] == "s" and row["n"] == 1
    assert row["_id"].startswith("repository-") and row["_time"] is None
    assert row["_hidden"] == {"_id": "mine", "_time": 5}


LISTED = Listed(number=1, tags=["a"], places={"x": 1.5})


@pytest.mark.parametrize("statement", ["DELETE FROM {}", "DROP TABLE {}"])
@pytest.mark.parametrize("table", ["infobus_generation", "infobus_columns"])
def test_a_catalog_that_somebody_deleted_is_told_and_rebuilt(
    repository, url, database, caplog, table, statement
):
    repository.store([LISTED, Sample(number=2)])
    database(statement.format(table))
    with caplog.at_level(logging.WARNING), Repository(url) as again:
        assert sorted(again.query("streams.Sample"), key=lambda one: one.number) == [
            LISTED,
            Sample(number=2),
        ]
        again.store([Listed(number=3, tags=["c"], places={})])
        assert [one.number for one in again.query("streams.Sample", order="number")] == [1, 2, 3]
        assert len(again.query("streams.Listed", '"c" in tags')) == 1
    assert table in caplog.text
    assert not database("SELECT 1 FROM streams_listed WHERE _extra IS NOT NULL")


def test_a_catalog_that_cannot_be_rebuilt_is_refused(repository, url, database):
    from infobus.errors import StoreCorrupt

    repository.store([LISTED])
    database("DROP TABLE infobus_types")
    with pytest.raises(StoreCorrupt, match="infobus_types: restore it"):
        Repository(url)
