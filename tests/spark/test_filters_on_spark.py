"""Filters handed to Spark: what it decides, what is left, and that both together agree."""

import math
import subprocess
import sys

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from infobus.filters import compile
from tests.filters import typed_rows

pytestmark = pytest.mark.timeout(300)  # a JVM that shares its cores takes long to start


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


INTEGER, REAL, TEXT, BOOL = T.LongType(), T.DoubleType(), T.StringType(), T.BooleanType()
SCHEMA = struct(
    a=INTEGER,
    b=REAL,
    n=INTEGER,
    s=TEXT,
    t=TEXT,
    flag=BOOL,
    when=T.TimestampType(),
    tags=T.ArrayType(TEXT),
    raw=T.BinaryType(),
    o=struct(a=REAL, s=TEXT, p=struct(flag=BOOL)),
)
# Other than SQLite, Spark keeps a NaN.
REALS = [*typed_rows.REALS, math.nan]
ROWS = typed_rows.rows(300, typed_rows.VALUES | {("b",): REALS, ("o", "a"): REALS})


def assert_agree(spark, schema, rows, filters):
    pushed = [filter.to_spark(schema) for filter in filters]
    answers = [
        F.lit(True) if one.condition is None else F.coalesce(one.condition, F.lit(False))
        for one in pushed
    ]
    columns = [answer.alias(f"answer{number}") for number, answer in enumerate(answers)]
    answered = spark.createDataFrame(rows, schema).select(*columns).collect()
    for row, is_let_through in zip(rows, answered, strict=True):
        for filter, one, passes in zip(filters, pushed, is_let_through, strict=True):
            decided = passes and (one.residual is None or one.residual.matches(row))
            assert decided == (filter.evaluate(row) is True), (str(filter), row)


@pytest.mark.slow
def test_condition_and_residual_together_agree_with_the_filter(spark):
    tests = typed_rows.tests()
    texts = [*tests, *map("!({})".format, tests), *typed_rows.joined_tests(50)]
    for start in range(0, len(texts), 200):  # each question to Spark takes its time
        assert_agree(spark, SCHEMA, ROWS, list(map(compile, texts[start : start + 200])))


EXACTLY = """
    s == "GM" && a > 40
    s in ["GM", "a"] || !exists(s)
    s >= "a" && !(s > "b")
    b > 1.5 && b < o.a
    !(b >= o.a) || nan(b)
    a < 9007199254740992.5
    begins-with(s, "a", "") && !ends-with(t, "b") && contains(o.s, "GM")
    wildcard(s, "*GM*", "a*")
    when > datetime('2026-11-15T10:00:00Z')
    flag ^^ o.p.flag
    "GM" in tags && !("gm" in tags)
    size(tags) > 1 || size(s) == 1 || size(raw) != 2
    datatype(a) == int32 && exists(o.p) && string(s)
    o == 5 || o.s > 5
""".strip().splitlines()

LEFT = """
    regex(s, "^a")
    fold-case(s) == "gm"
    a + 1 > n
    a > b
    wildcard(s, "a?b")
    isa("news.Story")
    unheard-of == 5
    o.unheard-of == 5
    tags.first == "GM"
    A == 5
    ends-with(s, "\ud800")
    flag ^^ o.p.flag ^^ s == "a"
""".strip().splitlines()


@pytest.mark.slow
def test_what_means_the_same_to_spark_is_left_to_it_and_nothing_else(spark):
    exactly = [compile(text) for text in EXACTLY]
    assert [filter.to_spark(SCHEMA).residual for filter in exactly] == [None] * len(exactly)
    left = [compile(text) for text in LEFT]
    assert [filter.to_spark(SCHEMA).residual for filter in left] == left
    assert_agree(spark, SCHEMA, ROWS, exactly + left)


@pytest.mark.slow
def test_the_widths_and_collations_of_columns_are_minded(spark):
    schema = struct(
        tiny=T.ByteType(),
        short=T.FloatType(),
        loose=T.StringType("UTF8_LCASE"),
        **{"dotted.name": TEXT, "tick`": INTEGER, "same": INTEGER, "SAME": INTEGER},
    )
    rows = [
        {"tiny": 1, "short": 0.5, "loose": "GM", "dotted.name": "x", "tick`": 3, "SAME": 1},
        {"tiny": -1, "short": 1.5, "loose": "gm", "dotted.name": "y", "tick`": 4, "same": 1},
    ]
    texts = """
        tiny > 1.0e6
        tiny < 40000 && tiny != 1
        short > 1.4
        loose == "gm"
        dotted\\.name == "x"
        tick` == 3
        same == 1
    """.strip().splitlines()
    filters = [compile(text) for text in texts]
    assert_agree(spark, schema, rows, filters)
    unsafe = {"loose", "same"}
    assert [filter.to_spark(schema).residual is not None for filter in filters] == [
        bool(filter.attributes & unsafe) for filter in filters
    ]


@pytest.mark.slow
def test_nothing_is_sure_of_typed_maps_but_that_they_are_missing(spark):
    typed = T.MapType(TEXT, struct(kind=TEXT, int=INTEGER, text=TEXT))
    schema = struct(value=typed, o=struct(value=typed), many=T.ArrayType(typed), a=INTEGER)
    texts = """
        value == 1
        int32(value)
        2 in value
        2 in many
        o.value matches("G")
        !exists(value)
        value.deep == 1
        size(value) == 2
    """.strip().splitlines()
    filters = [compile(text) for text in texts]
    assert [filter.to_spark(schema).residual for filter in filters] == filters
    there = {"": {"kind": "int", "int": 1, "text": None}}
    rows = [{"value": there, "o": {"value": there}, "many": [there]}, {"a": 1}]
    frame = spark.createDataFrame(rows, schema)
    pushed = [filter.to_spark(schema).condition for filter in filters]
    counts = [frame.count() if one is None else frame.where(one).count() for one in pushed]
    assert counts == [1, 1, 1, 1, 1, 2, 2, 1]


def test_pyspark_is_loaded_when_asked_for_and_missed_aloud():
    code = """if True:
        import sys
        from infobus import errors, filters
        filter = filters.compile("price > 40")
        assert "pyspark" not in sys.modules
        sys.modules["pyspark"] = None  # as if it were not installed
        try:
            filter.to_spark(None)
        except errors.UsageError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install '.[spark]'" in done.stdout, done.stderr
