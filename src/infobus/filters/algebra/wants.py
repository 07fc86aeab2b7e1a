"""The pure part of quench: tells a producer which events any subscription wants.

A producer can ask for one combined expression, whether an event of which it knows only a part is
wanted, or which values of an attribute are wanted. In doubt, every answer is "wanted".
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

from infobus.errors import UsageError
from infobus.filters.algebra.box import Box, boxes, row
from infobus.filters.algebra.merge import absorbed, merged
from infobus.filters.algebra.producer_view import Condition, Range, choices
from infobus.filters.algebra.reduce import Combined, compacted, expressed
from infobus.filters.language.filter import Filter
from infobus.filters.language.literals import Test
from infobus.filters.language.normal import Row
from infobus.filters.language.partial import UNKNOWN, decided, look
from infobus.filters.language.tree import Name, Scalar
from infobus.filters.language.values import family

_MERGED_COUNT_MAX = 2000  # Up to this many boxes, a change compacts all again; 20 us each.


class Wants:
    """Stores the filters of all subscriptions under ids, and answers for all of them together.

    A subscription without a filter (None) wants everything. Answers are computed on demand; after
    a change, only the filters on the same attributes are merged again.

    >>> from infobus.filters import compile
    >>> wants = Wants()
    >>> wants.add(1, compile('symbol == "GMC" && price > 40'))
    >>> wants.add(2, compile('symbol == "IBM" && price > 40'))
    >>> str(wants.expression())
    'price > 40 && symbol in ["GMC", "IBM"]'
    >>> wants.wants({"symbol": "GMC"}), wants.wants({"symbol": "HP"})
    (None, False)
    >>> wants.values("symbol")
    [[('in', ('GMC', 'IBM'))]]
    """

    def __init__(self) -> None:
        self._filters: dict[Hashable, Filter | None] = {}
        self._uses: dict[Filter | None, int] = {}
        self._parts: dict[Hashable, _Part] = {}
        self._boxes: list[Box] | None = []
        self._index: _Index | None = None
        self._written: dict[Row, Filter] = {}
        self.version = 0
        """Grows with every change that may change an answer."""

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: object) -> bool:
        return id in self._filters

    def add(self, id: Hashable, filter: Filter | None) -> None:
        """Add a subscription.

        Raises:
            UsageError: The id is already in use.
        """
        if id in self._filters:
            raise UsageError(f"there is a subscription {id!r} already")
        self._filters[id] = filter
        self._uses[filter] = self._uses.get(filter, 0) + 1
        if self._uses[filter] == 1:
            self._changed(filter, is_new=True)

    def remove(self, id: Hashable) -> None:
        """Remove a subscription.

        Raises:
            UsageError: There is none under this id.
        """
        if id not in self._filters:
            raise UsageError(f"there is no subscription {id!r}")
        filter = self._filters.pop(id)
        self._uses[filter] -= 1
        if not self._uses[filter]:
            del self._uses[filter]
            self._changed(filter, is_new=False)

    def replace(self, id: Hashable, filter: Filter | None) -> None:
        """Give a subscription another filter.

        Raises:
            UsageError: There is none under this id.
        """
        self.remove(id)
        self.add(id, filter)

    def expression(self, limit: int | None = None) -> Combined:
        """Return all filters reduced to few; `limit` bounds their number (see `reduce`)."""
        if None in self._uses:
            return Combined(everything=True)
        if len(self._written) > 2 * len(self._uses):
            self._written.clear()
        return expressed(self._compact(), limit, self._written)

    def wants(self, known: object, closed: bool = False) -> bool | None:
        """Return whether an event with these attributes is wanted; None if it depends on others.

        `known` and `closed` are the same as for `partial.residual`.
        """
        if None in self._uses:
            return True
        if self._index is None:
            self._index = _Index(one for part in self._parts.values() for one in part.rows())
        answer: bool | None = False
        for one in self._index.candidates(known, closed):
            truth = _conjunction(one, known, closed)
            if truth:
                return True
            if truth is None:
                answer = None
        return answer

    def values(
        self,
        *attributes: str,
        operators: Collection[str] | None = None,
        range: Range | Mapping[str, Range] | None = None,
    ) -> list[list[Condition]]:
        """Return the values of these attributes that are wanted, as alternatives.

        Each alternative is a list of conditions that hold together. A condition is
        `(operator, value)`, or `(attribute, operator, value)` if you ask for several attributes.
        An empty list means that any value may be wanted: some subscription has no condition on
        the attributes, or only conditions that the accepted `operators` cannot express. It
        makes all other lists redundant. Without any lists, nothing is wanted.

        The operators are those of the language, and `in` (its value is a tuple), `has` for
        `value in list`, and `exists` (its value is None). A `!` before an operator negates it for
        values of the same type: `!matches`; `!<` is also true of NaN.

        `range` limits the answer to values that the producer can have: a pair (low, high) with
        None for no bound, a set or list of values, or a function. For several attributes, pass a
        mapping.

        >>> from infobus.filters import compile
        >>> wants = Wants()
        >>> wants.add(1, compile('directory == "/etc" && file matches("[.]conf$")'))
        >>> wants.add(2, compile('directory in ["/etc", "/home"] && file == "passwd"'))
        >>> wants.values("directory", operators={"=="}, range={"/etc"})
        [[('==', '/etc')]]
        >>> for conditions in wants.values("directory", "file"):
        ...     print(*conditions)
        ('directory', '==', '/etc') ('file', 'matches', '[.]conf$')
        ('directory', 'in', ('/etc', '/home')) ('file', '==', 'passwd')
        >>> wants.values("size")
        [[]]
        """
        if None in self._uses:
            return [[]]
        ranges = range if isinstance(range, Mapping) else dict.fromkeys(attributes, range)
        return choices(self._compact(), attributes, operators, ranges)

    def _changed(self, filter: Filter | None, is_new: bool) -> None:
        self.version += 1
        self._boxes = self._index = None
        if filter is None:
            return
        for number, one in enumerate(boxes(filter.tree)):
            signature = (frozenset(one.domains), one.loose)
            part = self._parts.setdefault(signature, _Part())
            part.put((filter, number), one if is_new else None)
            if not part:
                del self._parts[signature]

    def _compact(self) -> list[Box]:
        if self._boxes is None:
            found = [one for part in self._parts.values() for one in part.boxes()]
            self._boxes = compacted(found) if len(found) < _MERGED_COUNT_MAX else absorbed(found)
        return self._boxes


class _Part:
    """Boxes on the same attributes; most joins happen within such a group."""

    def __init__(self) -> None:
        self._members: dict[Hashable, Box] = {}
        self._boxes: list[Box] | None = None
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        return len(self._members)

    def put(self, key: Hashable, one: Box | None) -> None:
        self._boxes = self._rows = None
        if one is None:
            del self._members[key]
        else:
            self._members[key] = one

    def boxes(self) -> list[Box]:
        if self._boxes is None:
            self._boxes = merged(self._members.values())
        return self._boxes

    def rows(self) -> list[Row]:
        if self._rows is None:
            self._rows = [row(one) for one in self.boxes()]
        return self._rows


class _Index:
    """Finds rows by the values that one of their attributes must equal.

    The matcher's index only finds rows that may hold; here, a row that surely holds counts as
    well, and after merging there are few rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._others: list[Row] = []
        self._by_name: dict[Name, dict[tuple[str, Scalar], list[Row]]] = {}
        for one in rows:
            key = next((part for part in one if _is_equality(part)), None)
            if not isinstance(key, Test):
                self._others.append(one)
                continue
            by_value = self._by_name.setdefault(key.name, {})
            for value in key.values:
                by_value.setdefault((key.family, value), []).append(one)

    def candidates(self, known: object, closed: bool) -> Iterator[Row]:
        """Return every row that may hold, and some others; some of them repeatedly."""
        yield from self._others
        for name, by_value in self._by_name.items():
            value = look(known, name.path, closed)
            if value is UNKNOWN:
                for some in by_value.values():
                    yield from some
            elif (kind := family(value)) is not None:
                yield from by_value.get((kind, value), ())


def _is_equality(literal: object) -> bool:
    return isinstance(literal, Test) and literal.op == "==" and not literal.negated


def _conjunction(literals: Row, known: object, closed: bool) -> bool | None:
    answer: bool | None = True
    for literal in literals:
        truth = decided(literal, known, closed)
        if truth is False:
            return False
        if truth is None:
            answer = None
    return answer
