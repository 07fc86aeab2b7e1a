"""Boxes: rows with one domain per attribute, and conditions on several attributes at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from infobus.filters.domain import ANY, Domain, as_tests, compared, domain, includes
from infobus.filters.language.literals import FAMILY, Literal, Rest, Test, tree_of_literal
from infobus.filters.language.normal import AllOf, AnyOf, Normal, Row, normal, rows_of, tree_of
from infobus.filters.language.tree import And, Compare, Constant, Name, Tree

_TESTS_MAX = 32  # Tests of one attribute are compared in pairs, and a peer may send thousands.


class Box(Struct, frozen=True, gc=False):
    """A row: every attribute lies in its domain, and all conditions in `loose` are true.

    The name with an empty path stands for the event itself. A box without conditions is always
    true.
    """

    domains: Mapping[Name, Domain]
    loose: frozenset[Rest] = frozenset()


EVERYTHING = Box({})


def box(row: Iterable[Literal]) -> Box | None:
    """Return the row as a box; None if it contradicts itself."""
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
    """Return boxes such that one of them holds exactly when `tree` is True.

    Their number is at most a small multiple of the conditions in the tree: alternatives inside a
    conjunction stay one condition if they would make too many boxes.
    """
    plain = _plain_box(tree)
    return _boxes(normal(tree)) if plain is None else [plain]


def _plain_box(tree: Tree) -> Box | None:
    """Return the box of a conjunction of comparisons, at most one for each attribute.

    Most filters are like this, and this way is several times as fast as the general one.
    """
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
    """Return the box as a row, with its attributes in the order of their names."""
    literals: list[Literal] = []
    for name in sorted(one.domains, key=_path):
        literals.extend(as_tests(name, one.domains[name]))
    return (*literals, *sorted(one.loose, key=repr))


def _path(name: Name) -> tuple[str, ...]:
    return name.path


def covers(outer: Box, inner: Box) -> bool:
    """Return whether every event in `inner` is certainly in `outer`."""
    if not outer.loose <= inner.loose:
        return False
    for name, allowed in outer.domains.items():
        if not includes(allowed, inner.domains.get(name, ANY)):
            return False
    return True
