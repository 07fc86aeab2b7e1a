"""What `infobus filter explain` says about a filter, as plain values."""

from __future__ import annotations

from typing import Any

from infobus import UsageError
from infobus.filters import Filter, compile
from infobus.filters.algebra.reduce import reduce
from infobus.filters.language.text import text_of
from infobus.filters.language.tree import And, Not, Or, Tree, Xor


def explanation(expression: str) -> dict[str, Any]:
    """The filter in its normal spelling, its attributes, reduced form, tree and SQL."""
    where = compile(expression)
    return {
        "filter": where.text,
        "attributes": sorted(where.attributes),
        "reduced": str(reduce([where])),
        "tree": _branch(where.tree),
        "sql": _sql(where),
    }


_JOINTS = {And: "&& all of", Or: "|| any of", Xor: "^^ an odd number of"}


def _branch(tree: Tree) -> dict[str, Any]:
    """A condition as text; or an operator and the parts that it joins."""
    match tree:
        case And(operands) | Or(operands) | Xor(operands):
            return {"node": _JOINTS[type(tree)], "parts": [_branch(one) for one in operands]}
        case Not(operand):
            return {"node": "! not", "parts": [_branch(operand)]}
        case _:
            return {"node": text_of(tree), "parts": []}


def _sql(where: Filter) -> dict[str, Any]:
    """The condition for a database, the rest of the filter, and the columns assumed."""
    try:
        import infobus.filters.pushdown.sql  # noqa: F401
    except UsageError as error:  # SQLAlchemy is not installed
        return {"error": str(error)}
    from infobus.cli.column_guess import guess_columns, type_text

    columns = guess_columns(where)
    pushed = where.to_sql(columns)
    condition, residual = pushed.condition, pushed.residual
    return {
        "columns": {name: type_text(column) for name, column in columns.items()},
        "condition": condition
        if condition is None
        else str(condition.compile(compile_kwargs={"literal_binds": True})),
        "residual": residual if residual is None else residual.text,
    }
