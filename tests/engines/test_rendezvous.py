import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from infobus.engines.zenoh import rendezvous
from infobus.engines.zenoh.rendezvous import DaemonFile, Rendezvous, ShownDaemon, find_daemon


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The names of sockets must be short, which those of tmp_path need not be.
    with TemporaryDirectory(prefix="ib") as short:
        folder = Path(short) / "infobus"
        monkeypatch.setattr(rendezvous, "_folder", lambda bus: folder / bus)
        yield folder


def test_a_node_is_seen_by_others_from_entering_to_leaving() -> None:
    one, other = Rendezvous("bus"), Rendezvous("bus")
    one.enter("1a", "tcp/127.0.0.1:4001")
    (found,) = other.neighbours().values()
    assert (found.endpoint, found.pid) == ("tcp/127.0.0.1:4001", os.getpid())
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
file.write('{{"endpoint": "tcp/127.0.0.1:4001"}}')
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


def test_a_folder_that_cannot_be_made_holds_nobody_up(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file is in the way")
    place = Rendezvous("bus")
    with place.gate(1.0):
        assert place.neighbours() == {}
        with pytest.raises(OSError, match="not a folder"):
            place.enter("1a", "tcp/127.0.0.1:4001")
    place.leave()


def test_only_its_owner_may_enter_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        Rendezvous("bus").enter("1a", "tcp/127.0.0.1:4001")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "bus")]
    assert modes == [0o700, 0o700]
    assert stat.S_IMODE((folder / "bus" / "1a").stat().st_mode) == 0o600


def test_a_folder_that_was_open_to_others_is_shut(folder: Path) -> None:
    (folder / "bus").mkdir(parents=True)
    folder.chmod(0o755)
    Rendezvous("bus").prepare()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_that_somebody_has_put_there_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a folder"):
        Rendezvous("bus").prepare()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_user_is_not_entered(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with pytest.raises(PermissionError, match="another user"):
        Rendezvous("bus").prepare()


def test_a_path_that_is_too_long_for_a_socket_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rendezvous, "_folder", lambda bus: tmp_path / ("x" * 90) / bus)
    with pytest.raises(OSError, match="INFOBUS_SOCKETS"):
        Rendezvous("bus").prepare()


def test_a_node_whose_file_was_cleared_away_shows_itself_again(folder: Path) -> None:
    node = Rendezvous("bus")
    node.enter("1a", "tcp/127.0.0.1:4001")
    (folder / "bus" / "1a").unlink()
    node.stay()
    assert list(Rendezvous("bus").neighbours()) == ["1a"]
    node.leave()


def test_the_sockets_of_the_dead_are_removed(folder: Path) -> None:
    program = f"""
import os, zenoh, json
os.makedirs({str(folder / "bus")!r})
session = zenoh.open(zenoh.Config.from_json5(json.dumps({{
    "mode": "peer",
    "listen": {{"endpoints": ["unixsock-stream/{folder / "bus" / "1a.s"}"]}},
    "scouting": {{"multicast": {{"enabled": False}}}},
}})))
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    left = {path.name for path in (folder / "bus").iterdir()}
    assert left == {"1a.s", "1a.s.lock"}
    with Rendezvous("bus").gate(1.0):
        pass
    assert {path.name for path in (folder / "bus").iterdir()} == {"gate"}


SHOWN = ShownDaemon(
    node="host-1-ab",
    pid=1,
    bus="bus",
    version="1.0",
    wire=(1, 2),
    since=1.5,
    attach=("unixsock-stream//a/b.s",),
    endpoints=("tcp/0.0.0.0:7447",),
)


class TestTheDaemonOfAHost:
    def test_it_is_found_from_showing_itself_to_leaving(self) -> None:
        place = DaemonFile("bus")
        assert find_daemon("bus") is None
        assert place.claim()
        assert find_daemon("bus") is None  # it is not ready yet
        place.show(SHOWN)
        assert find_daemon("bus") == SHOWN
        assert find_daemon("other") is None
        assert Rendezvous("bus").neighbours() == {}  # it is no node without a file of its own
        place.leave()
        place.leave()
        assert find_daemon("bus") is None

    def test_who_opens_beside_one_that_is_about_to_begin_waits_for_it(self) -> None:
        """By itself it would be on no bus until that one is there."""
        place = DaemonFile("bus")
        assert place.claim()
        begins = threading.Timer(0.1, place.show, [SHOWN])
        begins.start()
        assert find_daemon("bus", patience_s=20.0) == SHOWN
        place.hide()
        assert find_daemon("bus", patience_s=20.0) is None  # nobody waits for one that ends
        place.leave()
        assert find_daemon("bus", patience_s=20.0) is None
        begins.join()

    def test_there_is_one_at_a_time(self) -> None:
        place, other = DaemonFile("bus"), DaemonFile("bus")
        assert place.claim()
        assert not other.claim(0.05)
        place.leave()
        assert other.claim()
        other.leave()

    def test_one_that_died_is_not_found_and_leaves_its_place(self, folder: Path) -> None:
        place = DaemonFile("bus")
        assert place.claim()
        place.show(SHOWN)
        place.abandon()  # as the system does when a process is killed
        assert (folder / "bus" / "daemon").read_bytes()
        assert find_daemon("bus") is None
        assert place.claim()
        assert find_daemon("bus") is None  # nor what the dead one had shown
        place.leave()

    def test_a_file_that_was_cleared_away_is_shown_again(self, folder: Path) -> None:
        place = DaemonFile("bus")
        assert place.claim()
        place.show(SHOWN)
        (folder / "bus" / "daemon").unlink()
        place.stay()
        assert find_daemon("bus") == SHOWN
        place.leave()

    def test_a_file_that_is_no_daemons_is_nobody(self, folder: Path) -> None:
        place = DaemonFile("bus")
        assert place.claim()
        (folder / "bus" / "daemon").write_bytes(b"{}")
        assert find_daemon("bus") is None
        place.leave()
