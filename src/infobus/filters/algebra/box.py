"""Rows as boxes: what each attribute may be, and the conditions that concern several at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from infobus.filters.domain import ANY, Domain, as_tests, compared, domain, includes
from infobus.filters.language.literals import FAMILY, Literal, Rest, Test, tree_of_literal
from infobus.filters.language.normal import AllOf, AnyOf, Normal, Row, normal, rows_of, tree_of
from infobus.filters.language.tree import And, Compare, Constant, Name, Tree

_TESTS_MAX = 32  # Tests of one attribute are compared pair by pair; a stranger may send thousands.


class Box(Struct, frozen=True, gc=False):
    """A row: each attribute within its domain, and every condition of another shape true.

    The name with an empty path stands for the event itself. With no conditions at all, a box
    is always true.
    """

    domains: Mapping[Name, Domain]
    loose: frozenset[Rest] = frozenset()


EVERYTHING = Box({})


def box(row: Iterable[Literal]) -> Box | None:
    """Return the row as a box; None if it contradicts itself, so that it is never true."""
    by_name: dict[Name, list[Test]] = {}
    loose: set[Rest] = set()
    for literal in row:
        if isinstance(literal, Rest):
            loose.add(literal)
            continue
        some = by_name.setdefault(literal.name, [])
        if len(some) < _TESTS_MAX:
            some.append(literal)
        else:
            loose.add(Rest(tree_of_literal(literal)))
    domains: dict[Name, Domain] = {}
    for name, some in by_name.items():
        allowed = domain(some)
        if allowed is None:
            return None
        domains[name] = allowed
    if any(Rest(one.tree, not one.negated) in loose for one in loose):
        return None
    return Box(domains, frozenset(loose))


def boxes(tree: Tree) -> list[Box]:
    """Return boxes of which one holds exactly when `tree` is True.

    There are no more than the tree has conditions, or some times that: alternatives inside a
    conjunction that would make for too many are kept together as one condition of their own.
    """
    plain = _plain_box(tree)
    return _boxes(normal(tree)) if plain is None else [plain]


def _plain_box(tree: Tree) -> Box | None:
    """The box of one comparison for each of some attributes, as most filters are."""
    domains: dict[Name, Domain] = {}
    for one in tree.operands if isinstance(tree, And) else (tree,):
        if not isinstance(one, Compare):
            return None
        name, limit = one.left, one.right
        if not isinstance(name, Name) or not isinstance(limit, Constant) or name in domains:
            return None
        family, value = FAMILY[limit.kind], limit.value
        if family not in ("number", "string") or one.op == "!=":
            return None
        domains[name] = compared(one.op, family, value)
    return Box(domains)


def _boxes(form: Normal) -> list[Box]:
    if isinstance(form, AnyOf):
        return [one for part in form.parts for one in _boxes(part)]
    rows = rows_of(form)
    if rows is None:
        assert isinstance(form, AllOf)
        rows = (tuple(p if isinstance(p, Test | Rest) else Rest(tree_of(p)) for p in form.parts),)
    return [found for found in map(box, rows) if found is not None]


def row(one: Box) -> Row:
    """Return the box as a row again, its attributes in the order of their names."""
    literals: list[Literal] = []
    for name in sorted(one.domains, key=_path):
        literals.extend(as_tests(name, one.domains[name]))
    return (*literals, *sorted(one.loose, key=repr))


def _path(name: Name) -> tuple[str, ...]:
    return name.path


def covers(outer: Box, inner: Box) -> bool:
    """Whether every event in `inner` is certainly in `outer`."""
    if not outer.loose <= inner.loose:
        return False
    for name, allowed in outer.domains.items():
        if not includes(allowed, inner.domains.get(name, ANY)):
            return False
    return True
