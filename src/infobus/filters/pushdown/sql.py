"""Translates filters into SQL conditions that mean the same to SQLite and PostgreSQL.

Some parts stay in the residual because one of the two differs: the order of strings (collations),
times (SQLite stores no time zone), arithmetic (an overflow is an error in PostgreSQL), and the
length and the end of a string (for some functions of SQLite, a string ends at its first NUL).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from infobus.errors import UsageError
from infobus.extras import advice
from infobus.filters.language.lexer import name_text
from infobus.filters.language.tree import Name, Scalar
from infobus.filters.pushdown import translation
from infobus.filters.pushdown.translation import Push, Pushed, TargetAttribute

try:
    import sqlalchemy
    from sqlalchemy import types
except ImportError as error:
    raise UsageError(
        f"filters become SQL with SQLAlchemy, which is not installed; {advice('sql')}"
    ) from error

if TYPE_CHECKING:
    from infobus.filters.language.filter import Filter


def push_down(
    filter: Filter, columns: Mapping[str, sqlalchemy.ColumnElement[Any]]
) -> Pushed[sqlalchemy.ColumnElement[bool]]:
    """Split `filter` into an SQL condition and a residual; a match satisfies both.

    Args:
        filter: The filter.
        columns: The columns by the names of attributes as you write them in a filter
            (`story.source.name`); `table.c` works. Their types must say what they hold.

    >>> from infobus.filters import compile
    >>> columns = {
    ...     "symbol": sqlalchemy.column("symbol", sqlalchemy.String()),
    ...     "price": sqlalchemy.column("price", sqlalchemy.Integer()),
    ... }
    >>> where = 'symbol in ["GMC", "IBM"] && price > 40 && regex(symbol, "^G")'
    >>> pushed = push_down(compile(where), columns)
    >>> print(pushed.condition.compile(compile_kwargs={"literal_binds": True}))
    symbol IN ('GMC', 'IBM') AND price > 40 AND symbol IS NOT NULL
    >>> print(pushed.residual)
    regex(symbol, "^G")
    """
    return translation.push_down(filter, SqlTarget(columns))


class SqlTarget:
    """The `Target` for conditions on which both databases agree."""

    never = sqlalchemy.false()
    equated = frozenset({"integer", "real64", "string", "bool", "opaque"})
    ordered = frozenset({"integer", "real64"})

    def __init__(self, columns: Mapping[str, sqlalchemy.ColumnElement[Any]]) -> None:
        self.columns = columns

    def attribute(self, name: Name) -> TargetAttribute | None:
        column = self.columns.get(name_text(name.path))
        # A decorated type may turn a value, or NULL, into anything.
        if column is None or isinstance(column.type, types.TypeDecorator):
            return None
        return TargetAttribute(column, _kind(column.type))

    def is_present(self, attribute: TargetAttribute) -> Any:
        return attribute.expression.is_not(None)

    def literal(self, value: Scalar) -> Any | None:
        match value:
            case bool():
                return sqlalchemy.literal(value, types.Boolean())
            case int():
                # The type of a narrower column would also narrow the constant.
                return sqlalchemy.literal(value, types.BigInteger())
            case float():
                return sqlalchemy.literal(value, types.Double())
            case str() if _is_storable(value):
                return sqlalchemy.literal(value, types.String())
            case _:
                return None

    def one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any:
        if len(literals) == 1:
            return attribute.expression == literals[0]
        return attribute.expression.in_(literals)

    def textual(self, op: str, attribute: TargetAttribute, value: str) -> Push:
        text, wanted = attribute.expression, self.literal(value)
        # Not LIKE, which ignores case in SQLite.
        if op == "begins-with" or value == "":
            return sqlalchemy.func.substr(text, 1, len(value)) == wanted, True
        without = sqlalchemy.func.replace(text, wanted, "", type_=types.String())
        return without != text, op == "contains"

    def has_one_of(self, attribute: TargetAttribute, literals: Sequence[Any]) -> Any:
        raise AssertionError("no column is a list")

    def size(self, attribute: TargetAttribute) -> None:
        return None


def _kind(column_type: types.TypeEngine[Any]) -> str:
    match column_type:
        case types.Enum() | types.CHAR() | types.NCHAR():
            return ""  # Python sees other values than the database: enum members, or padded text
        case types.String():
            # A collation may call different strings equal.
            return "" if column_type.collation else "string"
        case types.Boolean():
            return "bool"
        case types.Integer():
            return "integer"
        case types.Float() if _is_double(column_type):
            return "real64"
        case types.DateTime():
            return "datetime"
        case types.LargeBinary():
            return "opaque"
        case _:
            return ""


def _is_double(column_type: types.Float[Any]) -> bool:
    """Return whether the column holds doubles; shorter reals change when Python reads them."""
    is_short = isinstance(column_type, types.REAL) or (column_type.precision or 53) <= 24
    return not (is_short or column_type.asdecimal)


def _is_storable(text: str) -> bool:
    """Return whether every database accepts this string."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
