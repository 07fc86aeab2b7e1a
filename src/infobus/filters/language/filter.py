"""`Filter`: a condition on events, made from text or from a tree."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from infobus.errors import BadFilter
from infobus.filters.language import typecheck, values
from infobus.filters.language.compiler import Evaluator, Predicate, evaluator, predicate
from infobus.filters.language.errors import Complaint
from infobus.filters.language.lexer import name_text
from infobus.filters.language.parser import TEXT_MAX, parse
from infobus.filters.language.text import text_of
from infobus.filters.language.tree import (
    And,
    Binary,
    Compare,
    Constant,
    Constants,
    FunctionCall,
    Member,
    Name,
    Not,
    Or,
    Tree,
    TypeName,
    Unary,
    Xor,
    nodes,
)
from infobus.filters.language.typecheck import Typed

if TYPE_CHECKING:
    from infobus.filters.pushdown.translation import Pushed


class Filter:
    """A condition on the attributes of events. Filters with the same tree are equal.

    Make filters with `compile` or `from_tree`; the constructor does not check its tree.

    Attributes:
        tree: The parsed condition.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @classmethod
    def from_tree(cls, tree: Tree) -> Filter:
        """Return the filter of a tree that a program made; checks and normalizes the tree.

        Raises:
            BadFilter: The tree makes no sense, or is too large.
        """
        try:
            made = cls(typecheck.condition(_checked(tree)).tree)
            _check_length(made)
            return made
        except Complaint as complaint:
            raise complaint.about("") from None

    def evaluate(self, x: object) -> bool | None:
        """Return the truth of the filter for `x`, a mapping or a data object; None if undefined.

        >>> compile("price > 40").evaluate({"price": "high"}) is None
        True
        """
        return self._evaluator(values.attributes_of(x), x)

    def matches(self, x: object) -> bool:
        """Return whether the filter is true of `x`. Only then is an event delivered.

        >>> compile('symbol == "GMC" && price > 40').matches({"symbol": "GMC", "price": 41.5})
        True
        """
        return self._predicate(values.attributes_of(x), x)

    @cached_property
    def text(self) -> str:
        """The canonical text of the filter, which parses to an equal tree.

        >>> compile("40<price").text
        'price > 40'
        """
        return text_of(self.tree)

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes that the filter uses, as written in its text.

        >>> sorted(compile('isa("Story") && "oil" in story.topics && !exists(test)').attributes)
        ['story.topics', 'test']
        """
        return frozenset(name_text(node.path) for node in nodes(self.tree) if type(node) is Name)

    @cached_property
    def asks_for_type(self) -> bool:
        """Whether you need to know the type of an event to evaluate the filter.

        >>> compile('isa("news.Story")').asks_for_type, compile("price > 40").asks_for_type
        (True, False)
        """
        return any(
            isinstance(node, FunctionCall) and node.function == "isa" for node in nodes(self.tree)
        )

    def to_sql(self, columns: Any) -> Pushed[Any]:
        """Split the filter into an SQL condition and a residual; see `pushdown.sql`."""
        from infobus.filters.pushdown import sql

        return sql.push_down(self, columns)

    def to_spark(self, schema: Any) -> Pushed[Any]:
        """Split the filter into a Spark condition and a residual; see `pushdown.spark`."""
        from infobus.filters.pushdown import spark

        return spark.push_down(self, schema)

    # Compiled on first use: a node may only pass the filter on to another one.
    @cached_property
    def _evaluator(self) -> Evaluator:
        return evaluator(self.tree)

    @cached_property
    def _predicate(self) -> Predicate:
        return predicate(self.tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    def __reduce__(self) -> tuple[type[Filter], tuple[Tree]]:
        return Filter, (self.tree,)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Filter {self.text}>"


def compile(text: str) -> Filter:
    """Return the filter that `text` describes in the subscription language.

    >>> compile("40 < price and test")
    Traceback (most recent call last):
    infobus.errors.BadFilter: expected an operator or the end, got 'and'
      40 < price and test
                 ^
    hint: write &&

    Raises:
        BadFilter: `text` is no filter, has one answer for all events, or is too large.
    """
    if not isinstance(text, str):
        raise BadFilter(f"a filter is a string, got {text!r:.60} ({type(text).__name__})")
    try:
        made = Filter(parse(text))
        if len(text) > TEXT_MAX // 16:
            _check_length(made)
        return made
    except Complaint as complaint:
        raise complaint.about(text) from None


def _check_length(made: Filter) -> None:
    # The canonical text may be longer than the given one: more spaces, or `1e300` in full.
    if len(made.text) > TEXT_MAX:
        raise Complaint(None, f"the filter would print as more than {TEXT_MAX} characters")


def _checked(tree: Tree, depth: int = 1) -> Typed:
    """Build a tree that a program made once more from its leaves, with all checks."""
    if depth > typecheck.DEPTH_MAX:
        raise typecheck.too_deep(None)

    def inside(part: Tree) -> Typed:
        return _checked(part, depth + 1)

    match tree:
        case Name(path):
            return typecheck.name(path)
        case Constant(value, kind):
            return typecheck.constant(value, kind)
        case TypeName(word):
            return typecheck.data_type(Typed(Name((word,)), "any"))
        case Not(operand):
            return typecheck.negation(inside(operand))
        case And(operands) | Or(operands) | Xor(operands):
            op = next(op for op, cls in typecheck.LOGICAL.items() if isinstance(tree, cls))
            return typecheck.logical(op, [inside(operand) for operand in operands])
        case Compare(op, left, right) if op in typecheck.MIRRORED:
            return typecheck.comparison(op, inside(left), inside(right))
        case Binary(op, left, right) if op in values.BINARY:
            return typecheck.binary(op, inside(left), inside(right))
        case Unary(op, operand) if op in ("-", "+", "~"):
            return typecheck.unary(op, inside(operand))
        case FunctionCall(function, arguments):
            return typecheck.call(function, [inside(argument) for argument in arguments])
        case Member(item, Constants(items)):
            return typecheck.member(inside(item), [inside(constant) for constant in items])
        case Member(item, container):
            return typecheck.member(inside(item), inside(container))
    raise Complaint(None, f"{tree!r:.60} is not part of a filter")
