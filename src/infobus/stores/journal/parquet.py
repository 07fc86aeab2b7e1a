"""Decodes a segment's file into columns, with as little decoding as possible.

Strings that a file stores as numbers of a dictionary are looked up there all at once, which takes
half of the time that Arrow needs to copy them one by one. A column whose bytes equal those of
another column shares its result: the ids of objects mostly equal those of their events.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

BATCH_COUNT_MAX = 10_000
"""Rows of one batch: few enough to stay near the processor of whoever goes over them."""

_LENGTH_BYTES = 4
"""What a text takes in a file beside its characters, unless it is in a dictionary."""


def decode_file(content: bytes, columns: list[str] | None = None) -> pa.Table:
    """Return these columns of a Parquet file, or all of them.

    >>> sink = pa.BufferOutputStream()
    >>> pq.write_table(pa.table({"a": ["x", "y"], "b": ["x", "y"]}), sink)
    >>> decode_file(sink.getvalue().to_pybytes(), ["b", "a"]).to_pydict()
    {'b': ['x', 'y'], 'a': ['x', 'y']}
    """
    source = pa.BufferReader(content)
    metadata = pq.read_metadata(source)
    names = _top_level(metadata) if columns is None else columns
    plan = _plan(content, metadata, names)
    # Not `read_table`: it needs the dataset module, which takes longer to load than most files.
    file = pq.ParquetFile(source, metadata=metadata, read_dictionary=plan.looked_up)
    # Without threads: Spark reads as many files at once as there are processors.
    table = file.read([name for name in names if name not in plan.twins], use_threads=False)
    for name in plan.looked_up:
        at = table.schema.get_field_index(name)
        texts = table.schema.field(at).with_type(pa.string())
        table = table.set_column(at, texts, table.column(at).cast(pa.string()))
    for name, twin in plan.twins.items():
        table = table.append_column(table.schema.field(twin).with_name(name), table[twin])
    return table.select(names)


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


def _plan(content: bytes, metadata: pq.FileMetaData, names: Container[str]) -> _Plan:
    plan = _Plan()
    if metadata.num_row_groups != 1:
        return plan
    first: dict[tuple[object, ...], str] = {}
    group = metadata.row_group(0)
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
