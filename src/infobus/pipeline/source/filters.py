"""Translates conditions that Spark pushes down into the subscription language.

Spark treats NaN as the largest number, but for a filter NaN has no order. So if Spark asks for
values above a number, the filter lets NaN through. Spark checks every row that it gets again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql import datasource as spark

from infobus.errors import BadFilter
from infobus.filters import Filter
from infobus.filters.language.tree import (
    And,
    Compare,
    Constant,
    Constants,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Tree,
)
from infobus.filters.language.values import kind_of


def filter_of(conditions: Iterable[spark.Filter]) -> str | None:
    """Return a filter that is true of every row that satisfies all conditions, or None.

    >>> filter_of([spark.EqualTo(("symbol",), "GMC"), spark.LessThan(("price",), 40)])
    'symbol == "GMC" && price < 40'
    """
    trees = [tree for tree in map(_tree, conditions) if tree is not None]
    if not trees:
        return None
    try:
        return Filter.from_tree(And(tuple(trees)) if len(trees) > 1 else trees[0]).text
    except BadFilter:  # such as one that is the same for every row
        return None


def _tree(condition: spark.Filter) -> Tree | None:
    match condition:
        case spark.IsNull(attribute):
            return Not(FunctionCall("exists", (Name(attribute),)))
        case spark.IsNotNull(attribute):
            return FunctionCall("exists", (Name(attribute),))
        case spark.EqualTo(attribute, value) if (constant := _constant(value)) is not None:
            return Compare("==", Name(attribute), constant)
        case spark.Not(spark.EqualTo(attribute, value)) if _constant(value) is not None:
            return Compare("!=", Name(attribute), _constant(value))  # type: ignore[arg-type]
        case spark.GreaterThan(attribute, value) | spark.GreaterThanOrEqual(attribute, value):
            return _more(attribute, value, _ORDERS[type(condition)])
        case spark.LessThan(attribute, value) | spark.LessThanOrEqual(attribute, value):
            limit = _constant(value)
            order = _ORDERS[type(condition)]
            return None if limit is None else Compare(order, Name(attribute), limit)
        case spark.In(attribute, values):
            return _one_of(attribute, values)
        case spark.StringStartsWith(attribute, text):
            return FunctionCall("begins-with", (Name(attribute), Constant(text, "string")))
        case spark.StringEndsWith(attribute, text):
            return FunctionCall("ends-with", (Name(attribute), Constant(text, "string")))
        case spark.StringContains(attribute, text):
            return FunctionCall("contains", (Name(attribute), Constant(text, "string")))
    return None


_ORDERS = {
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}


def _more(attribute: tuple[str, ...], value: Any, order: str) -> Tree | None:
    limit = _constant(value)
    if limit is None:
        return None
    name = Name(attribute)
    more = Compare(order, name, limit)
    return Or((more, FunctionCall("nan", (name,)))) if limit.kind in _NUMBERS else more


_NUMBERS = ("int32", "int64", "real64")


def _one_of(attribute: tuple[str, ...], values: Iterable[Any]) -> Tree | None:
    constants = [_constant(value) for value in dict.fromkeys(values)]
    if not constants or any(one is None for one in constants):
        return None
    if len(constants) == 1:
        return Compare("==", Name(attribute), constants[0])  # type: ignore[arg-type]
    return Member(Name(attribute), Constants(tuple(constants)))  # type: ignore[arg-type]


def _constant(value: Any) -> Constant | None:
    """Return the constant of a filter; None if a filter does not compare it as Spark does."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return None  # a time without a zone
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    kind = kind_of(value)
    return None if kind in (None, "opaque") else Constant(value, kind)
