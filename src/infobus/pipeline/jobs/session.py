"""Opens a Spark session that is set up for the pipeline."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from infobus.errors import BusError, DeliveryError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("infobus")

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
_GET_JAVA = "on Debian and Ubuntu: apt-get install openjdk-17-jre-headless"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Whether Spark and its Python processes talk by Unix sockets; by TCP otherwise."""
_IS_NOISE = re.compile(
    r"^\s*(at .*)?$|\b(INFO|WARN|WARNING)\b|^To adjust logging level|^Setting default log level"
    r"|^Using Spark's default log4j profile"
)
_SOCKET_FOLDER_BYTES_MAX = 61
"""What Spark allows for the path of the folder in which it makes them."""
_QUICK_PYTHON = Path(__file__).parent / "data" / "python"
_DAEMON = "infobus_spark_daemon"
"""A module beside it."""


def session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    complaints: IO[bytes] | None = None,
) -> SparkSession:
    """Return the session of this process, in which `format("infobus")` is known.

    Args:
        name: The name that Spark shows.
        master: Where it runs, if it is not running yet: `local[*]` is this machine, `sc://HOST`
            a Spark Connect server.
        settings: Further settings of Spark.
        complaints: A file, open to read and write, that is the standard error of Spark and its
            processes.

    Raises:
        UsageError: Spark or Java is not installed, or Java does not start.
    """
    is_remote, is_local = master.startswith("sc://"), master.startswith("local")
    if not is_remote and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise UsageError(f"Spark needs a Java runtime, and there is none; {_GET_JAVA}")
    from infobus.pipeline import register  # says what to install if PySpark is missing

    if os.environ.get("PYSPARK_PYTHON") in (None, str(_QUICK_PYTHON)):  # else the user chose it
        os.environ["PYSPARK_PYTHON"] = python_for(master)
    if is_local:
        # Otherwise Spark resolves the name of this host, which may have no address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ours = {key: value for key, value in _SETTINGS.items() if not is_remote or "sql" in key}
    if not is_remote:
        ours |= sockets_for(master)
    if os.environ["PYSPARK_PYTHON"] == str(_QUICK_PYTHON):
        ours |= {"spark.python.daemon.module": _DAEMON}
    where = {"spark.remote" if is_remote else "spark.master": master, "spark.app.name": name}
    spark = _started({**where, **ours, **(settings or {})}, complaints)
    if not is_remote:
        spark.sparkContext.setLogLevel("ERROR")
    if is_local:
        _remove_when_java_ends(spark, _socket_folder())
    register(spark)
    return spark


def _started(settings: Mapping[str, str], complaints: IO[bytes] | None) -> SparkSession:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _complaining_to(complaints):
            if "spark.remote" not in settings:
                _start_java(settings)
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        shutil.rmtree(_socket_folder())  # there is no Java to do it
        _socket_folder.cache_clear()
        where = os.environ.get("JAVA_HOME") or shutil.which("java")
        raise UsageError(
            f"Spark did not start: {_last_words(complaints)}. If it is for Java ({where}), Spark "
            f"needs 17 or newer; {_GET_JAVA}"
        ) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise DeliveryError(
            f"Java has ended while Spark was starting: {_last_words(complaints)}"
        ) from error


_launched: list[Any] = []
"""The Java that was started here, if any; Spark uses it for all sessions."""


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Java, unless it runs, in a process group of its own.

    A signal to the group of this process then reaches this process only, which ends Spark when its
    work is done. Java ends with this process, however that ends: it holds a pipe.
    """
    from pyspark import SparkConf, SparkContext, accumulators, java_gateway

    if SparkContext._jvm is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    launch: Any = java_gateway.launch_gateway
    _launched[:] = [launch(conf, {"start_new_session": True})]
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _lose  # type: ignore[assignment,method-assign]
    SparkContext(conf=conf, gateway=_launched[0])


def _lose(*_: object) -> None:
    """Note that Java has closed a connection: Spark's own way is to print a traceback."""
    log.debug("lost a connection of Spark", exc_info=True)


@contextmanager
def while_java_runs(log: Path | None = None) -> Iterator[None]:
    """Within it, an error that comes from the end of Java is told in one sentence.

    Raises:
        DeliveryError: Java has ended before its time.
    """
    # The link to Java logs a traceback for each answer that does not come, by the root logger.
    root = logging.getLogger()
    root.addFilter(_is_ours)
    try:
        yield
    except Exception as error:
        if isinstance(error, BusError) or not _is_java_gone():
            raise
        where = "" if log is None else f"; {log} may say why"
        raise DeliveryError(
            f"Java, in which Spark runs, has ended: it was killed, or had no memory left{where}. "
            "Start again; what has a checkpoint goes on from there"
        ) from error
    finally:
        root.removeFilter(_is_ours)


def _is_ours(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _is_java_gone() -> bool:
    if not _launched:
        return False
    try:
        _launched[0].proc.wait(5.0)  # its sockets close a moment before it is gone
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def _complaining_to(file: IO[bytes] | None) -> Iterator[None]:
    """Give this file to processes that are started meanwhile as their standard error."""
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


def _last_words(complaints: IO[bytes] | None) -> str:
    """Return the last message of Java, or of the script that should start it."""
    if complaints is None:
        return "what it said is above"
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").splitlines()
    said = [line.strip(" \t.") for line in lines if not _IS_NOISE.search(line)]
    return "; ".join(said[-3:]) or "it said nothing"


def sockets_for(master: str) -> dict[str, str]:
    """Return settings by which Spark talks to its Python processes: here by Unix sockets.

    Over TCP, each task begins 40 ms late: Java sends its orders in two pieces and Nagle's algorithm
    delays the second one until the first is acknowledged, which Linux does late.
    """
    if master.startswith("local"):
        folder = _socket_folder()
        if len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES_MAX:
            return {UNIX_SOCKETS: "true", "spark.python.unix.domain.socket.dir": folder}
    # Stated explicitly, because Java remembers the settings of an earlier session.
    return {UNIX_SOCKETS: "false"}


@cache
def _socket_folder() -> str:
    return os.path.abspath(tempfile.mkdtemp(prefix="infobus-"))


def _remove_when_java_ends(spark: SparkSession, folder: str) -> None:
    """Remove the sockets that Spark leaves behind, when Java ends, soon after this process."""
    jvm: Any = spark.sparkContext._jvm
    hooks = jvm.org.apache.spark.util.ShutdownHookManager
    hooks.registerShutdownDeleteDir(jvm.java.io.File(folder))


def python_for(master: str) -> str:
    """Return the Python that Spark's workers run: on this machine, one that starts quickly."""
    # A Spark installation of the user's own needs the PySpark in its zip file.
    is_own = "SPARK_HOME" in os.environ
    if is_own or not master.startswith("local") or not os.access(_QUICK_PYTHON, os.X_OK):
        return sys.executable
    os.environ["INFOBUS_SPARK_PYTHON"] = sys.executable
    return str(_QUICK_PYTHON)
