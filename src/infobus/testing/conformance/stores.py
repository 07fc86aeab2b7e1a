"""What every ledger and every consumer store must do, as tests.

Subclass `LedgerConformance` and `ConsumerConformance` in a pytest module, and say how stores are
opened and what a crash is. After a crash, whatever was open before is not touched any more.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pytest

from infobus.errors import BadValue, BusClosed, DurableInUse, LedgerInUse, StoreError
from infobus.stores.ledger.consumer_store import ConsumerProgress
from infobus.stores.ledger.record import Position, Record, SourcePlace

PLENTY = 1 << 30


class LedgerLike(Protocol):
    """The public face of a ledger."""

    id: str

    @property
    def next(self) -> int: ...
    @property
    def gone_up_to(self) -> int: ...
    def append(
        self, records: Sequence[Record], descriptors: Mapping[int, bytes] = ..., /
    ) -> int: ...
    def append_from(
        self,
        sources: Sequence[SourcePlace],
        records: Sequence[Record],
        descriptors: Mapping[int, bytes] = ...,
        *,
        now_s: float,
        reached: Mapping[str, int] = ...,
    ) -> None: ...
    def sources(self) -> dict[str, int]: ...
    def raise_sources(self, numbers: Mapping[str, int]) -> None: ...
    def read(self, after: int, count_max: int, bytes_max: int) -> list[tuple[int, Record]]: ...
    def first_since(self, time: float) -> int: ...
    def descriptor(self, fingerprint: int) -> bytes | None: ...
    def positions(self) -> dict[str, Position]: ...
    def settle(self, name: str, position: int, now_s: float | None = None) -> None: ...
    def drop(self, name: str) -> None: ...
    def prune(
        self,
        now_s: float,
        *,
        keep_s: float,
        keep_bytes: int,
        unsettled_keep_s: float = ...,
        unsettled_keep_bytes: int | None = ...,
    ) -> int: ...
    def verify(self) -> list[str]: ...
    def close(self) -> None: ...


class ConsumerLike(Protocol):
    """The public face of a consumer store."""

    @property
    def registered_at(self) -> float: ...
    @property
    def patterns(self) -> tuple[str, ...]: ...
    @property
    def where(self) -> str: ...
    def progress(self) -> dict[str, ConsumerProgress]: ...
    def position(self, ledger: str) -> int: ...
    def note(
        self,
        ledger: str,
        position: int,
        above: Collection[int] = ...,
        deliveries: Mapping[int, int] | None = ...,
    ) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def record(number: int, *, time: float | None = None, size: int = 20) -> Record:
    """Return a record that can be told from others, published at second `number`."""
    at = float(number) if time is None else time
    body = str(number).encode().ljust(size, b".")
    return Record(f"orders.{number}", at, 1 << 63 | number, body)


def records(first: int, last: int) -> list[Record]:
    """Return records, published one per second."""
    return [record(number) for number in range(first, last + 1)]


def sources(stream: str, *numbers: int) -> list[SourcePlace]:
    """Return places along a source."""
    return [SourcePlace(stream, number) for number in numbers]


class LedgerConformance:
    """The promises of a ledger, one test each."""

    def open_ledger(self, id: str | None = None) -> LedgerLike:
        """Open a ledger of this test's folder, or make one."""
        raise NotImplementedError

    def open_free(self) -> LedgerLike:
        """Take a ledger that nobody owns, or make one."""
        raise NotImplementedError

    def orphans(self) -> list[str]:
        """Return the ids of ledgers that have taken records and that nobody owns."""
        raise NotImplementedError

    def crash(self) -> None:
        """Let the process die that has opened everything so far."""
        raise NotImplementedError

    def test_numbers_start_at_one_and_follow_each_other(self) -> None:
        ledger = self.open_ledger()
        assert ledger.next == 1
        assert [ledger.append(records(1, 1)), ledger.append(records(2, 4))] == [1, 2]
        assert ledger.next == 5
        ledger.close()

    def test_records_are_read_as_they_were_written(self) -> None:
        ledger = self.open_ledger()
        full = Record(
            "a.b", 2.5, 7, b"\0\xff", "id-1", 9.5, True, "emergency", b"", ("far", 7, "site")
        )
        ledger.append([full, record(2)])
        assert ledger.read(0, 10, PLENTY) == [(1, full), (2, record(2))]
        assert ledger.read(1, 10, PLENTY) == [(2, record(2))]
        assert ledger.read(2, 10, PLENTY) == []
        ledger.close()

    def test_reading_is_bounded_but_gives_one_record_at_least(self) -> None:
        ledger = self.open_ledger()
        ledger.append([record(number, size=1_000) for number in range(1, 11)])
        assert [number for number, _ in ledger.read(3, 2, PLENTY)] == [4, 5]
        assert [number for number, _ in ledger.read(3, 10, 3_500)] == [4, 5, 6]
        assert [number for number, _ in ledger.read(3, 10, 10)] == [4]
        ledger.close()

    def test_large_records_are_kept_whole(self) -> None:
        ledger = self.open_ledger()
        large = Record("a", 1.0, 1, bytes(range(256)) * 1_000)
        ledger.append([large])
        assert ledger.read(0, 1, PLENTY) == [(1, large)]
        ledger.close()

    def test_what_was_appended_survives_a_crash_and_numbering_goes_on(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 3))
        self.crash()
        again = self.open_ledger(ledger.id)
        assert again.append(records(4, 4)) == 4
        assert [kept for _, kept in again.read(0, 10, PLENTY)] == records(1, 4)
        assert again.verify() == []
        again.close()

    def test_nothing_is_appended_without_records(self) -> None:
        ledger = self.open_ledger()
        with pytest.raises(BadValue):
            ledger.append([])
        assert ledger.next == 1
        ledger.close()

    def test_a_record_that_comes_again_from_its_source_is_left_out(self) -> None:
        ledger = self.open_ledger()
        ledger.append_from(sources("a", 1, 3), [record(1), record(3)], now_s=5.0)
        ledger.append_from(sources("a", 1, 3, 7), records(1, 3), {5: b"descriptor"}, now_s=5.0)
        ledger.append_from(sources("b", 1), [record(1)], now_s=5.0)
        assert [kept.subject for _, kept in ledger.read(0, 10, PLENTY)] == [
            record(n).subject for n in (1, 3, 3, 1)
        ]
        assert ledger.sources() == {"a": 7, "b": 1}
        assert ledger.descriptor(5) == b"descriptor"
        ledger.close()

    def test_how_far_a_source_has_come_survives_a_crash_together_with_its_records(self) -> None:
        ledger = self.open_ledger()
        ledger.append_from(sources("a", 4), [record(1)], now_s=5.0)
        self.crash()
        again = self.open_ledger(ledger.id)
        assert again.sources() == {"a": 4}
        again.append_from(sources("a", 4, 5), records(1, 2), now_s=5.0)
        assert [kept for _, kept in again.read(0, 10, PLENTY)] == records(1, 2)
        again.close()

    def test_other_sources_are_raised_together_with_the_records(self) -> None:
        ledger = self.open_ledger()
        ledger.append_from(sources("a", 4), [record(1)], now_s=5.0, reached={"b": 9})
        ledger.append_from(sources("a", 5), [record(2)], now_s=5.0, reached={"b": 8})
        self.crash()
        again = self.open_ledger(ledger.id)
        assert again.sources() == {"a": 5, "b": 9}
        again.close()

    def test_a_source_of_which_another_ledger_keeps_more_goes_on_behind_that(self) -> None:
        ledger = self.open_ledger()
        ledger.append_from(sources("a", 4), [record(1)], now_s=5.0)
        ledger.raise_sources({"a": 2, "b": 9})
        self.crash()
        again = self.open_ledger(ledger.id)
        assert again.sources() == {"a": 4, "b": 9}
        again.append_from([*sources("b", 9, 10)], records(1, 2), now_s=5.0)
        assert [kept for _, kept in again.read(1, 10, PLENTY)] == [record(2)]
        again.close()

    def test_records_from_a_source_are_kept_under_the_time_at_which_they_came(self) -> None:
        ledger = self.open_ledger()
        ledger.append_from(sources("a", 1), [record(1)], now_s=50.0)
        assert ledger.first_since(40.0) == 1
        assert ledger.read(0, 1, PLENTY)[0][1].time == 1.0
        ledger.close()

    def test_descriptors_are_kept_with_the_records_that_need_them(self) -> None:
        ledger = self.open_ledger()
        fingerprint = (1 << 64) - 1
        ledger.append(records(1, 1), {fingerprint: b"descriptor", 5: b"other"})
        self.crash()
        again = self.open_ledger(ledger.id)
        assert again.descriptor(fingerprint) == b"descriptor"
        assert again.descriptor(5) == b"other"
        assert again.descriptor(6) is None
        again.close()

    def test_one_owner_at_a_time(self) -> None:
        ledger = self.open_ledger()
        with pytest.raises(LedgerInUse):
            self.open_ledger(ledger.id)
        ledger.close()
        self.open_ledger(ledger.id).close()

    def test_a_ledger_that_is_not_there_is_not_made(self) -> None:
        with pytest.raises(StoreError):
            self.open_ledger("nowhere")

    def test_a_free_ledger_is_taken_before_a_new_one_is_made(self) -> None:
        mine = self.open_free()
        mine.append(records(1, 2))
        other = self.open_free()
        assert other.id != mine.id
        assert self.orphans() == []
        self.crash()
        assert self.orphans() == [mine.id]
        assert {self.open_free().id, self.open_free().id} == {mine.id, other.id}
        self.crash()

    def test_a_closed_ledger_says_so(self) -> None:
        ledger = self.open_ledger()
        ledger.close()
        ledger.close()
        with pytest.raises(BusClosed):
            ledger.append(records(1, 1))
        with pytest.raises(BusClosed):
            ledger.read(0, 1, 1)

    def test_records_are_found_by_time(self) -> None:
        ledger = self.open_ledger()
        assert ledger.first_since(0.0) == 1
        ledger.append(records(1, 100))
        found = [ledger.first_since(time) for time in (0.0, 1.0, 42.0, 42.5, 100.0, 101.0)]
        assert found == [1, 1, 42, 43, 100, 101]
        ledger.close()

    def test_a_clock_that_jumps_back_hides_no_record(self) -> None:
        ledger = self.open_ledger()
        ledger.append([record(1, time=1_000.0), record(2, time=10.0), record(3, time=20.0)])
        self.crash()
        again = self.open_ledger(ledger.id)
        again.append([record(4, time=30.0)])
        assert again.first_since(25.0) == 1
        assert again.first_since(1_001.0) == 5
        assert [kept.time for _, kept in again.read(0, 9, PLENTY)] == [1_000.0, 10.0, 20.0, 30.0]
        again.close()

    def test_positions_never_go_back(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 9))
        ledger.settle("billing", 5, 10.0)
        ledger.settle("billing", 3, 11.0)
        ledger.settle("audit", 0, 12.0)
        assert ledger.positions() == {"billing": Position(5, 11.0), "audit": Position(0, 12.0)}
        ledger.close()

    def test_what_was_never_written_cannot_be_settled(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 9))
        for position in (10, -1):
            with pytest.raises(BadValue, match="settled"):
                ledger.settle("billing", position, 1.0)
        assert ledger.positions() == {}
        ledger.close()

    def test_positions_are_kept_by_closing_and_at_latest_forgotten_to_an_earlier_one(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 9))
        ledger.settle("billing", 5, 10.0)
        ledger.close()
        again = self.open_ledger(ledger.id)
        again.settle("billing", 7, 11.0)
        self.crash()
        last = self.open_ledger(ledger.id)
        assert last.positions()["billing"].position in (5, 7)
        last.close()

    def test_a_dropped_consumer_does_not_come_back(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 9))
        ledger.settle("billing", 5, 10.0)
        ledger.drop("billing")
        ledger.drop("nobody")
        assert ledger.positions() == {}
        self.crash()
        again = self.open_ledger(ledger.id)
        assert again.positions() == {}
        again.close()

    def test_records_go_when_they_are_old_and_settled_by_all(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 10))
        ledger.settle("billing", 6, 10.0)
        ledger.settle("audit", 4, 10.0)
        assert ledger.prune(11.0, keep_s=100.0, keep_bytes=PLENTY) == 0
        assert ledger.prune(11.0, keep_s=8.0, keep_bytes=PLENTY) == 2
        assert ledger.prune(100.0, keep_s=8.0, keep_bytes=PLENTY) == 2
        assert ledger.gone_up_to == 4
        assert [number for number, _ in ledger.read(0, 10, PLENTY)] == [5, 6, 7, 8, 9, 10]
        assert ledger.verify() == []
        ledger.close()

    def test_records_go_when_they_take_too_much_room(self) -> None:
        ledger = self.open_ledger()
        ledger.append([record(number, size=1_000) for number in range(1, 11)])
        assert ledger.prune(11.0, keep_s=100.0, keep_bytes=3_500) == 7
        ledger.settle("billing", 8, 10.0)
        assert ledger.prune(11.0, keep_s=100.0, keep_bytes=0) == 1
        assert ledger.gone_up_to == 8
        ledger.close()

    def test_unsettled_records_go_by_limits_of_their_own(self) -> None:
        ledger = self.open_ledger()
        ledger.append([record(number, size=1_000) for number in range(1, 11)])
        ledger.settle("billing", 1, 10.0)
        keep = {"keep_s": 0.0, "keep_bytes": 0}
        assert ledger.prune(100.0, **keep, unsettled_keep_s=97.5) == 2  # type: ignore[arg-type]
        assert ledger.prune(100.0, **keep, unsettled_keep_bytes=3_500) == 5  # type: ignore[arg-type]
        assert ledger.gone_up_to == 7
        ledger.close()

    def test_numbers_are_not_used_again_when_all_records_are_gone(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 5))
        assert ledger.prune(100.0, keep_s=0.0, keep_bytes=0) == 5
        self.crash()
        assert self.orphans() == [ledger.id]
        again = self.open_ledger(ledger.id)
        assert (again.gone_up_to, again.next) == (5, 6)
        assert again.append(records(6, 6)) == 6
        assert again.read(0, 10, PLENTY) == [(6, record(6))]
        again.close()

    def test_records_gone_since_a_time_can_be_told_from_none(self) -> None:
        ledger = self.open_ledger()
        ledger.append(records(1, 10))
        ledger.prune(12.0, keep_s=8.5, keep_bytes=PLENTY)
        ledger.prune(12.0, keep_s=5.5, keep_bytes=PLENTY)
        assert ledger.gone_up_to == 6
        assert ledger.first_since(6.5) == 7
        assert ledger.first_since(6.0) == 4
        assert ledger.first_since(1.0) == 1
        ledger.close()

    def test_many_threads_get_numbers_of_their_own_and_lose_nothing(self) -> None:
        ledger = self.open_ledger()
        got: list[dict[int, Record]] = [{} for _ in range(8)]

        def publish(index: int) -> None:
            for turn in range(10):
                mine = [record(index * 1_000 + turn * 2), record(index * 1_000 + turn * 2 + 1)]
                first = ledger.append(mine, {index: b"type"})
                got[index].update(enumerate(mine, first))

        threads = [threading.Thread(target=publish, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = dict(ledger.read(0, 1_000, PLENTY))
        assert kept == {number: one for part in got for number, one in part.items()}
        assert sorted(kept) == list(range(1, 161))
        ledger.close()


class ConsumerConformance:
    """The promises of a consumer store, one test each."""

    def open_consumer(
        self, name: str, patterns: Sequence[str], where: str = "", *, now_s: float
    ) -> ConsumerLike:
        """Open the store of a durable consumer in this test's folder."""
        raise NotImplementedError

    def crash(self) -> None:
        """Let the process die that has opened everything so far."""
        raise NotImplementedError

    def test_a_registration_is_kept(self) -> None:
        self.open_consumer("billing", ["orders.>"], "price > 1", now_s=5.0)
        self.crash()
        again = self.open_consumer("billing", ["orders.>"], "price > 1", now_s=9.0)
        assert (again.registered_at, again.patterns, again.where) == (
            5.0, ("orders.>",), "price > 1",
        )  # fmt: skip
        again.close()

    def test_a_changed_registration_keeps_its_date_and_progress(self) -> None:
        store = self.open_consumer("billing", ["orders.>"], now_s=5.0)
        store.note("l1", 3)
        store.close()
        changed = self.open_consumer("billing", ["orders.new", "bills.>"], "x > 1", now_s=9.0)
        self.crash()
        again = self.open_consumer("billing", ["orders.new", "bills.>"], "x > 1", now_s=10.0)
        assert changed.registered_at == again.registered_at == 5.0
        assert (again.patterns, again.where) == (("orders.new", "bills.>"), "x > 1")
        assert again.position("l1") == 3
        again.close()

    def test_an_unknown_ledger_has_no_position(self) -> None:
        store = self.open_consumer("billing", [">"], now_s=5.0)
        assert store.position("l1") == -1
        assert store.progress() == {}
        store.close()

    def test_what_was_flushed_survives_a_crash(self) -> None:
        store = self.open_consumer("billing", [">"], now_s=5.0)
        store.note("l1", 3, above={5, 9}, deliveries={4: 2})
        store.note("l2", 0)
        assert store.position("l1") == 3
        store.flush()
        store.note("l1", 4)
        self.crash()
        again = self.open_consumer("billing", [">"], now_s=5.0)
        assert again.progress()["l2"] == ConsumerProgress(0)
        assert again.progress()["l1"] == ConsumerProgress(3, frozenset({5, 9}), {4: 2})
        again.close()

    def test_closing_flushes(self) -> None:
        store = self.open_consumer("billing", [">"], now_s=5.0)
        store.note("l1", 3)
        store.close()
        store.close()
        with pytest.raises(BusClosed):
            store.flush()
        again = self.open_consumer("billing", [">"], now_s=5.0)
        assert again.position("l1") == 3
        again.close()

    def test_positions_never_go_back(self) -> None:
        store = self.open_consumer("billing", [">"], now_s=5.0)
        store.note("l1", 3, above={5})
        for position, above in ((2, ()), (5, (5,))):
            with pytest.raises(BadValue):
                store.note("l1", position, above)
        assert store.progress()["l1"] == ConsumerProgress(3, frozenset({5}))
        store.close()

    def test_one_user_of_a_name_at_a_time(self) -> None:
        store = self.open_consumer("billing", [">"], now_s=5.0)
        with pytest.raises(DurableInUse, match="billing"):
            self.open_consumer("billing", [">"], now_s=5.0)
        self.open_consumer("audit", [">"], now_s=5.0).close()
        self.crash()
        del store
        self.open_consumer("billing", [">"], now_s=5.0).close()
