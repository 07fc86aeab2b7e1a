"""Run Spark inside a command; its own output is shown only if it fails."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status

from infobus import BusError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def quiet_session(name: str, *, master: str = "local[*]") -> Iterator[tuple[SparkSession, Status]]:
    """A Spark session for the length of the block, and a status line for the terminal."""
    # On Ctrl-C, the link from Spark to Java logs a traceback, through the root logger itself.
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.name != "root")
    logging.getLogger().addHandler(handler)
    # The status line has its own descriptor, because the processes of Spark take over stderr.
    with (
        TemporaryFile() as complaints,
        os.fdopen(os.dup(2), "w", errors="backslashreplace") as terminal,
    ):
        has_started = False
        try:
            with Console(file=terminal, highlight=False).status("starting Spark") as status:
                from infobus.pipeline.jobs.session import session, while_java_runs

                on_interrupt = signal.getsignal(signal.SIGINT)
                spark = session(name, master=master, complaints=complaints)
                has_started = True
                # Spark's own handler for Ctrl-C calls Java, which may be busy with an answer.
                signal.signal(signal.SIGINT, on_interrupt)
                with while_java_runs():
                    try:
                        yield spark, status
                    finally:
                        spark.stop()
        except Exception as error:
            told = _told(error)
            if not (has_started and isinstance(told, BusError)):
                complaints.seek(0)
                terminal.write(complaints.read().decode(errors="replace"))
            if told is error:
                raise
            raise told from error


def _told(error: Exception) -> Exception:
    from infobus.pipeline.runner.spark_errors import unwrapped

    return error if isinstance(error, BusError) else unwrapped(error)
