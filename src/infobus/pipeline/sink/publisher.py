"""Publishes the staged rows of one batch: a program that the sink's commit runs.

Spark commits in a fork, where no bus may be used. So each commit passes its batch to a process of
its own, `python -m infobus.pipeline.sink.publisher`, and waits for it to succeed.
"""

from __future__ import annotations

import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

import infobus
from infobus import BusError, DataObject, UsageError, define_type
from infobus.filters.language.values import attributes_of
from infobus.headers import Headers, decode, encode
from infobus.objects import find_type, identify
from infobus.objects.classes import class_for
from infobus.pipeline.sink.ledger import SinkLedger, SinkProgress, ledger_file
from infobus.stores.journal.journal import Journal
from infobus.stores.journal.schemas import word
from infobus.stores.journal.typed_maps import FIELD_OF

CHUNK_COUNT = 1_000
"""Rows that are published at one stroke."""


class StagedBatch(Struct, kw_only=True):
    """A batch to be published: its rows, their type and subject, and the bus."""

    query: str
    batch: int
    files: list[str]
    type: str
    subject: str | None
    guaranteed: bool
    bus: str
    home: str
    connect: list[str]
    listen: list[str]
    journal: str | None
    is_stream: bool = False
    """The query is that of one checkpoint: its last batch, repeated, is the same one. Elsewhere
    the rows must be looked at."""
    former: str | None = None
    """What older versions call it in their ledgers: without its checkpoint, or what it covers."""
    folder: str | None = None
    """Where this query stages its rows, and nobody else."""


def publish_batch(job: StagedBatch) -> int:
    """Publish the rows of a batch that were not published yet; return how many.

    Raises:
        UsageError: A row does not fit the type, its subject is invalid, or other rows may have
            been published as this batch before; nothing was published.
        StoreCorrupt: The rows of a batch that was published in part are gone.
        BusError: The bus could not accept everything; the same job continues where it ended.
    """
    with SinkLedger(Path(job.home), job.bus, job.query) as ledger:
        if job.former is not None and ledger.progress.batch < 0:
            _take_over(job, job.former, ledger)
        progress = ledger.progress
        if job.batch < progress.batch or (job.batch == progress.batch and not job.is_stream):
            _check_same(job, progress)
        published = 0
        if job.batch > progress.batch:
            # Report problems with a row before any row is published.
            digest, given_up = _digest(_events(job, job.files)), progress.files
            progress.begin(job.query, job.batch, job.files, digest)
            ledger.save()
            _clear(given_up)
        if job.batch == progress.batch and not progress.is_done:
            ledger.check_staged()
            ledger.resolve()
            published = _publish_rest(job, ledger)
            progress.is_done = True
            ledger.save()
            _clear(progress.files)
        _clear(job.files)
        if job.folder is not None and progress.is_done:
            # The query's tasks have ended, so all remaining files belong to killed
            # tasks.
            shutil.rmtree(job.folder, ignore_errors=True)
        return published


def _take_over(job: StagedBatch, former: str, ledger: SinkLedger) -> None:
    """Continue with the ledger under the former name, if it holds this batch.

    A stream that arrives with its first batch has a new checkpoint, unless the rows are the same;
    one that arrives with a later batch has been here before.
    """
    home = Path(job.home)
    if not ledger_file(home, job.bus, former).exists():
        return
    with SinkLedger(home, job.bus, former) as old:
        found = old.progress
        if job.is_stream and job.batch == found.batch + 1 and found.is_done:
            old.remove()
            return
        if job.is_stream and job.batch != found.batch:
            return
        is_first = not job.is_stream or job.batch == 0
        if is_first and found.digest != _digest(_events(job, job.files)):
            return
        old.resolve()
        ledger.progress = msgspec.structs.replace(found, query=job.query, batch=job.batch)
        ledger.save()
        old.remove()


def _check_same(job: StagedBatch, progress: SinkProgress) -> None:
    """Check that rows that are written again are those that were written before."""
    is_last = job.batch == progress.batch
    known = progress.digest if is_last else progress.digests.get(job.batch)
    if (is_last and known is None) or known == _digest(_events(job, job.files)):
        return
    _clear(job.files)
    before = (
        f"has written other rows as batch {job.batch} before"
        if known is not None
        else f"is at batch {progress.batch}, and what it wrote as batch {job.batch} is not known"
    )
    another = (
        "begin with a new checkpoint"
        if job.is_stream
        else "name another query, or say that this is another batch by the option batch, such as "
        f"{progress.batch + 1}"
    )
    raise UsageError(
        f"the query {job.query!r} {before}; these rows would be taken for the same: {another}"
    )


def _digest(events: Iterable[Row]) -> int:
    """Return a number that is the same for the same rows, in any order."""
    return sum(
        zlib.crc32(f"{subject}\0{attributes_of(obj)!r}{headers or ''}".encode())
        for subject, obj, headers in events
    )


def _clear(files: list[str]) -> None:
    for path in files:
        Path(path).unlink(missing_ok=True)


def _publish_rest(job: StagedBatch, ledger: SinkLedger) -> int:
    progress = ledger.progress
    rest = islice(_events(job, progress.files), progress.next, None)
    published = 0
    where = {"connect": job.connect or None, "listen": job.listen or None}
    with infobus.connect(job.bus, home=job.home, **where) as bus:  # type: ignore[arg-type]
        while chunk := list(islice(rest, CHUNK_COUNT)):
            for ordinal, (_, obj, _) in enumerate(chunk, progress.next):
                identify(obj, progress.id_of(ordinal))
            # Without headers, in the form that is published fastest.
            events = chunk if any(told for _, _, told in chunk) else [row[:2] for row in chunk]
            if job.guaranteed:
                ledger.intend(len(chunk))
                bus.publish_many(events, guaranteed=True)
                ledger.settle(len(chunk))
            else:
                # Reliable events are delivered at most once across a crash, here as
                # everywhere.
                ledger.settle(len(chunk))
                bus.publish_many(events)
            published += len(chunk)
    return published


Row = tuple[str, DataObject, Headers]
"""A row of a batch: its subject, its object, its headers."""


def _events(job: StagedBatch, files: list[str]) -> Iterator[Row]:
    """Return the rows of staged files in order."""
    cls: type[DataObject] | None = None
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches():
            cls = cls or _class(job, batch.schema)
            names = [name for name in batch.schema.names if not name.startswith("_")]
            readers = [_reader(batch.schema.field(name).type) for name in names]
            for row in batch.to_pylist():
                subject = row.get("_subject") if job.subject is None else _subject(job, row)
                values = zip(names, readers, strict=True)
                given = {name: read(row[name]) for name, read in values if row[name] is not None}
                if not isinstance(subject, str):
                    raise UsageError(f"a row has no subject: {given!r:.200}")
                infobus.subjects.check_publishable(subject)
                yield subject, cls(**given), headers_of(row.get("_headers"))


def headers_of(told: Iterable[tuple[str, Any]] | None) -> Headers:
    """Return the headers in a column `_headers`: a map to texts, numbers, ..., or a typed map.

    >>> headers_of([("attempt", 2), ("trace", {"kind": "str", "text": "4bf92f"})])
    Headers({'attempt': 2, 'trace': '4bf92f'})

    Raises:
        BadValue: They cannot be sent.
    """
    given = {
        name: value.get(FIELD_OF.get(str(value.get("kind")), "")) if type(value) is dict else value
        for name, value in told or ()
    }
    return decode(encode({name: value for name, value in given.items() if value is not None}))


def _subject(job: StagedBatch, row: dict[str, Any]) -> str | None:
    """Return the subject of a row; None if a column that is a part of it has no value."""
    assert job.subject is not None
    columns = subject_columns(job.subject, row)
    return None if any(row[name] is None for name in columns) else job.subject.format_map(row)


def subject_columns(subject: str, columns: Iterable[str]) -> list[str]:
    """Return the columns in the braces of a subject.

    >>> subject_columns("alerts.{symbol}", ["symbol", "price"])
    ['symbol']

    Raises:
        UsageError: There is something else in braces, or a brace alone.
    """
    known = list(columns)
    try:
        parts = [part[1:] for part in Formatter().parse(subject) if part[1] is not None]
    except ValueError as error:
        raise UsageError(f"option subject={subject!r}: {error}") from error
    for part in parts:
        if part[0] not in known or part[1:] != ("", None):
            raise UsageError(
                f"option subject={subject!r}: columns stand in braces, such as alerts.{{symbol}}, "
                f"and there are {', '.join(known)}"
            )
    return [str(name) for name, *_ in parts]


def _class(job: StagedBatch, schema: pa.Schema) -> type[DataObject]:
    """Return the class of the type known by its name, or else one made from the columns."""
    if job.journal is not None:
        Journal.open(job.journal).types()  # this learns them
    known = find_type(job.type)
    if known is not None and (cls := class_for(known.fingerprint)) is not None:
        return cls
    columns = (field for field in schema if not field.name.startswith("_"))
    return define_type(job.type, [], {one.name: (kind_of(one.type), None) for one in columns})


def kind_of(type_: pa.DataType) -> str:
    """Return the kind of an attribute that holds the values of a column, or nothing.

    >>> kind_of(pa.list_(pa.int32()))
    'list[int] | None'

    Raises:
        UsageError: No kind does.
    """
    return f"{_inner_kind(type_)} | None"


def _inner_kind(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"list[{_inner_kind(type_.value_type)}]"
    if pa.types.is_map(type_) and pa.types.is_string(type_.key_type):
        return f"dict[str, {_inner_kind(type_.item_type)}]"
    if pa.types.is_integer(type_):
        return "int"
    if pa.types.is_floating(type_):
        return "float"
    if pa.types.is_timestamp(type_):
        return "datetime"
    if pa.types.is_nested(type_) or pa.types.is_null(type_):
        return "any"
    try:
        return word(type_)
    except KeyError:
        raise UsageError(
            f"objects hold no values of {type_}: cast the column, such as to timestamp, double or "
            "string"
        ) from None


def _reader(type_: pa.DataType) -> Any:
    """Return a function that converts Arrow's value of a column to an attribute's value."""
    if pa.types.is_map(type_):
        read = _reader(type_.item_type)
        return lambda value: {key: None if one is None else read(one) for key, one in value}
    if pa.types.is_list(type_):
        read = _reader(type_.value_type)
        return lambda value: [None if one is None else read(one) for one in value]
    return lambda value: value


def main() -> None:
    """Publish the job on standard input; print the number of rows, or what failed."""
    try:
        published = publish_batch(msgspec.json.decode(sys.stdin.buffer.read(), type=StagedBatch))
    except BusError as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    print(published)


if __name__ == "__main__":
    main()
