"""Filters handed to a database: what it decides, what is left, and that both together agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from sqlalchemy.dialects import postgresql

from infobus.filters import compile
from infobus.filters.language.values import read
from tests.filters import strategies, typed_rows

INTEGER, REAL, TEXT, BOOL = sa.BigInteger(), sa.Double(), sa.Text(), sa.Boolean()
TYPES = {
    "a": INTEGER,
    "b": REAL,
    "n": INTEGER,
    "s": TEXT,
    "t": TEXT,
    "flag": BOOL,
    "when": sa.DateTime(timezone=True),
    "raw": sa.LargeBinary(),
    "o.a": REAL,
    "o.s": TEXT,
    "o.p.flag": BOOL,
}
TABLE = sa.Table(
    "rows",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    *(sa.Column(name.replace(".", "_"), type_) for name, type_ in TYPES.items()),
)
COLUMNS = {name: TABLE.c[name.replace(".", "_")] for name in TYPES}
ROWS = typed_rows.rows(300)


def columns_of(row):
    return {COLUMNS[name].name: read(row, tuple(name.split("."))) for name in TYPES}


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.world)]
)
def database(request):
    """A connection to a database that holds the rows, as far as it can hold them, and these."""
    is_sqlite = request.param == "sqlite"
    engine = sa.create_engine("sqlite://" if is_sqlite else request.getfixturevalue("postgres"))
    rows = {
        id: row
        for id, row in enumerate(ROWS)
        if is_sqlite or not any("\0" in str(value) for value in columns_of(row).values())
    }
    assert len(rows) > len(ROWS) / 2
    with engine.connect() as connection:
        TABLE.create(connection)
        connection.execute(
            TABLE.insert(), [columns_of(row) | {"id": id} for id, row in rows.items()]
        )
        yield connection, rows
        connection.rollback()
    engine.dispose()


def shown(condition: sa.ColumnElement[bool]) -> str:
    written = condition.compile(
        dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}
    )
    return str(written).replace("rows.", "")


def assert_agrees(database, filter):
    pushed = filter.to_sql(COLUMNS)
    query = sa.select(TABLE.c.id)
    if pushed.condition is not None:
        query = query.where(pushed.condition)
        assert str(query.compile(dialect=postgresql.dialect()))  # it can be said there, too
    connection, rows = database
    selected = set(connection.execute(query).scalars())
    for id, row in rows.items():
        decided = id in selected and (pushed.residual is None or pushed.residual.matches(row))
        assert decided == (filter.evaluate(row) is True), (str(filter), row)


def test_condition_and_residual_together_agree_with_every_test_and_its_opposite(database):
    for text in typed_rows.tests():
        assert_agrees(database, compile(text))
        assert_agrees(database, compile(f"!({text})"))


def test_condition_and_residual_together_agree_with_joined_tests(database):
    for text in typed_rows.joined_tests(300):
        assert_agrees(database, compile(text))


@settings(max_examples=200)
@given(strategies.filters())
def test_condition_and_residual_together_agree_with_any_filter(database, filter):
    assert_agrees(database, filter)


EXACTLY = {
    'symbol == "GMC"': "symbol = 'GMC'",
    'symbol != "GMC" && price > 40': "symbol != 'GMC' AND price > 40",
    'symbol in ["GMC", "IBM"]': "symbol IN ('GMC', 'IBM')",
    '!(symbol == "GMC" || symbol == "IBM")': "(symbol NOT IN ('GMC', 'IBM'))",
    "price >= 40.5": "price > 40",
    "price == 40.5": "false",
    "price < 1.0e30": "price <= 9223372036854775807",
    "price < bid": "price < bid",
    "!(price < bid)": "price >= bid",
    "alert": "alert = true",
    "alert == false || !exists(price)": "alert = false OR price IS NULL",
    "require(price)": "price IS NOT NULL",
    "rate <= 0.5": "rate <= 0.5",
    "rate < 9007199254740993": "rate <= 9007199254740992.0",
    'begins-with(symbol, "GM")': "substr(symbol, 1, 2) = 'GM'",
    '!contains(symbol, "GM")': "replace(symbol, 'GM', '') = symbol",
    'wildcard(symbol, "GM*", "*C*")': (
        "replace(symbol, 'C', '') != symbol OR substr(symbol, 1, 2) = 'GM'"
    ),
    "datatype(price) == int32": "price >= -2147483648 AND price <= 2147483647",
    "string(symbol)": "symbol IS NOT NULL",
    "price == 5 ^^ alert": ("price = 5 AND alert = false OR price != 5 AND alert = true"),
    "symbol > 5": "false",
}
PRICES = {
    "symbol": sa.column("symbol", sa.String(8)),
    "price": sa.column("price", sa.Integer()),
    "bid": sa.column("bid", sa.SmallInteger()),
    "rate": sa.column("rate", sa.Float()),
    "alert": sa.column("alert", sa.Boolean()),
}


@pytest.mark.parametrize(("text", "condition"), EXACTLY.items())
def test_what_means_the_same_everywhere_is_left_to_the_database(text, condition):
    pushed = compile(text).to_sql(PRICES)
    assert (shown(pushed.condition), pushed.residual) == (condition, None)


PARTLY = {
    # filter: what the database is asked, and what is left
    'regex(symbol, "^GM")': ("symbol IS NOT NULL", 'regex(symbol, "^GM")'),
    'price > 40 && fold-case(symbol) == "gmc"': (
        "price > 40 AND symbol IS NOT NULL",
        'fold-case(symbol) == "gmc"',
    ),
    'price > 40 || regex(symbol, "^GM")': (
        "price > 40 OR symbol IS NOT NULL",
        'price > 40 || regex(symbol, "^GM")',
    ),
    '!(price > 40 || contains(symbol, "G") && price + 1 > bid)': (
        "price <= 40 AND (replace(symbol, 'G', '') = symbol"
        " OR price IS NOT NULL AND bid IS NOT NULL)",
        '!(price > 40 || contains(symbol, "G") && price + 1 > bid)',
    ),
    'ends-with(symbol, "C")': ("replace(symbol, 'C', '') != symbol", 'ends-with(symbol, "C")'),
    '!ends-with(symbol, "C")': ("symbol IS NOT NULL", '!ends-with(symbol, "C")'),
    'wildcard(symbol, "G?C")': ("symbol IS NOT NULL", 'wildcard(symbol, "G?C")'),
    'symbol < "H"': ("symbol IS NOT NULL", 'symbol < "H"'),
    'symbol == "G\0"': ("symbol IS NOT NULL", 'symbol == "G\0"'),
    "size(symbol) > 2": ("symbol IS NOT NULL", "size(symbol) > 2"),
    "price > rate": ("price IS NOT NULL AND rate IS NOT NULL", "price > rate"),
    "price == 5 ^^ alert ^^ bid == 3": (
        "price IS NOT NULL AND alert IS NOT NULL AND bid IS NOT NULL",
        "price == 5 ^^ alert ^^ bid == 3",
    ),
    'price > 40 && isa("news.Story")': ("price > 40", 'isa("news.Story")'),
    "price > 40 && unheard-of == 5": ("price > 40", "unheard-of == 5"),
    "price > 40 || !exists(unheard-of)": (None, "price > 40 || !exists(unheard-of)"),
}


@pytest.mark.parametrize(("text", "halves"), PARTLY.items())
def test_of_the_rest_the_database_is_asked_what_is_true_of_every_match(text, halves):
    pushed = compile(text).to_sql(PRICES)
    condition = None if pushed.condition is None else shown(pushed.condition)
    assert (condition, str(pushed.residual)) == halves


class Decorated(sa.TypeDecorator):
    """May read anything as anything, even NULL as a string."""

    impl = sa.String
    cache_ok = True


@pytest.mark.parametrize(
    ("column_type", "text", "condition"),
    [
        (sa.String(collation="NOCASE"), 'x == "a"', "x IS NOT NULL"),
        (sa.CHAR(5), 'x == "a"', "x IS NOT NULL"),
        (sa.Enum("a", "b", name="letters"), 'x == "a"', "x IS NOT NULL"),
        (sa.JSON(), "x == 5", "x IS NOT NULL"),
        (sa.JSON(), "!exists(x)", None),
        (sa.Numeric(10, 2), "x == 5", "x IS NOT NULL"),
        (sa.REAL(), "x == 5", "x IS NOT NULL"),
        (sa.Float(24), "x == 5", "x IS NOT NULL"),
        (sa.DateTime(), "x == datetime('2026-11-15T10:00:00Z')", "x IS NOT NULL"),
        (Decorated(), 'x == "a"', None),
    ],
    ids=str,
)
def test_types_with_a_mind_of_their_own_are_left_to_us(column_type, text, condition):
    filter = compile(text)
    pushed = filter.to_sql({"x": sa.column("x", column_type)})
    assert (None if pushed.condition is None else shown(pushed.condition)) == condition
    assert pushed.residual == filter


def test_nan_is_not_larger_than_everything():
    """PostgreSQL thinks so, and it is the only one of the two that keeps a NaN."""
    above, nan = (compile(text).to_sql(PRICES).condition for text in ("rate > 1.5", "nan(rate)"))
    assert str(above) == "rate > :param_1 AND rate <= :param_2"
    assert list(above.compile().params.values()) == [1.5, float("inf")]
    assert str(nan) == "rate > :param_1"


@pytest.mark.parametrize("joint", ["&&", "||"])
def test_a_filter_of_any_size_makes_a_query_that_runs(database, joint):
    assert_agrees(database, compile(joint.join(f"a != {n} {joint} b > {n}" for n in range(2000))))


@pytest.mark.world
def test_sqlalchemy_is_loaded_when_asked_for_and_missed_aloud():
    code = """if True:
        import sys
        from infobus import errors, filters
        filter = filters.compile("price > 40")
        assert "sqlalchemy" not in sys.modules
        sys.modules["sqlalchemy"] = None  # as if it were not installed
        try:
            filter.to_sql({})
        except errors.UsageError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install '.[sql]'" in done.stdout, done.stderr


def test_the_example_in_the_docs_gives_what_it_says():
    page = (Path(__file__).parents[2] / "docs" / "filters.md").read_text("utf-8")
    section = page.split("## SQL and Spark\n")[1]
    code = section.split("```python\n")[1].split("```")[0]
    shown = re.findall(r"^print\((.*)\) +# (.*)$", code, re.MULTILINE)
    names: dict[str, object] = {}
    exec(code, names)
    assert len(shown) == 2
    assert [str(eval(expression, names)) for expression, _ in shown] == [text for _, text in shown]
