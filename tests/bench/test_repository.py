"""Storing objects beside SQLAlchemy: what is measured, and how it is judged."""

import pytest

from infobus.bench.common.postgres import find_programs
from infobus.bench.common.rounds import Rounds
from infobus.bench.repository import benchmark as repository
from infobus.bench.repository.benchmark import ALCHEMY, COPY, POSTGRESQL, REPOSITORY, SQLITE


@pytest.mark.skipif(find_programs() is None, reason="PostgreSQL is not installed")
def test_every_way_is_measured_on_both_databases(tmp_path):
    found, left_out = repository.measure(tmp_path, rounds=1, count=20)
    assert not left_out
    assert {(one.load, one.engine) for one in found} == {
        (SQLITE, REPOSITORY),
        (SQLITE, ALCHEMY),
        (POSTGRESQL, REPOSITORY),
        (POSTGRESQL, ALCHEMY),
        (POSTGRESQL, COPY),
    }
    assert all(one.median("rate") > 0 for one in found)


def test_rounds_are_compared_with_each_other():
    found = [
        Rounds(load=POSTGRESQL, engine=REPOSITORY, values={"rate": [30.0, 80.0, 10.0]}),
        Rounds(load=POSTGRESQL, engine=ALCHEMY, values={"rate": [10.0, 20.0, 10.0]}),
    ]
    whole, ready = repository.bars_of(found)
    assert (whole.measured, whole.spread, whole.ok) == (3.0, (1.0, 4.0), True)
    assert ready.measured is None
