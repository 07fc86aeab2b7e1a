"""Descriptors that are lost or damaged: told by name, written again, or given up aloud."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from infobus.cli.main import app
from infobus.objects import codec
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.upkeep import repair, verify
from tests.stores.journals import Source, Story, Wire, event, offsets, stories, write


def descriptor(folder, cls):
    return folder / "descriptors" / f"{cls.__bus_type__.fingerprint:016x}"


def lose(path) -> None:
    path.unlink()


def harm(path) -> None:
    path.write_bytes(path.read_bytes().replace(b"journals.", b"journalz."))


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:9])


def elsewhere(folder, asked: str) -> str:
    """What a process that never heard of the types finds."""
    code = (
        "import sys; from infobus.stores.journal.journal import Journal\n"
        "from infobus.errors import BusError\n"
        "journal = Journal.open(sys.argv[1])\n"
        f"try: print(len({asked}.table()))\n"
        "except BusError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["journal", *map(str, arguments)])
    return done.exit_code, done.output.replace("\n", " ")


@pytest.mark.parametrize("damage", [lose, harm, cut])
class TestDamage:
    def test_it_is_told_until_it_is_repaired(self, tmp_path, damage):
        write(tmp_path, stories(range(3)))
        path = descriptor(tmp_path, Story)
        damage(path)
        assert list(verify(tmp_path)) == [str(path)]
        code, out = run("verify", tmp_path)
        assert code == 1 and "descriptor of journals.Story" in out
        is_kept = path.exists()
        code, out = run("repair", tmp_path)
        name = f"descriptors/{path.name}"
        told = f"kept: {name}.damaged" if is_kept else f"missing: {name}"
        assert (code, out.strip()) == (0, f"descriptor of journals.Story lost; {told}")
        assert path.with_name(f"{path.name}.damaged").exists() == is_kept
        assert verify(tmp_path) == {}
        assert run("verify", tmp_path)[0] == 0
        assert told in run("show", tmp_path)[1]
        assert "nothing was changed" in run("repair", tmp_path)[1]

    def test_the_next_event_of_the_type_brings_it_back(self, tmp_path, damage):
        write(tmp_path, stories(range(2)))
        before = descriptor(tmp_path, Story).read_bytes()
        damage(descriptor(tmp_path, Story))
        write(tmp_path, [event(9, {})])
        assert len(verify(tmp_path)) == 1
        write(tmp_path, stories(range(2, 3)))
        assert verify(tmp_path) == {}
        assert descriptor(tmp_path, Story).read_bytes() == before
        assert elsewhere(tmp_path, "journal.select('journals.Story')") == "3"

    def test_so_it_does_after_repair(self, tmp_path, damage):
        write(tmp_path, stories(range(2)))
        damage(descriptor(tmp_path, Story))
        with JournalWriter.open(tmp_path) as writer:
            repair(writer)
        write(tmp_path, stories(range(2, 3)))
        assert elsewhere(tmp_path, "journal.select('journals.Story')") == "3"

    @pytest.mark.parametrize(
        "asked",
        [
            "journal.select('journals.Story')",
            "journal.select('journals.Wire')",
            "journal.select(where='isa(\"journals.Story\")')",
        ],
    )
    def test_reading_by_type_is_refused_rather_than_giving_less(self, tmp_path, damage, asked):
        write(tmp_path, [event(1, Wire(headline="h")), event(2, Story(headline="h"))])
        damage(descriptor(tmp_path, Wire))
        found = elsewhere(tmp_path, asked)
        assert found.startswith("StoreCorrupt") and str(descriptor(tmp_path, Wire)) in found

    def test_after_repair_other_types_can_be_read_and_this_one_without_its_name(
        self, tmp_path, damage
    ):
        write(tmp_path, [event(1, Wire(headline="h")), event(2, Source(name="n"))])
        damage(descriptor(tmp_path, Wire))
        with JournalWriter.open(tmp_path) as writer:
            (lost,) = repair(writer)
            assert (lost.type, lost.count) == ("journals.Wire", 0)
        assert elsewhere(tmp_path, "journal.select('journals.Source')") == "1"
        assert elsewhere(tmp_path, "journal.select('journals.Wire')").startswith("StoreCorrupt")
        assert elsewhere(tmp_path, "journal.select()") == "2"
        assert offsets(Journal.open(tmp_path).select("journals.Wire")) == [0]


def test_a_type_that_nobody_ever_described_is_no_damage(tmp_path):
    unknown = codec.decode(0x1235, codec.encode({"a": 1})[1])
    journal = write(tmp_path, [event(1, unknown), event(2, Story(headline="h"))])
    assert verify(tmp_path) == {}
    assert offsets(journal.select()) == [0, 1]
    assert elsewhere(tmp_path, "journal.select('journals.Story')") == "1"


def test_a_segment_that_is_missing_is_not_said_to_be_kept(tmp_path):
    journal = write(tmp_path, stories(range(2)))
    (segment,) = journal.manifest.segments
    (tmp_path / segment.path).unlink()
    code, out = run("repair", tmp_path)
    assert (code, out.strip()) == (
        0,
        f"2 events of journals.Story lost; missing: {segment.path}",
    )
    assert segment.path in run("show", tmp_path)[1]
