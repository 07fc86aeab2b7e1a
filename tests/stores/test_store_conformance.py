"""Stores on disk and in memory keep the same promises."""

import shutil

import pytest

from infobus.stores.ledger import folder
from infobus.stores.ledger.consumer_store import ConsumerStore
from infobus.stores.ledger.ledger import Ledger
from infobus.testing.conformance.stores import (
    PLENTY,
    ConsumerConformance,
    LedgerConformance,
    records,
)
from infobus.testing.memory_stores import MemoryDisk


class OnDisk:
    """A crash leaves the files as they are at that moment: they are copied."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self._folder = tmp_path / "0"
        self._opened = []
        yield
        for store in self._opened:
            store.close()

    def crash(self) -> None:
        after = self._folder.with_name(f"{int(self._folder.name) + 1}")
        shutil.copytree(self._folder, after)
        self._folder = after

    def _remembered(self, store):
        self._opened.append(store)
        return store


class TestLedgerOnDisk(OnDisk, LedgerConformance):
    def open_ledger(self, id: str | None = None) -> Ledger:
        return self._remembered(Ledger.open(self._folder, id))

    def open_free(self) -> Ledger:
        return self._remembered(folder.open_free(self._folder))

    def orphans(self) -> list[str]:
        return list(folder.orphans(self._folder))


class TestConsumerStoreOnDisk(OnDisk, ConsumerConformance):
    def open_consumer(self, name, patterns, where="", *, now_s) -> ConsumerStore:
        store = ConsumerStore.open(self._folder, name, patterns, where, now_s=now_s)
        return self._remembered(store)


class InMemory:
    @pytest.fixture(autouse=True)
    def disk(self):
        self._disk = MemoryDisk()

    def crash(self) -> None:
        self._disk.crash()


class TestLedgerInMemory(InMemory, LedgerConformance):
    def open_ledger(self, id=None):
        return self._disk.open_ledger(id)

    def open_free(self):
        return self._disk.open_free()

    def orphans(self) -> list[str]:
        return list(self._disk.orphans())

    def test_what_is_written_and_not_synced_is_lost_by_a_crash(self) -> None:
        ledger = self.open_ledger()
        ledger.write(records(1, 2))
        assert ledger.read(0, 10, PLENTY) == []
        assert ledger.sync() == [*enumerate(records(1, 2), 1)]
        assert ledger.write(records(3, 3)) == 3
        self.crash()
        again = self.open_ledger(ledger.id)
        assert [kept for _, kept in again.read(0, 10, PLENTY)] == records(1, 2)
        assert again.next == 3


class TestConsumerStoreInMemory(InMemory, ConsumerConformance):
    def open_consumer(self, name, patterns, where="", *, now_s):
        return self._disk.open_consumer(name, patterns, where, now_s=now_s)
