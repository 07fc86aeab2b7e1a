"""What is kept is for its owner alone, whatever the umask; what was open to others is shut."""

import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import infobus
from infobus.bus.settings import ledgers_folder
from infobus.repository import Repository
from infobus.stores.journal.writer import JournalWriter
from infobus.stores.private import make_private_file, make_private_folder, repair_tree


@pytest.fixture(params=[0o000, 0o077], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """The modes of a folder and of all that is in it, if they are not as they should be."""
    return {
        str(path): oct(mode)
        for path in (folder, *folder.rglob("*"))
        if (mode := stat.S_IMODE(path.lstat().st_mode)) != (0o700 if path.is_dir() else 0o600)
    }


class Till(infobus.Service):
    def pay(self, amount: int) -> int:
        return amount


def use(home: Path) -> None:
    """Keep some of everything."""
    with infobus.connect("x", engine="memory", home=home) as bus:
        durable = bus.subscribe("a.>", durable="keeper")
        bus.serve("svc.till", Till())
        bus.service("svc.till", exactly_once=True).pay(5)
        bus.publish("a.b", {"card": 4711}, guaranteed=True)
        assert durable.receive(20).data["card"] == 4711


def test_a_home_is_private(tmp_path: Path) -> None:
    use(tmp_path / "home")
    assert list(ledgers_folder(tmp_path / "home", "x").glob("*.db"))
    assert modes(tmp_path / "home") == {}


def test_a_home_that_others_could_read_is_shut_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    use(home)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with caplog.at_level(logging.WARNING):
        use(home)
    assert modes(home) == {}
    (told,) = [line for line in caplog.messages if "open to other users" in line]
    assert str(home) in told


def test_a_file_in_it_that_others_could_read_is_shut_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    use(home)
    (ledger,) = ledgers_folder(home, "x").glob("*.db")
    ledger.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        use(home)
    assert modes(home) == {}
    assert any(str(ledger) in line for line in caplog.messages)


def test_a_folder_that_holds_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    tmp_path.chmod(0o755)
    use(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert modes(tmp_path / "buses") == {}


def test_a_journal_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "journal"
    JournalWriter.open(folder).close()
    assert modes(tmp_path / "new") == {}
    folder.chmod(0o755)
    (folder / "manifest.json").chmod(0o644)
    JournalWriter.open(folder).close()
    assert modes(folder) == {}


def test_a_repository_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "things.db"
    for _ in range(2):
        with Repository(f"sqlite:///{path}") as repository:
            repository.store([{"n": 1}])
            assert modes(tmp_path) == {}
        path.chmod(0o644)


def test_links_are_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    other.chmod(0o644)
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "link").symlink_to(other)
    repair_tree(folder)
    assert stat.S_IMODE(other.stat().st_mode) == 0o644


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_another_user_cannot_read_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # so that only what is made here keeps others out
    folder = tmp_path / "home"
    make_private_folder(folder)
    make_private_file(folder / "ledger.db")
    other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for path in (tmp_path, folder / "ledger.db"):
        seen = subprocess.run((*other, "ls", str(path)), capture_output=True)
        assert (seen.returncode == 0) == (path == tmp_path), seen.stderr
