"""Sessions of Spark, as far as they can be looked at without one."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark.daemon
import pytest

from infobus.pipeline.jobs import session as sessions
from infobus.pipeline.jobs.session import UNIX_SOCKETS, python_for, sockets_for
from tests.bus.helpers import wait_until
from tests.spark.java import ENVIRONMENT, needs_java


def test_workers_here_run_the_pyspark_that_is_installed(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("INFOBUS_SPARK_PYTHON", "")  # so that it is put back
    python, installed = python_for("local[2]"), Path(pyspark.__file__)
    shipped = installed.parent / "python" / "lib" / "pyspark.zip"
    assert shipped.exists()
    given = {**os.environ, "PYTHONPATH": f"{shipped}{os.pathsep}{tmp_path}"}
    program = "import pyspark, sys; print(pyspark.__file__, *sys.argv[1:], *sys.path, sep='\\n')"
    said = subprocess.run(
        [python, "-c", program, "two words"], env=given, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said[:2] == [str(installed), "two words"]
    assert str(tmp_path) in said


def test_elsewhere_and_with_a_spark_of_ones_own_it_is_this_python(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert python_for("spark://127.0.0.1:7077") == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert python_for("local[*]") == sys.executable


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """A function that has temporary folders made in that one."""
    monkeypatch.chdir(tmp_path)

    def set_to(folder):
        monkeypatch.setattr("tempfile.tempdir", folder)
        sessions._socket_folder.cache_clear()

    yield set_to
    sessions._socket_folder.cache_clear()


def test_unix_sockets_are_for_this_machine_and_for_paths_that_the_system_takes(temporary):
    temporary(None)  # where they usually are
    here = sockets_for("local[*]")
    assert here.pop(UNIX_SOCKETS) == "true"
    (folder,) = map(Path, here.values())
    assert folder.is_absolute() and folder.stat().st_mode & 0o777 == 0o700
    assert sockets_for("spark://127.0.0.1:7077") == {UNIX_SOCKETS: "false"}
    folder.rmdir()
    long = Path("ünïcödé" * 6)  # in bytes, not in characters
    long.mkdir()
    temporary(str(long))
    assert sockets_for("local[*]") == {UNIX_SOCKETS: "false"}


def test_a_worker_whose_rows_spark_no_longer_needs_ends_without_a_word(monkeypatch):
    monkeypatch.syspath_prepend(Path(sessions.__file__).parent / "data")
    daemon = importlib.import_module(sessions._DAEMON)

    def broken(sock, authenticated):
        raise BrokenPipeError

    assert daemon._work is pyspark.daemon.worker
    monkeypatch.setattr(daemon, "_work", broken)
    assert daemon.worker(None, True) == 1  # another error is told, as before
    monkeypatch.setattr(daemon, "_work", lambda sock, authenticated: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        daemon.worker(None, True)


PROGRAM = """
from infobus.pipeline.jobs.session import session

def where(number):
    import os, pyspark, sys

    daemon = sys.modules["__main__"].__file__
    return pyspark.__file__, daemon, os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"]

spark = session("where", master="local[1]")
print(*spark.sparkContext.parallelize([1], 1).map(where).first())
spark.stop()
try:
    session("elsewhere", master="spark:")  # no cluster at all: what matters is left behind
except Exception:
    import os

    print(os.environ["PYSPARK_PYTHON"])
"""


@pytest.mark.timeout(300)  # a JVM that shares its cores takes long to start
@needs_java
def test_a_worker_of_a_session_runs_it_too_and_talks_by_sockets_that_go_with_it():
    given = {**os.environ, **ENVIRONMENT}
    for name in ("PYSPARK_PYTHON", "SPARK_HOME", "INFOBUS_SPARK_PYTHON"):
        given.pop(name, None)
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, check=True
    ).stdout
    installed, daemon, folder, elsewhere = said.split()
    assert Path(daemon).stem == sessions._DAEMON
    assert (installed, elsewhere) == (pyspark.__file__, sys.executable)  # only here is our script
    assert Path(folder).name.startswith("infobus-")
    wait_until(lambda: not Path(folder).exists())
