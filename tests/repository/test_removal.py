"""Objects can be deleted, with all that belongs to them; leftovers do not get in the way."""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from datetime import UTC, datetime, timedelta

import pytest

from infobus import DataObject, Property, UsageError, id_of
from infobus.repository.to_rows import ObjectRecord

NOW = datetime(2026, 11, 18, tzinfo=UTC)


class Wheel(DataObject, name="removal.Wheel"):
    inches: int


class Car(DataObject, name="removal.Car"):
    plate: str
    tags: list[str] = []
    wheels: list[Wheel] = []


class Taxi(Car, name="removal.Taxi"):
    city: str = ""


def car(number, kind=Car):
    return kind(plate=f"P{number}", tags=["a", "b"], wheels=[Wheel(inches=17)] * 2)


def rows_left(database):
    tables = database("SELECT table_name FROM infobus_tables")
    items = database("SELECT item_table FROM infobus_columns WHERE item_table IS NOT NULL")
    return sum(database(f'SELECT count(*) FROM "{name}"')[0][0] for (name,) in tables + items)


def test_deleting_takes_items_nested_objects_properties_and_subtypes_along(repository, database):
    cars = [car(1), car(2), car(3, Taxi)]
    repository.store(cars)
    repository.store([Property(name="colour", value="red", ref=id_of(one)) for one in cars])
    assert repository.delete("removal.Car", where='plate != "P2"') == 2
    (left,) = found = repository.query("removal.Car")
    assert (left.plate, left.tags, len(left.wheels)) == ("P2", ["a", "b"], 2)
    assert found.properties_of(left)["colour"].value == "red"
    assert len(repository.query("Property")) == 1
    assert repository.delete("DataObject") == 2
    assert rows_left(database) == 0


def test_a_filter_that_only_python_can_decide(repository):
    repository.store([car(number) for number in range(30)])
    assert repository.delete("removal.Car", where='regex(plate, "^P1")') == 11
    assert len(repository.query("removal.Car")) == 19


def test_retention_goes_by_the_time_of_the_object(repository):
    days = [NOW - timedelta(days=number) for number in range(5)]
    records = [ObjectRecord(car(n), f"c{n}", "cars", at) for n, at in enumerate(days)]
    records.append(ObjectRecord({"n": 1}, "d1", "cars", days[4]))
    repository.store_records(records)
    repository.store([car(9)])  # without a time
    assert repository.prune(before=days[2]) == 3
    plates = {one.plate for one in repository.query("removal.Car")}
    assert plates == {"P0", "P1", "P2", "P9"}
    with pytest.raises(UsageError, match="time zone"):
        repository.delete("removal.Car", before=datetime(2026, 11, 18))


def test_many_objects_are_deleted_in_steps(repository, monkeypatch):
    monkeypatch.setattr("infobus.repository.queries.ID_COUNT", 10)
    repository.store([car(number) for number in range(35)])
    assert repository.delete("removal.Car", where='plate != "P7"') == 34
    assert [one.plate for one in repository.query("removal.Car")] == ["P7"]


def test_a_type_that_is_not_there_is_not_deleted_in_silence(repository):
    repository.store([car(1)])
    with pytest.raises(UsageError, match=r"did you mean removal\.Car"):
        repository.delete("removal.Carr")


def test_storing_again_heals_what_a_delete_by_hand_left_behind(repository, database):
    one = car(1)
    repository.store([one])
    database("DELETE FROM removal_car")
    one.tags = ["c"]
    repository.store([one])
    (found,) = repository.query("removal.Car")
    assert (found.tags, len(found.wheels)) == (["c"], 2)
