"""How the values of an attribute are kept: in a column, as rows of a table, or as other objects.

    int, str, ...    a column
    any              a column of JSON
    list[int]        a table with a row for each item, or each pair of a map
    object           a row in the table of the object's own type; list[object]: as many rows

What does not fit its place (a NaN, a string with a NUL, a value of another type) is kept as
JSON in the column `_extra` of its object, so nothing is lost and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import repeat
from math import copysign
from operator import contains, ne
from types import NoneType
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Boolean, DateTime, Double, LargeBinary, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeDecorator, TypeEngine

from infobus.objects.kinds import SCALARS, Kind, ListOf, MapOf, Maybe, ObjectOf

OPEN = "any"
OBJECT = "object"


class Form(NamedTuple):
    """`shape` is empty for a single value, else `list` or `dict`; `of` says what is in it."""

    shape: str
    of: str

    @classmethod
    def parse(cls, text: str) -> Form:
        """The form of that spelling."""
        shape, bracket, rest = text.partition("[")
        return cls(shape, rest.removesuffix("]")) if bracket else cls("", text)

    def __str__(self) -> str:
        return f"{self.shape}[{self.of}]" if self.shape else self.of

    @property
    def is_column(self) -> bool:
        """Whether the value itself is in the column; else there is only how many there are."""
        return not self.shape and self.of != OBJECT


def form_of(kind: Kind) -> Form:
    """How values of a kind are kept.

    >>> from infobus.objects.spelling import parse_kind
    >>> [str(form_of(parse_kind(k))) for k in ("int | None", "list[news.Story]", "list[list[int]]")]
    ['int', 'list[object]', 'list[any]']
    """
    kind = _certain(kind)
    if isinstance(kind, ListOf):
        return Form("list", _single(kind.item))
    if isinstance(kind, MapOf):
        return Form("dict", _single(kind.item))
    return Form("", _single(kind))


def _single(kind: Kind) -> str:
    kind = _certain(kind)
    if isinstance(kind, ObjectOf):
        return OBJECT
    return str(kind) if str(kind) in SCALARS else OPEN


def _certain(kind: Kind) -> Kind:
    return kind.item if isinstance(kind, Maybe) else kind


class Moment(TypeDecorator[datetime]):
    """A moment: a timestamp with zone where there is one, else text in UTC that can be ordered."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> TypeEngine[Any]:
        """Text for SQLite."""
        is_plain = dialect.name == "sqlite"
        return dialect.type_descriptor(Text() if is_plain else DateTime(timezone=True))  # type: ignore[no-any-return]

    def process_bind_param(self, value: datetime | None, dialect: Any) -> Any:
        """The moment, as the driver takes it."""
        if value is None:
            return None
        return moment_text(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """The moment in UTC; what is no moment is left as it is."""
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            except ValueError:
                return value  # somebody wrote it by hand
        return value.astimezone(UTC) if isinstance(value, datetime) else value


def moment_text(moment: datetime) -> str:
    """A moment as text in UTC; the texts are in the order of the moments.

    >>> moment_text(datetime(987, 11, 15, 10, tzinfo=UTC))
    '0987-11-15 10:00:00.000000'
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


class Flag(Boolean):
    """True or False; what is neither is left as it is, where the database has only numbers."""

    cache_ok = True

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        """What makes values of what the driver gives."""
        if dialect.supports_native_boolean:
            return None
        return lambda value: bool(value) if value in (0, 1) else value


class Blob(LargeBinary):
    """Bytes as the driver gives them; what is none is left as it is."""

    cache_ok = True

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        """What makes values of what the driver gives: nothing."""
        return None


# Compared byte by byte, as SQLite does: then strings are in the order that they have in Python.
TEXT = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")

COLUMN_TYPES: dict[str, TypeEngine[Any]] = {
    "bool": Flag(),
    "int": BigInteger(),
    "float": Double(),
    "str": TEXT,
    "bytes": Blob(),
    "datetime": Moment(),
    OPEN: Text(),
}


_PYTHON_TYPES: dict[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "datetime": datetime,
}


def is_of(value: Any, form: Form) -> bool:
    """Whether a column of this form may hold what a database gave; None is a matter of its own."""
    if not form.is_column:
        return value.__class__ is int
    return value.__class__ is _PYTHON_TYPES.get(form.of, str)


def all_fit(values: Sequence[Any], of: str) -> bool:
    """Whether `fits` is true of all values that are not None, by a few looks at all of them."""
    if not set(map(type, values)) <= {_PYTHON_TYPES[of], NoneType}:
        return False
    if of == "str":
        return not any(map(contains, filter(None, values), repeat("\0")))
    if of == "float" and (0.0 in values or any(map(ne, values, values))):
        return all(value is None or fits(value, of) for value in values)
    return True


def fits(value: Any, of: str) -> bool:
    """Whether a column of this form gives back exactly `value`, whatever the database."""
    if value.__class__ is not _PYTHON_TYPES.get(of):
        return False
    if of == "str":
        return "\0" not in str(value)
    # SQLite takes a NaN for NULL, and stores a whole number as an integer: 0 has no sign.
    return of != "float" or (value == value and (value != 0 or copysign(1, value) > 0))
