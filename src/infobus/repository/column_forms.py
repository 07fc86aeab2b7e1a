"""Forms: how an attribute is stored, in a column, as rows of a table, or as objects.

    int, str, ...    a column
    any              a column of JSON
    list[int]        a table with a row for each item, or each pair of a map
    object           a row in the table of the object's own type; list[object]: as many rows

A value that does not fit its column (a NaN, a string with a NUL, a value of another type) is
stored as JSON in the object's column `_extra`. So nothing is lost and nothing is refused. If there
is a value that sorts alike (`nearest`), the column holds that one, so that `order` works.
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
    """`shape` is empty for a single value, or `list` or `dict`; `of` is the kind of the items."""

    shape: str
    of: str

    @classmethod
    def parse(cls, text: str) -> Form:
        """Parse the text that `str(form)` returns."""
        shape, bracket, rest = text.partition("[")
        return cls(shape, rest.removesuffix("]")) if bracket else cls("", text)

    def __str__(self) -> str:
        return f"{self.shape}[{self.of}]" if self.shape else self.of

    @property
    def is_column(self) -> bool:
        """True if the column holds the value itself, False if it holds a number of items."""
        return not self.shape and self.of != OBJECT


def form_of(kind: Kind) -> Form:
    """Return the form in which values of a kind are stored.

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
    """A moment: a timestamp with time zone, or for SQLite text in UTC that sorts correctly."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> TypeEngine[Any]:
        """Return the column type: text for SQLite, else a timestamp."""
        is_plain = dialect.name == "sqlite"
        return dialect.type_descriptor(Text() if is_plain else DateTime(timezone=True))  # type: ignore[no-any-return]

    def process_bind_param(self, value: datetime | None, dialect: Any) -> Any:
        """Convert a moment to the form that the driver accepts."""
        if value is None:
            return None
        return moment_text(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Return the moment in UTC; leave a value that is not a moment unchanged."""
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            except ValueError:
                return value  # written by hand
        return value.astimezone(UTC) if isinstance(value, datetime) else value


def moment_text(moment: datetime) -> str:
    """Return a moment as text in UTC; the texts sort like the moments.

    >>> moment_text(datetime(987, 11, 15, 10, tzinfo=UTC))
    '0987-11-15 10:00:00.000000'
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


class Flag(Boolean):
    """A boolean. If the database stores it as a number, other numbers are left unchanged."""

    cache_ok = True

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        """Return the function that converts the driver's values."""
        if dialect.supports_native_boolean:
            return None
        return lambda value: bool(value) if value in (0, 1) else value


class Blob(LargeBinary):
    """Bytes as the driver returns them; other values are left unchanged."""

    cache_ok = True

    def result_processor(self, dialect: Any, coltype: object) -> Any:
        """Return None: the driver's values need no conversion."""
        return None


# Collation "C" compares byte by byte, as SQLite does, so strings sort as in Python.
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
    """Return whether a column of this form may hold `value`, which is not None."""
    if not form.is_column:
        return value.__class__ is int
    return value.__class__ is _PYTHON_TYPES.get(form.of, str)


def all_fit(values: Sequence[Any], of: str) -> bool:
    """Return whether `fits` is True for all values but None, with a few fast passes."""
    if not set(map(type, values)) <= {_PYTHON_TYPES[of], NoneType}:
        return False
    if of == "str":
        return not any(map(contains, filter(None, values), repeat("\0")))
    if of == "float" and (0.0 in values or any(map(ne, values, values))):
        return all(value is None or fits(value, of) for value in values)
    return True


def nearest(value: Any, form: Form) -> Any:
    """Return a value for the column that sorts like one that does not fit, or None.

    >>> nearest(-0.0, Form("", "float")), nearest("a\\0b", Form("", "str"))
    (0.0, 'a')
    """
    if form == ("", "float") and value.__class__ is float and value == 0:
        return 0.0
    if form == ("", "str") and value.__class__ is str:
        return value.partition("\0")[0]
    return None


def fits(value: Any, of: str) -> bool:
    """Return whether every database would return exactly `value` from a column of this form."""
    if value.__class__ is not _PYTHON_TYPES.get(of):
        return False
    if of == "str":
        return "\0" not in str(value)
    # SQLite stores a NaN as NULL and -0.0 as the integer 0, which has no sign.
    return of != "float" or (value == value and (value != 0 or copysign(1, value) > 0))
