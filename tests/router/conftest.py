"""Sites for each test, and a folder of their own for the sockets by which routers are asked."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.router.sites import Sites


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("INFOBUS_HOME", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="ib-") as folder:  # short: a socket's path is
        monkeypatch.setenv("INFOBUS_SOCKETS", folder)
        yield


@pytest.fixture
def sites() -> Iterator[Callable[[list[str]], Sites]]:
    made: list[Sites] = []

    def make(links: list[str], bytes_per_s: float | None = None) -> Sites:
        made.append(Sites(links, bytes_per_s))
        return made[-1]

    yield make
    for one in made:
        one.ends.close()
