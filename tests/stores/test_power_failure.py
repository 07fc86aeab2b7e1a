"""When the power fails, what was accepted is there, and nothing is there by half."""

import random
import uuid

import pytest

from infobus.errors import StoreFull
from infobus.stores.ledger.consumer_store import ConsumerStore
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.sqlite import database
from infobus.testing.conformance.stores import PLENTY, record, records
from tests.stores.power import Disk


@pytest.fixture
def disk(monkeypatch):
    disk = Disk(f"power-{uuid.uuid4().hex}")
    monkeypatch.setattr(database, "open_connection", disk.connect)
    return disk


def moments(disk, marks, rounds):
    """Sampled moments of a power failure, with what was promised by then."""
    chance = random.Random(7)
    for count in range(marks[0][0], len(disk.steps) + 1):
        promised = [promise for at, promise in marks if at <= count][-1]
        for turn in range(rounds):
            yield count, promised, chance if turn else None


def refill(folder, files):
    for path in folder.glob("*"):
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.db*") if "-" not in path.name}


def test_a_ledger_keeps_what_was_appended(disk, tmp_path, monkeypatch):
    """Commits, checkpoints, pruning and closing, with the power failing at every step."""
    ledger = Ledger.open(tmp_path / "home", checkpoint_bytes=40_000)
    start = contents(tmp_path / "home")
    disk.steps.clear()
    marks = [(0, (0, 0))]

    def mark():
        marks.append((len(disk.steps), (ledger.next - 1, ledger.gone_up_to)))

    for turn in range(12):
        for _ in range(3):
            count = 1 + turn % 3
            sizes = [20 if turn % 2 else 5_000] * count
            ledger.append(
                [record(ledger.next + n, size=size) for n, size in enumerate(sizes)],
                {turn: b"type"},
            )
            mark()
        ledger.settle("billing", ledger.next - 3, float(turn))
        if turn % 4 == 3:
            ledger.prune(1e9, keep_s=0.0, keep_bytes=0)
            mark()
    last = ledger.next - 1
    ledger.close()
    mark()
    monkeypatch.undo()

    folder = tmp_path / "after"
    folder.mkdir()
    for count, (end, gone), chance in moments(disk, marks, rounds=2):
        refill(folder, disk.after(start, count, chance))
        with Ledger.open(folder, ledger.id) as left:
            assert end < left.next <= last + 1, f"after {count} steps"
            assert left.gone_up_to >= gone
            kept = left.read(left.gone_up_to, 10_000, PLENTY)
            assert [number for number, _ in kept] == [*range(left.gone_up_to + 1, left.next)]
            assert all(one.subject == f"orders.{number}" for number, one in kept)
            assert left.verify() == []
            assert left.append(records(left.next, left.next)) == left.next - 1


def test_a_consumer_store_keeps_what_was_flushed(disk, tmp_path, monkeypatch):
    store = ConsumerStore.open(
        tmp_path / "home", "billing", ["orders.>"], now_s=5.0, checkpoint_count=4
    )
    start = contents(tmp_path / "home")
    disk.steps.clear()
    marks = [(0, -1)]
    for position in range(1, 20):
        store.note("l1", position, above={position + 2}, deliveries={position + 1: 3})
        store.flush()
        marks.append((len(disk.steps), position))
    store.close()
    monkeypatch.undo()

    folder = tmp_path / "after"
    folder.mkdir()
    for count, position, chance in moments(disk, marks, rounds=2):
        refill(folder, disk.after(start, count, chance))
        with ConsumerStore.open(folder, "billing", ["orders.>"], now_s=9.0) as left:
            assert left.registered_at == 5.0
            assert left.position("l1") >= position, f"after {count} steps"


def test_a_full_disk_takes_nothing_away_and_service_resumes(disk, tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.append(records(1, 3))
    ledger.settle("billing", 2, 1.0)
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(StoreFull, match="trying again later is safe") as caught:
            ledger.append(records(4, 5), {7: b"type"})
    assert caught.value.retry_is_safe
    assert caught.value.path == str(ledger.path)
    assert [number for number, _ in ledger.read(0, 10, PLENTY)] == [1, 2, 3]
    assert ledger.next == 4
    disk.is_full = False
    assert ledger.append(records(4, 4), {7: b"type"}) == 4
    assert ledger.descriptor(7) == b"type"
    assert ledger.verify() == []
    ledger.close()
    with Ledger.open(tmp_path, ledger.id) as again:
        assert again.positions()["billing"].position == 2
        assert [one for _, one in again.read(0, 10, PLENTY)] == records(1, 4)


def test_a_ledger_can_be_closed_on_a_full_disk(disk, tmp_path):
    ledger = Ledger.open(tmp_path)
    ledger.append(records(1, 3))
    disk.is_full = True
    ledger.close()
    disk.is_full = False
    with Ledger.open(tmp_path, ledger.id) as again:
        assert [one for _, one in again.read(0, 10, PLENTY)] == records(1, 3)


def test_a_log_that_cannot_be_copied_for_lack_of_room_is_kept(disk, tmp_path, monkeypatch):
    ledger = Ledger.open(tmp_path, checkpoint_bytes=0)
    assert ledger.append(records(1, 2)) == 1
    # The disk becomes full just when the commit is through and the copying begins.
    copy = ledger._writer._database.checkpoint

    def copy_without_room():
        disk.is_full = True
        return copy()

    monkeypatch.setattr(ledger._writer._database, "checkpoint", copy_without_room)
    assert ledger.append(records(3, 3)) == 3
    assert ledger.append(records(4, 4)) == 4
    assert disk.is_full
    disk.is_full = False
    assert ledger.append(records(5, 5)) == 5
    assert [one for _, one in ledger.read(0, 10, PLENTY)] == records(1, 5)
    ledger.close()


def test_a_consumer_store_on_a_full_disk_keeps_what_was_noted(disk, tmp_path):
    store = ConsumerStore.open(tmp_path, "billing", [">"], now_s=5.0)
    store.note("l1", 3)
    disk.is_full = True
    with pytest.raises(StoreFull):
        store.flush()
    disk.is_full = False
    store.flush()
    store.close()
    with ConsumerStore.open(tmp_path, "billing", [">"], now_s=5.0) as again:
        assert again.position("l1") == 3
