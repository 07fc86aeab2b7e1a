"""What is in a journal's folder unlisted: only certain leftovers go, all else is kept."""

import logging
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infobus.errors import StoreCorrupt
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.upkeep import compact, repair, sweep, verify
from tests.stores.journals import NOW_S, event, offsets, stories, write


def names(folder, pattern="*.parquet*") -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}


def listed(journal: Journal) -> set[str]:
    return {segment.path for segment in journal.manifest.segments}


def orphans(paths) -> set[str]:
    return {f"{path}.orphan" for path in paths}


@pytest.mark.parametrize(
    "path",
    [
        "sales/2025/my.parquet",
        "tables/0000000000000000-00000000.parquet",
        "tables/types/x/0000000000000000-00000000.parquet",
        "types/journals.Story/part-0.parquet",
        "types/.part-0.parquet.new",
        "untyped/mine/0000000000000000-00000000.parquet",
        "untyped/notes.txt",
    ],
)
def test_files_of_others_are_left_alone(tmp_path, path):
    mine = tmp_path / path
    mine.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), mine)
    write(tmp_path, stories(range(3)))
    write(tmp_path, [event(3, {})])
    with JournalWriter.open(tmp_path) as writer:
        compact(writer, NOW_S, fan=2)
    assert mine.is_file()


def test_a_lost_manifest_is_told_and_no_new_journal_begins(tmp_path):
    before = write(tmp_path, stories(range(3)), [event(3, {})])
    manifest = (tmp_path / "manifest.json").rename(tmp_path / "backup")
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"2 segments.*manifest.json back from a backup"):
            JournalWriter.open(tmp_path)
    assert names(tmp_path) == listed(before)
    assert not (tmp_path / "manifest.json").exists()
    manifest.rename(tmp_path / "manifest.json")
    assert offsets(write(tmp_path, stories(range(4, 5))).select()) == [0, 1, 2, 3, 4]


def test_after_the_files_are_moved_away_a_new_journal_begins(tmp_path):
    write(tmp_path, stories(range(3)))
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "types").rename(tmp_path / "old")
    assert offsets(write(tmp_path, stories(range(1))).select()) == [0]
    assert len(names(tmp_path / "old")) == 1


def test_an_older_manifest_deletes_nothing(tmp_path, caplog):
    older = write(tmp_path, stories(range(2)))
    kept = (tmp_path / "manifest.json").read_bytes()
    newer = write(tmp_path, stories(range(2, 4)), [event(4, {})])
    contents = {path: (tmp_path / path).read_bytes() for path in listed(newer)}
    (tmp_path / "manifest.json").write_bytes(kept)
    with caplog.at_level(logging.WARNING, "infobus"):
        again = write(tmp_path, [event(9, {"other": True})])
    beyond = listed(newer) - listed(older)
    assert names(tmp_path, "*.orphan") == orphans(beyond)
    assert sum("not listed" in one.getMessage() for one in caplog.records) == len(beyond) == 2
    for path in beyond:
        assert (tmp_path / f"{path}.orphan").read_bytes() == contents[path]
    assert offsets(again.select()) == [0, 1, 2]
    assert verify(tmp_path) == {}


def test_an_older_manifest_keeps_the_merged_file_that_replaced_what_it_lists(tmp_path):
    write(tmp_path, *(stories(range(n, n + 1)) for n in range(4)))
    kept = (tmp_path / "manifest.json").read_bytes()
    with JournalWriter.open(tmp_path) as writer:
        compact(writer, NOW_S, fan=2)
        sweep(writer, NOW_S + 9, 1)
        (merged,) = listed(writer)
    (tmp_path / "manifest.json").write_bytes(kept)
    write(tmp_path)
    assert names(tmp_path) == orphans([merged])
    assert len(pq.ParquetFile(tmp_path / f"{merged}.orphan").read()) == 4


def test_a_merged_file_that_was_not_listed_goes_when_its_events_are_elsewhere(tmp_path):
    before = write(tmp_path, *(stories(range(n, n + 1)) for n in range(4)))
    kept = (tmp_path / "manifest.json").read_bytes()
    with JournalWriter.open(tmp_path) as writer:
        compact(writer, NOW_S, fan=2)
    (tmp_path / "manifest.json").write_bytes(kept)
    write(tmp_path)
    assert names(tmp_path) == listed(before)


def test_it_stays_when_what_is_listed_is_damaged(tmp_path):
    before = write(tmp_path, *(stories(range(n, n + 1)) for n in range(4)))
    kept = (tmp_path / "manifest.json").read_bytes()
    with JournalWriter.open(tmp_path) as writer:
        compact(writer, NOW_S, fan=2)
        (merged,) = listed(writer)
    (tmp_path / "manifest.json").write_bytes(kept)
    (tmp_path / min(listed(before))).write_bytes(b"PAR1")
    write(tmp_path)
    assert names(tmp_path) == listed(before) | orphans([merged])


def test_other_events_under_the_same_offsets_stay(tmp_path):
    write(tmp_path / "a", [event(1, {"n": 1})])
    other = write(tmp_path / "b", [event(2, {"n": 2})])
    (path,) = other.manifest.segments
    shutil.copy(tmp_path / "b" / path.path, tmp_path / "a" / path.path)
    write(tmp_path / "a")
    assert names(tmp_path / "a", "*.orphan") == orphans([path.path])


def test_what_was_never_finished_goes(tmp_path):
    before = write(tmp_path, stories(range(2)))
    (path,) = listed(before)
    half = (tmp_path / path).with_name(".0000000000000002-0123abcd.parquet.new")
    half.write_bytes(b"PAR1")
    write(tmp_path)
    assert names(tmp_path) == {path}


def test_a_file_gets_its_name_when_it_is_whole(tmp_path, monkeypatch):
    seen = []

    def look(descriptor: int) -> None:
        seen.append(names(tmp_path, "*.parquet"))

    with JournalWriter.open(tmp_path) as writer:
        monkeypatch.setattr("os.fsync", look)
        writer.append([event(1, {})], now_s=NOW_S)
    # Its folder's name in two folders, its content, and then its own name.
    assert [len(one) for one in seen][:4] == [0, 0, 0, 1]


def test_nothing_is_overwritten_by_setting_aside(tmp_path):
    journal = write(tmp_path, stories(range(2)))
    stray = tmp_path / "untyped" / "0000000000000009-0123abcd.parquet"
    stray.parent.mkdir()
    for content in (b"first", b"second"):
        stray.write_bytes(content)
        write(tmp_path)
    assert (stray.parent / f"{stray.name}.orphan").read_bytes() == b"first"
    assert (stray.parent / f"{stray.name}.2.orphan").read_bytes() == b"second"
    assert offsets(journal.select()) == [0, 1]


def test_a_repair_that_did_not_come_to_its_end_is_finished(tmp_path, monkeypatch):
    journal = write(tmp_path, stories(range(2)))
    (path,) = listed(journal)
    (tmp_path / path).write_bytes(b"PAR1")

    class Crash(BaseException):
        """The process is gone."""

    def die(*_: object) -> None:
        raise Crash

    with JournalWriter.open(tmp_path) as writer, monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.rename", die)
        with pytest.raises(Crash):
            repair(writer)
    write(tmp_path)
    assert names(tmp_path) == {f"{path}.damaged"}
