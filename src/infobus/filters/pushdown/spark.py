"""Translates filters into conditions on the columns of a Spark DataFrame.

Some parts stay in the residual: regular expressions (Java's differ from RE2), `fold-case` and the
decompositions, and arithmetic (integers have another width, and errors replace infinity).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from infobus.errors import UsageError
from infobus.extras import advice
from infobus.filters.language.tree import Name, Scalar
from infobus.filters.pushdown import translation
from infobus.filters.pushdown.translation import Push, Pushed, TargetAttribute

try:
    from pyspark.sql import Column, types
    from pyspark.sql import functions as F
except ImportError as error:
    raise UsageError(
        "filters become conditions of Spark with PySpark, which is not installed; "
        + advice("spark")
    ) from error

if TYPE_CHECKING:
    from infobus.filters.language.filter import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def push_down(filter: Filter, schema: types.StructType) -> Pushed[Column]:
    """Split `filter` into a Spark condition and a residual; a match satisfies both.

    You need an active Spark session. The residual expects timestamps with a time zone: `collect`
    drops it, Arrow keeps it.

    Args:
        filter: The filter.
        schema: The schema of the DataFrame; `a.b` is the field `b` of the struct `a`.
    """
    return translation.push_down(filter, _Frame(schema))


class _Frame:
    equated = frozenset({"integer", "real64", "string", "bool", "opaque", "datetime"})
    ordered = frozenset({"integer", "real64", "string", "datetime"})

    def __init__(self, schema: types.StructType) -> None:
        self.schema = schema
        self.never = F.lit(False)

    def attribute(self, name: Name) -> TargetAttribute | None:
        found: types.DataType = self.schema
        for element in name.path:
            if not isinstance(found, types.StructType):
                return None
            # Depending on its settings, Spark ignores case in names.
            alike = [field for field in found if field.name.casefold() == element.casefold()]
            if len(alike) != 1 or alike[0].name != element:
                return None
            found = alike[0].dataType
        quoted = (f"`{element.replace('`', '``')}`" for element in name.path)
        item_kind = _kind(found.elementType) if isinstance(found, types.ArrayType) else ""
        return TargetAttribute(F.col(".".join(quoted)), _kind(found), item_kind)

    def is_present(self, attribute: TargetAttribute) -> Any:
        return attribute.expression.isNotNull()

    def literal(self, value: Scalar) -> Column | None:
        match value:
            case datetime():
                # As a number, so that no calendar or time zone of the JVM changes it.
                return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
            case str() if any("\ud800" <= letter <= "\udfff" for letter in value):
                return None  # half a surrogate pair; Spark cannot store it
            case _:
                return F.lit(value)

    def one_of(self, attribute: TargetAttribute, literals: Sequence[Column]) -> Any:
        return attribute.expression.isin(*literals)

    def textual(self, op: str, attribute: TargetAttribute, value: str) -> Push:
        text = attribute.expression
        test = {"begins-with": text.startswith, "ends-with": text.endswith}.get(op, text.contains)
        return test(F.lit(value)), True

    def has_one_of(self, attribute: TargetAttribute, literals: Sequence[Column]) -> Any:
        # A missing item is merely unequal, as in a filter.
        return F.exists(
            attribute.expression,
            lambda item: reduce(or_, (item.eqNullSafe(literal) for literal in literals)),
        )

    def size(self, attribute: TargetAttribute) -> Any | None:
        if attribute.kind == "list":
            return F.array_size(attribute.expression)
        return F.length(attribute.expression) if attribute.kind in ("string", "opaque") else None


def _kind(data_type: types.DataType) -> str:
    match data_type:
        case types.StringType():
            # Other collations call different strings equal.
            return "string" if data_type.collation == "UTF8_BINARY" else ""
        case types.BooleanType():
            return "bool"
        case types.ByteType() | types.ShortType() | types.IntegerType() | types.LongType():
            return "integer"
        case types.FloatType() | types.DoubleType():
            return "real64"
        case types.TimestampType():
            return "datetime"
        case types.BinaryType():
            return "opaque"
        case types.ArrayType():
            return "list"
        case types.MapType(valueType=types.StructType() as entry) if "kind" in entry.names:
            return ""  # a typed map of a journal, which can hold a value of any kind
        case types.StructType() | types.MapType():
            return "object"
        case _:
            return ""
