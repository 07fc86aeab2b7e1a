"""Decodes a segment's file into columns, with as little decoding as possible.

Strings that a file stores as numbers of a dictionary are looked up there all at once, which takes
half of the time that Arrow needs to copy them one by one. A column whose bytes equal those of
another column shares its result: the ids of objects mostly equal those of their events.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Container, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from infobus.errors import StoreError

ARRIVALS = b"infobus.arrivals"
"""In a merged file's metadata: when its parts were written, see `arrivals_in`."""
Arrivals = list[tuple[int, float]]
"""Of the parts of a file, in order: the last offset, and when it was written."""

BATCH_COUNT_MAX = 10_000
"""Rows of one batch: few enough to stay in the processor's cache while they are read."""

_LENGTH_BYTES = 4
"""What a text takes in a file beside its characters, unless it is in a dictionary."""


def decode_file(
    content: bytes,
    columns: list[str] | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
) -> pa.Table:
    """Return these columns of a Parquet file, or all of them.

    Row groups whose offsets are all before `start`, or not before `stop`, are left out.

    >>> sink = pa.BufferOutputStream()
    >>> pq.write_table(pa.table({"a": ["x", "y"], "b": ["x", "y"]}), sink)
    >>> decode_file(sink.getvalue().to_pybytes(), ["b", "a"]).to_pydict()
    {'b': ['x', 'y'], 'a': ['x', 'y']}
    """
    metadata = pq.read_metadata(pa.BufferReader(content))
    names = _top_level(metadata) if columns is None else columns
    found = [_decode_group(content, metadata, at, names) for at in _groups(metadata, start, stop)]
    if found:
        return found[0] if len(found) == 1 else pa.concat_tables(found)
    schema = metadata.schema.to_arrow_schema()
    return schema.empty_table().select(names)


def _groups(metadata: pq.FileMetaData, start: int | None, stop: int | None) -> list[int]:
    """Return the row groups that may hold offsets from `start` on, and before `stop`."""
    every = list(range(metadata.num_row_groups))
    if (start is None and stop is None) or len(every) < 2:
        return every
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    at = paths.index("_offset")
    held = []
    for group in every:
        limits = metadata.row_group(group).column(at).statistics
        if limits is not None and limits.has_min_max:
            if start is not None and limits.max < start:
                continue
            if stop is not None and limits.min >= stop:
                continue
        held.append(group)
    return held


def _decode_group(content: bytes, metadata: pq.FileMetaData, at: int, names: list[str]) -> pa.Table:
    plan = _plan(content, metadata, at, names)
    # Not `read_table`: it needs the dataset module, which takes longer to load than most files.
    source = pa.BufferReader(content)
    file = pq.ParquetFile(source, metadata=metadata, read_dictionary=plan.looked_up)
    asked = [name for name in names if name not in plan.twins]
    # Without threads: Spark reads as many files at once as there are processors.
    table = file.read_row_group(at, asked, use_threads=False)
    for name in plan.looked_up:
        place = table.schema.get_field_index(name)
        texts = table.schema.field(place).with_type(pa.string())
        table = table.set_column(place, texts, table.column(place).cast(pa.string()))
    for name, twin in plan.twins.items():
        table = table.append_column(table.schema.field(twin).with_name(name), table[twin])
    return table.select(names)


def arrivals_in(file: Path) -> Arrivals:
    """Return when the parts of a merged file were written; nothing of a file that was not merged.

    Raises:
        StoreError: It cannot be read.
    """
    try:
        found = pq.read_metadata(file).metadata or {}
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"segment {file} cannot be read: {error}", path=str(file)) from error
    return read_arrivals(found)


def read_arrivals(metadata: Mapping[bytes, bytes] | None) -> Arrivals:
    """Return what `written_arrivals` has put into a file's metadata."""
    text = (metadata or {}).get(ARRIVALS)
    if text is None:
        return []
    return msgspec.msgpack.decode(zlib.decompress(base64.b64decode(text)), type=Arrivals)


def written_arrivals(arrivals: Arrivals) -> dict[bytes, bytes]:
    """Return metadata for a file that is made of several, which were written at these times."""
    packed = zlib.compress(msgspec.msgpack.encode(arrivals))
    return {ARRIVALS: base64.b64encode(packed)}


def repeated(text: str, count: int) -> pa.ChunkedArray:
    """Return a column that has the same text in each row.

    >>> repeated("x", 12_000).unique().to_pylist()
    ['x']
    """
    block = _block(text)
    whole, rest = divmod(count, BATCH_COUNT_MAX)
    return pa.chunked_array([*[block] * whole, block.slice(0, rest)], pa.string())


@lru_cache(maxsize=64)
def _block(text: str) -> pa.Array:
    # Built from bytes, because `pa.array` and `pa.scalar` load pandas, which takes longer than
    # reading many files does.
    content = text.encode()
    offsets = pa.py_buffer(struct.pack("=2i", 0, len(content)))
    one = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(content))
    return pa.repeat(one[0], BATCH_COUNT_MAX)


class _Plan(Struct):
    looked_up: list[str] = field(default_factory=list)  # columns of strings
    twins: dict[str, str] = field(default_factory=dict)  # a column -> the column it equals


def _plan(content: bytes, metadata: pq.FileMetaData, number: int, names: Container[str]) -> _Plan:
    plan = _Plan()
    first: dict[tuple[object, ...], str] = {}
    group = metadata.row_group(number)
    for at in range(metadata.num_columns):
        chunk, column = group.column(at), metadata.schema.column(at)
        name = chunk.path_in_schema
        if name not in names or "." in name or column.logical_type.type != "STRING":
            continue
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        pages = content[start : start + chunk.total_compressed_size]
        # The other values that are needed to understand the pages.
        key = (pages, chunk.compression, chunk.physical_type, column.max_definition_level)
        twin = first.setdefault(key, name)
        if twin != name:
            plan.twins[name] = twin
        elif chunk.total_uncompressed_size < _LENGTH_BYTES * chunk.num_values:
            plan.looked_up.append(name)
    return plan


def _top_level(metadata: pq.FileMetaData) -> list[str]:
    names: list[str] = metadata.schema.to_arrow_schema().names
    return names
