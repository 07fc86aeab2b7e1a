"""A session of Spark, set up so that the pipeline works in it."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from infobus.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
_GET_JAVA = "on Debian and Ubuntu: apt-get install openjdk-17-jre-headless"
_SOCKET_FOLDER_MAX = 61
"""Characters that Spark allows for the name of the folder in which it makes Unix sockets."""
_QUICK_PYTHON = Path(__file__).parent / "data" / "python"


def session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    complaints: IO[bytes] | None = None,
) -> SparkSession:
    """The session of this process, in which `format("infobus")` is known.

    Args:
        name: What Spark calls it.
        master: Where it runs, if it is not running yet: `local[*]` is this machine, `sc://HOST`
            a server of Spark Connect.
        settings: Further settings of Spark.
        complaints: An open file for what Spark and its processes write to standard error.

    Raises:
        UsageError: Spark or Java is not installed, or Java does not start.
    """
    is_remote = master.startswith("sc://")
    if not is_remote and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise UsageError(f"Spark needs a Java runtime, and there is none; {_GET_JAVA}")
    from infobus.pipeline import register  # says what to install if there is no PySpark

    if os.environ.get("PYSPARK_PYTHON") in (None, str(_QUICK_PYTHON)):  # else it is the user's
        os.environ["PYSPARK_PYTHON"] = python_for(master)
    if master.startswith("local"):
        # Or Spark asks for the name of this host, which may be nobody's address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if is_remote else builder.master(master)
    ours = {key: value for key, value in _SETTINGS.items() if not is_remote or "sql" in key}
    if master.startswith("local"):
        ours |= _unix_sockets()
    for key, value in {**ours, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        with _complaining_to(complaints):
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        where = os.environ.get("JAVA_HOME") or shutil.which("java")
        raise UsageError(
            f"Spark could not start Java ({where}), or Java ended at once; what it said is above "
            f"or in the log. Spark needs Java 17 or newer; {_GET_JAVA}"
        ) from error
    if not is_remote:
        spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


@contextmanager
def _complaining_to(file: IO[bytes] | None) -> Iterator[None]:
    """Processes that are started meanwhile have this file as their standard error."""
    if file is None:
        yield
        return
    before = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@cache
def _unix_sockets() -> dict[str, str]:
    """Settings by which Spark and its Python processes on this machine talk by Unix sockets.

    By TCP, each task begins 40 ms late: Java sends its orders in two pieces and Nagle's algorithm
    keeps the second one until the first is acknowledged, for which Linux takes its time.
    """
    folder = tempfile.mkdtemp(prefix="infobus-")  # Spark leaves its sockets behind
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder) > _SOCKET_FOLDER_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }


def python_for(master: str) -> str:
    """The Python that workers of Spark shall run: on this machine, one that starts at once."""
    # To a Spark of the user's own belongs the PySpark in its zip file.
    is_own = "SPARK_HOME" in os.environ
    if is_own or not master.startswith("local") or not os.access(_QUICK_PYTHON, os.X_OK):
        return sys.executable
    os.environ["INFOBUS_SPARK_PYTHON"] = sys.executable
    return str(_QUICK_PYTHON)
