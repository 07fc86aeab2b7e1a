"""What a process is told that can open no more files."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infobus.errors import DeliveryError
from infobus.open_files import open_files_needed

_PROGRAM = """
import os, resource, sys
import infobus

bus = infobus.connect("full", engine="memory", home=sys.argv[1])
events = bus.subscribe("a.>")
held = []
limit = len(os.listdir("/dev/fd")) + 8
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass

def tried(what):
    try:
        what()
    except infobus.DeliveryError as error:
        return error
    raise AssertionError("nothing was raised")

tries = {
    "plain": lambda: bus.publish("a.b", {"n": 1}),
    "guaranteed": lambda: bus.publish("a.b", {"n": 2}, guaranteed=True),
    "service": lambda: bus.service("a.svc"),
}
told = {name: tried(what) for name, what in tries.items()}
for one in held:
    os.close(one)
for name, error in told.items():
    print(name, error.retry_is_safe, error)
for what in tries.values():
    what()
print([events.receive(5.0).data["n"] for _ in range(2)])
bus.close()
"""


@pytest.mark.world
def test_without_a_file_to_open_nothing_is_accepted_and_trying_again_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    *told, received = done.stdout.splitlines()
    assert [line.split()[:2] for line in told] == [
        ["plain", "True"],
        ["guaranteed", "True"],
        ["service", "True"],
    ]
    assert all("raise the limit (ulimit -n)" in line for line in told)
    assert received == "[1, 2]"


def test_a_library_that_cannot_be_loaded_for_want_of_a_file_is_told_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_nothing(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    @open_files_needed()
    def load() -> None:
        raise ImportError("libx.so: cannot open shared object file")

    with pytest.raises(ImportError):
        load()
    monkeypatch.setattr(os, "open", open_nothing)
    with pytest.raises(DeliveryError, match="nothing was done"):
        load()


def test_other_errors_stay_what_they_are() -> None:
    @open_files_needed()
    def read() -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")

    with pytest.raises(FileNotFoundError):
        read()
