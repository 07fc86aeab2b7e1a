"""Reduces a set of filters to few filters that ask for the same events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from infobus.filters.algebra.box import EVERYTHING, Box, boxes, row
from infobus.filters.algebra.merge import absorbed, merged
from infobus.filters.algebra.union import is_short
from infobus.filters.algebra.widen import anchored, shortened, widened
from infobus.filters.domain import listed
from infobus.filters.language.filter import Filter
from infobus.filters.language.lexer import name_text
from infobus.filters.language.normal import Row, all_of, tree_of
from infobus.filters.language.parser import TEXT_MAX
from infobus.filters.language.tree import FunctionCall, Name, Tree, nodes

_COMPACTED_COUNT_MAX = 20_000  # Up to this many boxes, compacting takes a second at most.


class Combined(Struct, frozen=True):
    """All that several filters ask for: `everything`, or the events that one of `filters` matches.

    Each of `filters` is a conjunction. Without any, and without `everything`, no event is asked
    for. If `exact` is False, more events may match than were asked for, but never fewer.
    """

    filters: tuple[Filter, ...] = ()
    everything: bool = False
    exact: bool = True

    def matches(self, x: object) -> bool:
        """Return whether `x` is asked for."""
        return self.everything or any(one.matches(x) for one in self.filters)

    def __str__(self) -> str:
        """Return one expression; or `everything` or `nothing`, which are none."""
        if self.everything:
            return "everything"
        if len(self.filters) < 2:
            return str(self.filters[0]) if self.filters else "nothing"
        return " || ".join(f"({one})" if "&&" in str(one) else str(one) for one in self.filters)


def reduce(filters: Iterable[Filter], limit: int | None = None) -> Combined:
    """Return the events that the filters ask for, as few filters.

    Filters that others cover disappear, and filters that differ in one attribute are joined.
    `limit` bounds the number of resulting filters; to meet it, the result may match more events.

    >>> from infobus.filters import compile
    >>> def reduced(*texts, limit=None):
    ...     return str(reduce(map(compile, texts), limit))
    >>> reduced('symbol == "GMC"', 'symbol == "IBM"', 'symbol == "GMC" && price > 1')
    'symbol in ["GMC", "IBM"]'
    >>> reduced("price > 10 && price <= 20", "price > 20 && price < 30")
    'price > 10 && price < 30'
    >>> reduced("price == 1 && day == 2", "price == 3 && day == 4", limit=1)
    'day in [2, 4] && price in [1, 3]'
    >>> reduced("exists(price)", "!exists(price)")
    'everything'
    """
    return combined([one for each in dict.fromkeys(filters) for one in boxes(each.tree)], limit)


def project(
    filters: Iterable[Filter], attributes: Collection[str], limit: int | None = None
) -> Combined:
    """Like `reduce`, but with conditions on these attributes only; may match more events.

    >>> from infobus.filters import compile
    >>> str(project([compile('symbol == "GMC" && price > 1'), compile("price > 5")], {"price"}))
    'price > 1'
    """
    found = [one for each in dict.fromkeys(filters) for one in boxes(each.tree)]
    kept = projected(found, attributes)
    result = combined(kept, limit)
    return Combined(result.filters, result.everything, result.exact and kept == found)


def projected(found: Iterable[Box], attributes: Collection[str]) -> list[Box]:
    """Return the boxes without their conditions on other attributes."""
    return [
        Box(
            {name: d for name, d in one.domains.items() if name_text(name.path) in attributes},
            frozenset(rest for rest in one.loose if _is_about(rest.tree, attributes)),
        )
        for each in found
        for one in anchored(each)
    ]


def _is_about(tree: Tree, attributes: Collection[str]) -> bool:
    return all(
        node.function != "isa"
        if isinstance(node, FunctionCall)
        else name_text(node.path) in attributes
        for node in nodes(tree)
        if isinstance(node, FunctionCall | Name)
    )


def compacted(found: Iterable[Box]) -> list[Box]:
    """Return fewer boxes with exactly the same meaning."""
    return absorbed(merged(found))


def combined(found: list[Box], limit: int | None = None) -> Combined:
    """Like `reduce`, for boxes."""
    if limit is None or len(found) <= _COMPACTED_COUNT_MAX or _shrinks(found):
        return expressed(compacted(found), limit)
    return expressed(found, limit)


def _shrinks(found: list[Box]) -> bool:
    """Return whether compacting is worth its time, judged by a sample of the boxes."""
    some = found[:: len(found) // 1000]
    return len(merged(some)) < 0.9 * len(some)


def expressed(
    compact: list[Box], limit: int | None = None, known: dict[Row, Filter] | None = None
) -> Combined:
    """Return boxes as filters, widened to the limit. `known` caches filters between calls."""
    result = compact
    if limit is not None:
        if len(compact) > limit:
            result = widened(compact, limit)
        short = [shortened(one) for one in result]
        result = compact if short == compact else absorbed(short)
    exact = result is compact
    filters: list[Filter] = []
    for one in result:
        for piece in _pieces(one):
            made = _filter(piece, known)
            while len(made.text) > TEXT_MAX:
                piece, exact = _less(piece), False
                made = _filter(piece, known)
            if piece == EVERYTHING:
                return Combined(everything=True, exact=exact)
            filters.append(made)
    return Combined(tuple(filters), exact=exact)


def _filter(one: Box, known: dict[Row, Filter] | None) -> Filter:
    literals = row(one)
    made = None if known is None else known.get(literals)
    if made is None:
        made = Filter(tree_of(all_of(literals)))
        if known is not None:
            known[literals] = made
    return made


def _pieces(one: Box) -> Iterator[Box]:
    """Split a box with very many values into boxes that fit into the text of a filter."""
    for name, allowed in one.domains.items():
        if allowed.values is not None and not is_short(allowed.values):
            values = sorted(allowed.values)
            middle = len(values) // 2
            for part in (values[:middle], values[middle:]):
                domain = listed(allowed.family, part, allowed.others)
                yield from _pieces(Box({**one.domains, name: domain}, one.loose))
            return
    yield one


def _less(one: Box) -> Box:
    """Return the box without its longest condition."""
    if one.loose:
        return Box(one.domains)
    longest = max(one.domains, key=lambda name: len(repr(one.domains[name])))
    return Box({name: domain for name, domain in one.domains.items() if name != longest})
