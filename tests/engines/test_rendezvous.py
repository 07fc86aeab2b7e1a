import subprocess
import sys
from pathlib import Path

import pytest

from infobus.engines.zenoh import rendezvous
from infobus.engines.zenoh.rendezvous import Rendezvous


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rendezvous, "_folder", lambda bus: tmp_path / "infobus" / bus)
    return tmp_path / "infobus"


def test_a_node_is_seen_by_others_from_entering_to_leaving() -> None:
    one, other = Rendezvous("bus"), Rendezvous("bus")
    one.enter("1a", "tcp/127.0.0.1:4001")
    assert other.neighbours() == {"1a": "tcp/127.0.0.1:4001"}
    one.leave()
    one.leave()
    assert other.neighbours() == {}


def test_a_node_does_not_see_itself_nor_another_bus() -> None:
    one, other = Rendezvous("bus"), Rendezvous("other")
    one.enter("1a", "tcp/127.0.0.1:4001")
    other.enter("1b", "tcp/127.0.0.1:4002")
    assert one.neighbours() == other.neighbours() == {}


def test_the_file_of_a_dead_process_is_removed(folder: Path) -> None:
    file = folder / "bus" / "1a"
    program = f"""
import fcntl, os
os.makedirs({str(file.parent)!r})
file = open({str(file)!r}, "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write("tcp/127.0.0.1:4001")
file.flush()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert file.exists()
    assert Rendezvous("bus").neighbours() == {}
    assert not file.exists()


def test_whoever_stands_in_the_gate_too_long_is_walked_past() -> None:
    with Rendezvous("bus").gate(0.05), Rendezvous("bus").gate(0.05):
        pass


def test_a_folder_that_cannot_be_made_is_done_without(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file is in the way")
    place = Rendezvous("bus")
    with place.gate(1.0):
        assert place.neighbours() == {}
        place.enter("1a", "tcp/127.0.0.1:4001")
    place.leave()
