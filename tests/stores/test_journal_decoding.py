"""Fewer things are decoded than a file holds, and what comes out is what Parquet says."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.stores.journal.parquet import BATCH_COUNT_MAX, decode_file, repeated
from tests.stores.journals import stories, write

TEXTS = st.none() | st.sampled_from(["", "a", "b", "æ" * 50]) | st.text(max_size=20)


def file_of(table: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


@st.composite
def tables(draw) -> pa.Table:
    count = draw(st.integers(0, 40))
    texts = st.lists(TEXTS, min_size=count, max_size=count)
    first = pa.array(draw(texts), pa.string())
    other = first if draw(st.booleans()) else pa.array(draw(texts), pa.string())
    pairs = [None if text is None else {"t": text} for text in draw(texts)]
    return pa.table(
        {
            "n": pa.array(range(count), pa.int64()),
            "first": first,
            "other": other,
            "bytes": first.cast(pa.binary()),
            "pairs": pa.array(pairs, pa.struct({"t": pa.string()})),
            "dotted.name": first,
        }
    )


@given(tables(), st.permutations(["n", "first", "other", "bytes", "pairs"]), st.data())
def test_it_is_what_parquet_reads(table, names, data):
    content = file_of(
        table,
        use_dictionary=data.draw(st.booleans() | st.just(["first"])),
        compression=data.draw(st.sampled_from(["zstd", "none"])),
        row_group_size=data.draw(st.sampled_from([7, 1000])),
    )
    some = names[: data.draw(st.integers(1, len(names)))]
    assert decode_file(content, some).equals(table.select(some))
    assert decode_file(content).equals(table)


def test_a_column_with_the_bytes_of_another_one_is_decoded_once():
    ids = pa.array([f"node:{n:x}" for n in range(1000)])
    table = decode_file(file_of(pa.table({"a": ids, "b": ids, "c": ids.cast(pa.binary())})))
    one, same, other = (table[name].chunk(0).buffers()[2].address for name in "abc")
    assert one == same != other


@pytest.mark.parametrize("count", [0, 1, BATCH_COUNT_MAX, BATCH_COUNT_MAX + 1, 35_000])
def test_a_repeated_text_is_there_as_often_as_it_shall_be(count):
    column = repeated("x", count)
    assert len(column) == count
    assert set(column.to_pylist()) <= {"x"}


READ = """
import sys
from pathlib import Path
from infobus.stores.journal.journal import Journal

events = Journal.open(Path(sys.argv[1])).select("journals.Story")
print(sum(batch.num_rows for batch in events.batches()), "pandas" in sys.modules)
"""


def test_reading_takes_no_time_to_load_pandas(tmp_path):
    write(tmp_path, stories(range(9)))
    said = subprocess.run(
        [sys.executable, "-c", READ, tmp_path], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["9", "False"]
