"""Spark behind a command: the terminal shows what it does, and its own words only if it fails."""

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
    """A session of Spark while the block runs, and the line that tells what is being done."""
    # What links Spark to Java logs the traceback of a Ctrl-C, by the root logger itself.
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.name != "root")
    logging.getLogger().addHandler(handler)
    # The line has a way of its own to the terminal, since what Spark starts takes over the usual.
    with (
        TemporaryFile() as complaints,
        os.fdopen(os.dup(2), "w", errors="backslashreplace") as terminal,
    ):
        has_started = False
        try:
            with Console(file=terminal, highlight=False).status("starting Spark") as status:
                from infobus.pipeline.jobs.session import session

                on_interrupt = signal.getsignal(signal.SIGINT)
                spark = session(name, master=master, complaints=complaints)
                has_started = True
                # Spark's own way to take Ctrl-C asks Java, which may be in the midst of an answer.
                signal.signal(signal.SIGINT, on_interrupt)
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
