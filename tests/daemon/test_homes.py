"""The homes of a daemon: each has one keeper, and is this user's."""

import os
from pathlib import Path

import pytest

from infobus.daemon.homes import KeptHomes
from infobus.errors import StoreError, UsageError


def test_one_daemon_at_a_time_keeps_a_home(tmp_path: Path) -> None:
    one = KeptHomes([tmp_path / "a", tmp_path / "b", tmp_path / "a"], "bus")
    assert one.homes == (tmp_path / "a", tmp_path / "b")
    one.take("one")
    other = KeptHomes([tmp_path / "c", tmp_path / "b"], "bus")
    with pytest.raises(StoreError, match=f"process {os.getpid()} on host"):
        other.take("other")
    third = KeptHomes([tmp_path / "c"], "bus")
    third.take("third")  # who cannot have all keeps none
    third.release()
    one.release()
    one.release()
    other.take("other")
    other.release()


def test_each_bus_has_keepers_of_its_own(tmp_path: Path) -> None:
    one, other = KeptHomes([tmp_path], "bus"), KeptHomes([tmp_path], "other bus")
    one.take("one")
    other.take("other")
    one.release()
    other.release()


def test_a_home_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(UsageError, match="a daemon serves its own user"):
        KeptHomes([tmp_path], "bus").take("one")


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match="no daemon can keep it"):
        KeptHomes([tmp_path / "home"], "bus").take("one")


def test_what_a_home_keeps_is_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / "home" / "buses").mkdir(parents=True)
    (tmp_path / "home").chmod(0o755)
    kept = KeptHomes([tmp_path / "home"], "bus")
    kept.take("one")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    kept.release()
