"""Merging, letting go, and damage: what is in a journal stays what it was."""

import pytest

from infobus.errors import StoreCorrupt
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.upkeep import Upkeep, compact, repair, retain, sweep, tend, verify
from tests.stores.journals import NOW_S, event, offsets, stories, write


def small_files(folder, count: int = 40) -> Journal:
    """One story and one untyped event in each commit."""
    batches = ([*stories(range(n, n + 1)), event(n, {"n": n})] for n in range(count))
    return write(folder, *batches)


def content(journal: Journal) -> list[object]:
    return [(one.offset, one.id, one.data) for one in journal.select().events()]


class TestMerging:
    def test_events_and_offsets_stay_as_they_were(self, tmp_path):
        before = small_files(tmp_path)
        expected = content(before)
        with JournalWriter.open(tmp_path) as writer:
            assert compact(writer, NOW_S) > 60
        after = Journal.open(tmp_path)
        assert len(after.manifest.segments) < 20
        assert content(after) == expected
        assert verify(tmp_path) == {}

    def test_whoever_reads_the_old_files_comes_to_an_end(self, tmp_path):
        before = small_files(tmp_path)
        expected = content(before)
        with JournalWriter.open(tmp_path) as writer:
            compact(writer, NOW_S)
            assert sweep(writer, NOW_S + 10, grace_s=60) == 0
            assert content(before) == expected
            assert sweep(writer, NOW_S + 61, grace_s=60) == 80
            assert not writer.manifest.retired
        listed = {segment.path for segment in writer.manifest.segments}
        found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
        assert found == listed

    def test_versions_of_a_type_are_not_mixed(self, tmp_path):
        from infobus import define_type

        for kind, value in [(int, 1), (str, "x")] * 20:
            versioned = define_type("journals.Versioned", [], {"x": kind})
            write(tmp_path, [event(1, versioned(x=value))])
        expected = content(Journal.open(tmp_path))
        with JournalWriter.open(tmp_path) as writer:
            compact(writer, NOW_S)
            assert len(writer.manifest.segments) == 2
        assert content(Journal.open(tmp_path)) == expected

    def test_few_files_are_left_alone(self, tmp_path):
        small_files(tmp_path, 5)
        with JournalWriter.open(tmp_path) as writer:
            assert compact(writer, NOW_S) == 0
            assert compact(writer, NOW_S, fan=2) == 8


class TestRetention:
    def test_old_files_go_by_age(self, tmp_path):
        with JournalWriter.open(tmp_path) as writer:
            for age in (300, 200, 100, 0):
                writer.append(stories(range(2)), now_s=NOW_S - age)
            tend(writer, NOW_S, Upkeep(keep_s=150))
        journal = Journal.open(tmp_path)
        assert offsets(journal.select()) == [4, 5, 6, 7]
        assert (journal.first_offset, journal.next_offset) == (4, 8)

    def test_the_oldest_files_go_when_there_is_too_much(self, tmp_path):
        journal = small_files(tmp_path, 10)
        total = sum(segment.bytes for segment in journal.manifest.segments)
        with JournalWriter.open(tmp_path) as writer:
            assert retain(writer, NOW_S, Upkeep(keep_bytes=total // 2)) >= 10
        after = Journal.open(tmp_path)
        assert sum(segment.bytes for segment in after.manifest.segments) <= total // 2
        left = offsets(after.select())
        assert left == list(range(after.first_offset, 20))
        assert after.manifest.schemas.keys() == {one.schema for one in after.manifest.segments}

    def test_offsets_go_on_after_everything_went(self, tmp_path):
        small_files(tmp_path, 2)
        with JournalWriter.open(tmp_path) as writer:
            retain(writer, NOW_S + 10, Upkeep(keep_s=1))
            assert writer.append([event(1, {})], now_s=NOW_S) == range(4, 5)


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


class TestDamage:
    @pytest.mark.parametrize("harm", [flip, cut, lambda path: path.unlink()])
    def test_a_damaged_file_is_named_and_the_rest_can_be_read(self, tmp_path, harm):
        journal = small_files(tmp_path, 4)
        bad = journal.manifest.segments[2]
        harm(tmp_path / bad.path)
        assert list(verify(tmp_path)) == [bad.path]
        with pytest.raises(Exception, match=bad.path):
            journal.select().table()
        assert offsets(journal.select(start=4)) == [4, 5, 6, 7]
        with JournalWriter.open(tmp_path) as writer:
            (lost,) = repair(writer)
            assert (lost.first, lost.last, lost.count) == (bad.first, bad.last, 1)
            assert repair(writer) == ()
        assert bad.first not in offsets(Journal.open(tmp_path).select())
        assert Journal.open(tmp_path).manifest.lost == (lost,)

    def test_merging_goes_round_it(self, tmp_path):
        journal = small_files(tmp_path)
        bad = journal.manifest.segments[0]
        flip(tmp_path / bad.path)
        with JournalWriter.open(tmp_path) as writer:
            assert compact(writer, NOW_S) > 60
            assert bad in writer.manifest.segments

    def test_a_descriptor_that_was_changed_is_told(self, tmp_path):
        small_files(tmp_path, 1)
        (path,) = (tmp_path / "descriptors").iterdir()
        path.write_bytes(path.read_bytes().replace(b"headline", b"headlinf"))
        assert list(verify(tmp_path)) == [str(path)]

    def test_a_checksum_is_looked_at_before_anything_is_used(self, tmp_path):
        journal = small_files(tmp_path, 1)
        flip(tmp_path / journal.manifest.segments[0].path)
        with pytest.raises(StoreCorrupt, match="infobus journal repair"):
            next(iter(journal.select().events()))
