"""What becomes of a ledger's files outside SQLite: failing disks, deletion, copies."""

import errno
import os
import shutil
import time

import pytest

from infobus.errors import StoreCorrupt, StoreError
from infobus.stores.ledger import inspection
from infobus.stores.ledger.folder import ledger_ids, open_free, orphans, sources
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.repair import repair
from infobus.stores.sqlite import database
from infobus.testing.conformance.stores import PLENTY, record


class FailingDisk:
    """A connection on which SQLite answers one statement as if the disk had just failed."""

    def __init__(self, connection, statement, answer):
        self._connection, self._statement, self._answer = connection, statement, answer

    def execute(self, statement, *arguments):
        if statement == self._statement:
            return self._connection.execute(self._answer)
        return self._connection.execute(statement, *arguments)

    def close(self):
        self._connection.close()


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("PRAGMA journal_mode = WAL", "SELECT 'delete'"),
        ("PRAGMA wal_checkpoint(TRUNCATE)", "SELECT 1, 3, 0"),
    ],
)
def test_a_disk_that_fails_while_a_ledger_is_made_leaves_none_behind(
    monkeypatch, tmp_path, statement, answer
):
    connect = database.connect
    with monkeypatch.context() as patch:
        patch.setattr(database, "connect", lambda *a: FailingDisk(connect(*a), statement, answer))
        with pytest.raises(StoreError, match="cannot make the ledger"):
            Ledger.open(tmp_path)
    assert ledger_ids(tmp_path) == []
    with open_free(tmp_path) as ledger:
        assert ledger.append([record(1)]) == 1


def append_until_refused(ledger):
    end_s = time.monotonic() + 20
    with pytest.raises(StoreError, match="removed or replaced"):
        while time.monotonic() < end_s:
            ledger.append([record(1)])


@pytest.mark.parametrize("suffix", [".db", ".lock"])
def test_a_ledger_whose_files_are_removed_refuses_events(tmp_path, suffix):
    ledger = Ledger.open(tmp_path)
    ledger.append([record(1)])
    ledger.path.with_suffix(suffix).unlink()
    append_until_refused(ledger)
    assert not ledger.takes_records
    assert ledger.read(0, 1, PLENTY)[0][0] == 1  # what is there can still be served
    ledger.close()


def test_a_ledger_that_was_replaced_by_a_copy_refuses_events(tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.append([record(1)])
    shutil.copy(ledger.path, tmp_path / "copy")
    os.replace(tmp_path / "copy", ledger.path)
    append_until_refused(ledger)
    ledger.close()


@pytest.fixture
def copied_without_log(tmp_path):
    """The folder and the id of a copy of a ledger that is in use, its log left out."""
    with Ledger.open(tmp_path / "home") as ledger:
        for number in range(1, 4):
            ledger.append([record(number)])
        (tmp_path / "copy").mkdir()
        shutil.copy(ledger.path, tmp_path / "copy")
        yield tmp_path / "copy", ledger.id


def test_a_copy_without_its_log_is_refused(copied_without_log):
    folder, id = copied_without_log
    with pytest.raises(StoreCorrupt, match=r"its log is missing.*events after number 1"):
        Ledger.open(folder, id)
    with pytest.raises(StoreCorrupt, match="its log is missing"):
        inspection.check_ledger(folder, id)


def test_a_copy_without_its_log_can_be_repaired_and_is_sealed(copied_without_log):
    folder, id = copied_without_log
    assert repair(folder, id).count == 1
    with Ledger.open(folder, id) as ledger:
        assert [number for number, _ in ledger.read(0, 9, PLENTY)] == [1]
        assert not ledger.takes_records


def test_a_copy_of_a_closed_ledger_is_whole(tmp_path):
    with Ledger.open(tmp_path) as ledger:
        ledger.append([record(1)])
    (tmp_path / "copy").mkdir()
    shutil.copy(ledger.path, tmp_path / "copy")
    with Ledger.open(tmp_path / "copy", ledger.id) as copy:
        assert copy.next == 2


def test_a_ledger_that_another_program_has_copied_its_log_into_is_whole(tmp_path):
    ledger = Ledger.open(tmp_path / "home")
    for number in range(1, 4):
        ledger.append([record(number)])
    shutil.copytree(tmp_path / "home", tmp_path / "crashed")
    other = database.open_connection(tmp_path / "crashed" / ledger.path.name, "rw")
    other.execute("SELECT count(*) FROM records").fetchall()
    other.close()
    with Ledger.open(tmp_path / "crashed", ledger.id) as found:
        assert found.next == 4
    ledger.close()


def test_a_ledger_that_cannot_write_its_last_word_keeps_its_log(tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.append([record(1)])

    def fail():
        raise StoreError("the disk is full", path="")

    ledger._writer._mark_closed = fail
    ledger.close()
    assert database.companions(ledger.path)[0].stat().st_size
    with Ledger.open(tmp_path, ledger.id) as again:
        assert again.next == 2


def test_how_far_sources_have_come_is_known_of_all_ledgers_of_a_folder(tmp_path, caplog):
    for numbers in ({"a": 3, "b": 1}, {"a": 2, "c": 7}, {"d": 1}):
        with Ledger.open(tmp_path) as ledger:
            ledger.raise_sources(numbers)
    ledger.path.write_bytes(b"damaged")
    with Ledger.open(tmp_path) as in_use:
        in_use.raise_sources({"e": 5})
        assert sources(tmp_path) == {"a": 3, "b": 1, "c": 7, "e": 5}
    assert ledger.id in caplog.text


def test_a_folder_that_cannot_be_listed_for_lack_of_descriptors(monkeypatch, tmp_path):
    def fail(folder):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(StoreError, match="ulimit"):
        orphans(tmp_path)
