"""The bus as a Spark sink: executors stage rows, and the commit publishes them once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from infobus.bus.settings import load_settings
from infobus.errors import BusError, DeliveryError, UsageError
from infobus.pipeline.schema import arrow_schema
from infobus.pipeline.sink.ledger import SinkLedger
from infobus.pipeline.sink.publisher import StagedBatch, kind_of, subject_columns
from infobus.pipeline.source.options import flag
from infobus.stores.private import make_private_folder, private_opener

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_KNOWN = {
    name.lower(): name
    for name in (
        "type subject guaranteed query covers batch staging journal bus home connect listen "
        "checkpointLocation queryName path"
    ).split()
}


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The rows of one task, in a file."""

    path: str


@dataclass(frozen=True)
class SinkOptions:
    """The options of a query that publishes; `job` lacks what is known only at the commit."""

    job: StagedBatch
    staging: Path
    checkpoint: str | None

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType) -> SinkOptions:
        """Read the options given to `df.write` or `df.writeStream`.

        Raises:
            UsageError: An option is missing, unknown, or makes no sense.
        """
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name not in _KNOWN:
                raise UsageError(
                    f"the sink infobus has no option {name!r}; known are "
                    f"{', '.join(_KNOWN.values())}"
                )
        if not options.get("type"):
            raise UsageError("the sink infobus needs the option type: what its objects are called")
        subject = options.get("subject")
        if subject is None and "_subject" not in schema.names:
            raise UsageError(
                "the sink infobus needs subjects: a column _subject, or the option subject, such "
                "as alerts.{symbol}"
            )
        _check_columns(schema, subject)
        settings = load_settings(bus=options.get("bus"), home=options.get("home"))
        home = settings.home.absolute()
        query, covers = options.get("query", ""), options.get("covers")
        job = StagedBatch(
            query=f"{query}.{covers}" if query and covers else query,
            former=query if covers else None,
            batch=_number(options.get("batch", "0")),
            files=[],
            type=options["type"],
            subject=subject,
            guaranteed=flag("guaranteed", options.get("guaranteed"), False),
            bus=settings.bus,
            home=str(home),
            connect=_list(options.get("connect")),
            listen=_list(options.get("listen")),
            journal=options.get("journal"),
        )
        staging = Path(options.get("staging", home / "staging")).absolute()
        return cls(job, staging, options.get("checkpointlocation"))


def _check_columns(schema: StructType, subject: str | None) -> None:
    if subject is not None:
        subject_columns(subject, schema.names)
    for field in arrow_schema(schema):
        if field.name == "_headers" and not pa.types.is_map(field.type):
            raise UsageError(
                f"column _headers holds {field.type}: give it a map, such as "
                "create_map(lit('trace'), 'trace')"
            )
        if not field.name.startswith("_"):
            try:
                kind_of(field.type)
            except UsageError as error:
                raise UsageError(f"column {field.name}: {error}") from None


def _number(value: str) -> int:
    if not value.isdigit():
        raise UsageError(f"option batch={value!r}: expected a whole number, counted from 0")
    return int(value)


def _list(value: str | None) -> list[str]:
    return [] if not value else [one.strip() for one in value.split(",")]


def _stage(folder: Path, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Write rows to a file of their own; returning means that they are on disk."""
    path = folder / f"{uuid.uuid4().hex}.parquet"
    first = next(batches, None)
    if first is None:
        return Staged("")
    make_private_folder(folder)
    with open(path, "wb", opener=private_opener) as file:
        with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())
    return Staged(str(path))


def _files(messages: list[WriterCommitMessage | None]) -> list[str]:
    return [one.path for one in messages if isinstance(one, Staged) and one.path]


def _publish(job: StagedBatch) -> None:
    """Publish the job in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "infobus.pipeline.sink.publisher"],
        input=msgspec.json.encode(job),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        what = f"batch {job.batch} of {job.query} was not published: {_told(done)}"
        raise UsageError(what) if done.returncode == 2 else DeliveryError(what)


def _told(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return why a process has failed, as far as it reported that."""
    text = done.stderr.decode(errors="replace").strip()
    if "Traceback (most recent call last):" in text:
        return text.splitlines()[-1]
    return text or f"its process ended with {done.returncode}"


def _forget(job: StagedBatch) -> None:
    """Remove staged files, except those in a ledger: a later commit continues with them.

    Raises:
        BusError: Another process holds the ledger; the next batch that is published removes all.
    """
    assert job.folder is not None
    with SinkLedger(Path(job.home), job.bus, job.query, patience_s=0) as ledger:
        taken = [] if ledger.progress.is_done else ledger.progress.files
        for path in Path(job.folder).glob("*"):
            if str(path) not in taken:
                path.unlink(missing_ok=True)


def _folder(options: SinkOptions, *use: str) -> str:
    """Return the folder in which one use of the sink stages rows, also after a restart."""
    job = options.job
    text = "\0".join((platform.node(), job.home, job.bus, *use))
    return str(options.staging / hashlib.sha256(text.encode()).hexdigest()[:32])


class StreamSink(DataSourceStreamArrowWriter):
    """Publishes the micro-batches of a query, each row once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        checkpoint = options.checkpoint
        if checkpoint and not urlparse(checkpoint).scheme:
            checkpoint = str(Path(checkpoint).absolute())
        self._folder = _folder(options, "stream", checkpoint or options.job.query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        return _stage(Path(self._folder), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the batch, or the rest of one whose commit was killed."""
        _publish(msgspec.structs.replace(self._job(batchId), files=_files(messages)))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged rows, unless they were published in part."""
        with suppress(BusError):
            _forget(self._job(batchId))

    def _job(self, batch: int) -> StagedBatch:
        """Return the job of a batch.

        A new checkpoint is a new query, whatever its name: it counts its batches from 0 again. If
        the checkpoint cannot be read, the query is known by its name only.
        """
        job = msgspec.structs.replace(self._options.job, batch=batch, folder=self._folder)
        try:
            id = _query_id(self._options.checkpoint)
        except UsageError:
            if job.query:
                return job
            raise
        if not job.query:
            return msgspec.structs.replace(job, query=id, is_stream=True)
        return msgspec.structs.replace(
            job, query=f"{job.query}.{id}", former=job.query, is_stream=True
        )


class BatchSink(DataSourceArrowWriter):
    """Publishes a DataFrame; with the option `query`, once, however often it is written."""

    def __init__(self, options: SinkOptions) -> None:
        query = options.job.query or f"write-{uuid.uuid4().hex}"
        self._folder = _folder(options, "batch", query, str(options.job.batch))
        self._job = msgspec.structs.replace(options.job, query=query, folder=self._folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        return _stage(Path(self._folder), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks."""
        _publish(msgspec.structs.replace(self._job, files=_files(messages)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows, unless they were published in part."""
        with suppress(BusError):
            _forget(self._job)


def _query_id(checkpoint: str | None) -> str:
    """Return Spark's id of a query, from its checkpoint: a new checkpoint is a new query.

    Raises:
        UsageError: There is none that can be read here.
    """
    try:
        path = Path(unquote(urlparse(checkpoint or "").path)) / "metadata"
        return str(json.loads(path.read_text("utf-8"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"the sink cannot tell queries apart: no checkpoint can be read in {checkpoint!r}; "
            "name the query by the option query, and take another name with a new checkpoint"
        ) from error
