"""Folders and files that cannot be used: clear errors, and nothing made afresh in silence."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from infobus.errors import BadValue, StoreCorrupt, StoreError
from infobus.stores.ledger import folder
from infobus.stores.ledger.consumer_store import (
    ConsumerStore,
    consumer_names,
    consumer_path,
    forget,
    repair_consumer,
)
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.repair import repair
from infobus.testing.conformance.stores import records


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path) as ledger:
        ledger.append(records(1, 5))
    return ledger


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(ledger, tmp_path):
    change(ledger.path, "PRAGMA user_version = 2")
    before = ledger.path.read_bytes()
    for attempt in (Ledger.open, repair):
        with pytest.raises(StoreError, match="newer version of infobus: it has format 2") as caught:
            attempt(tmp_path, ledger.id)
        assert not isinstance(caught.value, StoreCorrupt)
    with folder.open_free(tmp_path) as other:
        assert other.id != ledger.id
    assert ledger.path.read_bytes() == before


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "letter.db").write_text("Dear Sir or Madam" * 1_000)
    (tmp_path / "empty.db").write_text("")
    change(tmp_path / "other.db", "CREATE TABLE t (a)")
    for id in ("letter", "empty", "other"):
        with pytest.raises(StoreCorrupt, match=f"infobus ledger repair {id}"):
            Ledger.open(tmp_path, id)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DELETE FROM records WHERE number = 3", "there are 4 records from number 1 on"),
        ("DELETE FROM records WHERE number = 5", "up to 5 were written, but they end at 4"),
        ("UPDATE facts SET value = x'07' WHERE key = 'end'", "the checksum of 'end' is wrong"),
        ("DROP TABLE records", "no such table"),
    ],
)
def test_what_is_missing_is_missed(ledger, tmp_path, statement, complaint):
    change(ledger.path, statement)
    with pytest.raises(StoreCorrupt, match=complaint) as caught:
        Ledger.open(tmp_path, ledger.id)
    assert caught.value.problems
    assert not caught.value.retry_is_safe


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE records SET record = x'00' WHERE number = 3",
        "UPDATE records SET kept_at = 'late' WHERE number = 3",
        "UPDATE records SET crc = crc + 1 WHERE number = 3",
        "UPDATE records SET record = (SELECT record FROM records WHERE number = 2), "
        "crc = (SELECT crc FROM records WHERE number = 2) WHERE number = 3",
    ],
)
def test_a_changed_record_is_not_served(ledger, tmp_path, statement):
    change(ledger.path, statement)
    with Ledger.open(tmp_path, ledger.id) as opened:
        assert [number for number, _ in opened.read(0, 2, 1_000)] == [1, 2]
        with pytest.raises(StoreCorrupt, match="the checksum of record 3 is wrong"):
            opened.read(0, 3, 1_000)
        assert opened.verify() == ["the checksum of record 3 is wrong"]
    assert repair(tmp_path, ledger.id).lost == ((3, 3),)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for make in (Ledger.open, folder.open_free):
        with pytest.raises(StoreError, match="cannot make the folder"):
            make(tmp_path / "file" / "ledgers")
    with pytest.raises(StoreError, match="cannot make the folder"):
        ConsumerStore.open(tmp_path / "file" / "consumers", "billing", [">"], now_s=1.0)


READER = """
import os, sys
from pathlib import Path
from infobus.errors import StoreError, StoreCorrupt
from infobus.stores.ledger.ledger import Ledger

if os.geteuid() == 0:
    os.setuid(65534)  # whoever is root may write anywhere
for id in (None, sys.argv[2]):
    try:
        Ledger.open(Path(sys.argv[1]), id)
    except StoreError as error:
        print(type(error).__name__, error)
"""


def test_a_folder_that_may_only_be_read(ledger, tmp_path):
    os.chmod(tmp_path, 0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READER, str(tmp_path), ledger.id],
            capture_output=True,
            text=True,
        )
    finally:
        os.chmod(tmp_path, 0o755)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["StoreError", "StoreError"]
    assert all("Permission denied" in line for line in lines), lines


def test_a_disk_that_becomes_read_only(ledger, tmp_path, monkeypatch):
    with Ledger.open(tmp_path, ledger.id) as opened:
        opened._writer._database.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match="cannot be opened for writing: attempt to write"):
            opened.append(records(6, 6))
        opened._writer._database.connection.execute("PRAGMA query_only = OFF")
        assert opened.append(records(6, 6)) == 6


@pytest.mark.parametrize("id", ["", "..", "a/b", "x" * 65, "ü"])
def test_ids_that_would_lead_elsewhere(tmp_path, id):
    with pytest.raises(BadValue, match="is not the id of a ledger"):
        folder.glance(tmp_path, id)


class TestConsumers:
    def test_any_name_finds_its_file(self, tmp_path):
        names = ["billing", "Billing", "a/b", "..", "ünï", "a b", "x.lock"]
        for name in names:
            ConsumerStore.open(tmp_path, name, [">"], now_s=1.0).close()
        assert consumer_names(tmp_path) == sorted(names)
        assert len({consumer_path(tmp_path, name).with_suffix(".lock") for name in names}) == 7

    @pytest.mark.parametrize("name", ["", "x" * 201, "ü" * 40])
    def test_names_that_no_file_can_have(self, tmp_path, name):
        with pytest.raises(BadValue, match="1 to 200 characters"):
            ConsumerStore.open(tmp_path, name, [">"], now_s=1.0)

    def test_a_forgotten_one_is_registered_anew(self, tmp_path):
        with ConsumerStore.open(tmp_path, "billing", [">"], now_s=1.0) as store:
            store.note("l1", 3)
        forget(tmp_path, "billing")
        with ConsumerStore.open(tmp_path, "billing", [">"], now_s=2.0) as store:
            assert (store.registered_at, store.progress()) == (2.0, {})

    def test_a_newer_format_is_refused(self, tmp_path):
        ConsumerStore.open(tmp_path, "billing", [">"], now_s=1.0).close()
        change(tmp_path / "billing.db", "PRAGMA user_version = 2")
        with pytest.raises(StoreError, match="format 2 of a durable consumer"):
            ConsumerStore.open(tmp_path, "billing", [">"], now_s=1.0)

    def test_a_damaged_one_is_refused_and_can_be_repaired(self, tmp_path):
        with ConsumerStore.open(tmp_path, "billing", [">"], now_s=1.0) as store:
            store.note("l1", 3)
            store.note("l2", 4)
        change(tmp_path / "billing.db", "UPDATE facts SET crc = 1 WHERE key = 'progress/l1'")
        with pytest.raises(StoreCorrupt, match="infobus ledger repair --consumer billing"):
            ConsumerStore.open(tmp_path, "billing", [">"], now_s=2.0)
        aside = repair_consumer(tmp_path, "billing")
        assert aside is not None
        assert aside.exists()
        assert repair_consumer(tmp_path, "billing") is None
        with ConsumerStore.open(tmp_path, "billing", [">"], now_s=2.0) as store:
            assert store.registered_at == 1.0
            assert store.position("l2") == 4

    def test_one_without_a_readable_registration_cannot(self, tmp_path):
        ConsumerStore.open(tmp_path, "billing", [">"], now_s=1.0).close()
        (tmp_path / "billing.db").write_bytes(b"")
        with pytest.raises(StoreError, match="the registration cannot be read"):
            repair_consumer(tmp_path, "billing")
        assert (tmp_path / "billing.db").exists()


AT_THE_LIMIT = """
import os, resource, sys
from pathlib import Path
from infobus.errors import StoreError
from infobus.stores.ledger.ledger import Ledger
from infobus.testing.conformance.stores import PLENTY, record

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
mine, other = Ledger.open(folder), Ledger.open(folder)
for ledger in (mine, other):
    ledger.append([record(1)])
other.close()
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
refused = 0
for id in (other.id, None):
    while True:  # one more file may be open each time
        try:
            with Ledger.open(folder, id) as opened:
                assert opened.next == (2 if id else 1)
            break
        except StoreError as error:
            assert "ulimit -n" in str(error) and "damaged" not in str(error), error
            refused += 1
            mine.append([record(mine.next)])
            os.close(taken.pop())
    taken += [os.open(os.devnull, os.O_RDONLY) for _ in range(refused)] if id else []
assert refused > 8, refused
assert mine.read(0, 100, PLENTY) == [(n, record(n)) for n in range(1, mine.next)]
assert mine.verify() == []
"""


def test_too_many_open_files_are_called_that_and_lose_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", AT_THE_LIMIT, tmp_path], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
