"""Types of programs that have gone, on the daemon's disk."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infobus.daemon.types import KeptTypes
from infobus.objects import codec, registry

DESCRIBE = """
import sys
from infobus import DataObject, type_of
from infobus.objects import codec
class {name}(DataObject):
    celsius: float
sys.stdout.buffer.write(codec.descriptors([type_of({name}).fingerprint])[0])
"""


@pytest.fixture
def learn() -> Iterator[object]:
    """Learn a type from another program; it is forgotten after the test."""
    before = dict(registry.learned)

    def learn(name: str) -> int:
        program = [sys.executable, "-c", DESCRIBE.format(name=name)]
        told = subprocess.run(program, capture_output=True, check=True).stdout
        return codec.learn(told)

    yield learn
    for fingerprint in set(registry.learned) - set(before):
        forget(fingerprint)


def forget(fingerprint: int) -> None:
    del registry.learned[fingerprint]
    registry.types.pop(fingerprint, None)


def test_what_was_learned_is_known_after_a_restart(tmp_path: Path, learn) -> None:
    known = learn("OvenOfTheDaemon")
    kept = KeptTypes(tmp_path / "types")
    kept.save()
    assert kept.count >= 1
    forget(known)
    assert not codec.known(known)
    assert KeptTypes(tmp_path / "types").load() >= 1
    assert codec.known(known)


def test_it_is_written_once(tmp_path: Path, learn) -> None:
    learn("OvenWrittenOnce")
    kept = KeptTypes(tmp_path / "types")
    kept.save()
    (tmp_path / "types").unlink()
    kept.save()
    assert not (tmp_path / "types").exists()


@pytest.mark.parametrize("content", [b"", b"no types", b"\x91\xc4\x03abc"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, learn, content: bytes) -> None:
    (tmp_path / "types").write_bytes(content)
    kept = KeptTypes(tmp_path / "types")
    assert kept.load() == 0
    learn("OvenAfterDamage")
    kept.save()
    assert KeptTypes(tmp_path / "types").load() >= 1


def test_a_disk_that_cannot_be_written_is_told_once(
    tmp_path: Path, learn, caplog: pytest.LogCaptureFixture
) -> None:
    learn("OvenWithoutRoom")
    kept = KeptTypes(tmp_path / "missing" / "types")
    kept.save()
    kept.save()
    assert [one for one in caplog.messages if "cannot be saved" in one] == caplog.messages
    assert len(caplog.messages) == 1
    (tmp_path / "missing").mkdir()
    kept.save()
    assert kept.count >= 1
