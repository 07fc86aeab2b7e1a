"""Effects and position in one transaction of the consumer's own database."""

from dataclasses import dataclass

import pytest
from sqlalchemy import create_engine, text

from infobus.stores.ledger.positions_sql import PositionsIn


@dataclass
class Given:
    sender: str
    number: int


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/bills.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bills (number INTEGER)"))
    yield engine
    engine.dispose()


@pytest.fixture
def positions(engine):
    positions = PositionsIn("billing")
    with engine.begin() as connection:
        positions.create(connection)
        positions.create(connection)
    return positions


def bills(engine):
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(text("SELECT number FROM bills"))]


def handle(engine, positions, event, *, fails=False):
    with engine.begin() as connection:
        if positions.settle(connection, event):
            insert = text("INSERT INTO bills VALUES (:number)")
            connection.execute(insert, {"number": event.number})
        if fails:
            raise RuntimeError("the process dies here")


def test_an_event_that_comes_again_has_its_effects_once(engine, positions):
    for number in (1, 2, 2, 1, 5, 5):
        handle(engine, positions, Given("l1", number))
    assert bills(engine) == [1, 2, 5]


def test_an_event_whose_effects_were_lost_has_them_next_time(engine, positions):
    handle(engine, positions, Given("l1", 1))
    for fails in (True, False):
        try:
            handle(engine, positions, Given("l1", 2), fails=fails)
        except RuntimeError:
            assert bills(engine) == [1]
    assert bills(engine) == [1, 2]


def test_ledgers_and_consumers_have_positions_of_their_own(engine, positions):
    handle(engine, positions, Given("l1", 7))
    handle(engine, positions, Given("l2", 3))
    handle(engine, PositionsIn("audit"), Given("l1", 7))
    assert bills(engine) == [7, 3, 7]
    with engine.connect() as connection:
        found = [positions.position(connection, ledger) for ledger in ("l1", "l2", "l3")]
    assert found == [7, 3, 0]
