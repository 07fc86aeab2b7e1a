"""Names on the two sides of a border: what is called so here is called otherwise there.

Each side has a form. Without wildcards, forms rename a subject and everything below it. With them,
`*` is any one element and a last `>` one or more, and the outer form says where each element goes:
`{1}` is what the first `*` of the inner one stands for. Every name has exactly one name on the
other side, so both ways can be translated, rows with wildcards too: what a row asks for on one
side is exactly what its translation asks for on the other.

>>> names = Renaming("plant.*.oven.>", "eu.{1}.ovens.>")
>>> names.outward("plant.line4.oven.heat"), names.inward("eu.line4.ovens.heat")
('eu.line4.ovens.heat', 'plant.line4.oven.heat')
>>> names.outward("plant.line4.press") is None  # not shared
True
>>> names.outward_patterns("plant.line4.>"), names.inward_patterns("*.*.ovens.heat")
(['eu.line4.ovens.>'], ['plant.*.oven.heat'])
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from infobus.errors import BadSubject
from infobus.subjects import OWN, TEST_SPACE, check_pattern, overlaps

_NAMES_COUNT_MAX = 65_536  # remembered, each way; then they are forgotten and found anew
_GROUP = re.compile(r"\{([1-9][0-9]?)\}")


class _Form(NamedTuple):
    """One side: literals, and numbers where an element is taken from or put; then the rest."""

    elements: tuple[str | int, ...]
    rest: str  # `>`: one or more elements; `.`: any number of them; empty: none

    @property
    def patterns(self) -> list[str]:
        """The patterns of all names of this side."""
        fixed = ["*" if isinstance(one, int) else one for one in self.elements]
        if self.rest == ".":
            return [*([".".join(fixed)] if fixed else []), ".".join([*fixed, ">"])]
        return [".".join([*fixed, *([">"] if self.rest else [])])]


class Renaming:
    """The names inside, and what they are called outside.

    Args:
        inside: A pattern, or the subject at the top of what is renamed; empty: every subject.
        outside: The same on the other side. An element `{n}` stands for what the n-th `*` of
            `inside` matches; `*` for the next one, if no number is used.

    Raises:
        BadSubject: They do not fit each other; the message says what is wrong.
    """

    def __init__(self, inside: str, outside: str) -> None:
        self.inside, self.outside = _forms(inside, outside)
        self._names: tuple[dict[str, str | None], ...] = {}, {}

    def outward(self, subject: str) -> str | None:
        """What a subject of the inside is called outside; None if it is not shared."""
        return self._known(0, subject, self.inside, self.outside)

    def inward(self, subject: str) -> str | None:
        """What a subject of the outside is called inside; None if it is not shared."""
        return self._known(1, subject, self.outside, self.inside)

    def outward_patterns(self, pattern: str) -> list[str]:
        """What a pattern over names inside matches, as patterns over names outside."""
        return _of_test(pattern, lambda one: _translated(one, self.inside, self.outside))

    def inward_patterns(self, pattern: str) -> list[str]:
        """What a pattern over names outside matches, as patterns over names inside."""
        return _of_test(pattern, lambda one: _translated(one, self.outside, self.inside))

    def splits(self, inside_depth: int, outside_depth: int) -> bool:
        """Whether events of one channel inside have several channels outside.

        Order holds within a channel, so events of these may overtake each other on the way.
        """
        begins = _padded(self.outside)[:outside_depth]
        ours = set(_padded(self.inside)[:inside_depth])
        return any(not isinstance(one, str) and one not in ours for one in begins)

    def meets(self, other: Renaming) -> bool:
        """Whether some subject inside has a name by both."""
        return any(overlaps(a, b) for a in self.inside.patterns for b in other.inside.patterns)

    def _known(self, way: int, subject: str, old: _Form, new: _Form) -> str | None:
        names = self._names[way]
        try:
            return names[subject]
        except KeyError:
            pass
        if len(names) >= _NAMES_COUNT_MAX:
            names.clear()
        found = _of_test(subject, lambda one: _translated(one, old, new))
        names[subject] = found[0] if found else None
        return names[subject]


def _padded(form: _Form) -> list[str | int | tuple[int]]:
    """Its elements; those of the rest as numbers of their own: the first, the second, ..."""
    rest: list[tuple[int]] = [(number,) for number in range(64)] if form.rest else []
    return [*form.elements, *rest]


def _of_test(pattern: str, translate: Callable[[str], list[str]]) -> list[str]:
    """Test events keep their space: what is shared is shared of them, too."""
    if pattern.startswith(TEST_SPACE):
        return [TEST_SPACE + one for one in translate(pattern.removeprefix(TEST_SPACE))]
    return translate(pattern)


def _forms(inside: str, outside: str) -> tuple[_Form, _Form]:
    count, rest, elements = _inner(inside)
    told = _elements("outside", outside)
    their_rest = told[-1:] == [">"]
    if their_rest:
        told.pop()
    # Without a wildcard on either side, everything below is meant, too.
    if not count and not rest and not their_rest and "*" not in told:
        rest = "."
    if bool(rest == ">") != their_rest:
        one, other = ("inside", "outside") if rest == ">" else ("outside", "inside")
        raise _bad(outside, f"{one} ends with '>' and {other} does not: the rest has no place")
    outer = _outer(outside, told, count)
    return _Form(tuple(elements), rest), _Form(tuple(outer), rest)


def _inner(inside: str) -> tuple[int, str, list[str | int]]:
    told = _elements("inside", inside)
    rest = ">" if told[-1:] == [">"] else ""
    found: list[str | int] = []
    count = 0
    for element in told[: len(told) - len(rest)]:
        if _GROUP.search(element):
            raise _bad(inside, f"inside has {element!r}: write '*' there, and {{1}} outside")
        if element == "*":
            count += 1
        found.append(count if element == "*" else element)
    return count, rest, found


def _outer(outside: str, told: list[str], count: int) -> list[str | int]:
    found: list[str | int] = []
    is_numbered = any(_GROUP.fullmatch(element) for element in told)
    for element in told:
        group = _GROUP.fullmatch(element)
        if element == "*" and is_numbered:
            raise _bad(outside, "outside has both '*' and numbers: use one of them")
        if group is None and _GROUP.search(element):
            raise _bad(outside, f"outside has {element!r}: {{n}} is a whole element")
        if element == "*":
            found.append(1 + sum(isinstance(one, int) for one in found))
        else:
            found.append(int(group[1]) if group else element)
    used = sorted(one for one in found if isinstance(one, int))
    if used != list(range(1, count + 1)):
        wanted = ", ".join(f"{{{n}}}" for n in range(1, count + 1)) or "none"
        got = ", ".join(f"{{{n}}}" for n in used) or "none"
        raise _bad(
            outside,
            f"inside has {count} '*', so outside needs each of {wanted} once, and has {got}: "
            "otherwise names could not be translated both ways",
        )
    return found


def _elements(side: str, text: str) -> list[str]:
    if not text:
        return []
    check_pattern(text)
    if text.startswith(OWN):
        raise _bad(text, f"{side} begins with {OWN!r}: the bus's own subjects stay on their bus")
    return text.split(".")


def _bad(subject: str, what: str) -> BadSubject:
    return BadSubject(f"{subject!r}: {what}", subject=subject, position=0)


def _translated(pattern: str, old: _Form, new: _Form) -> list[str]:
    """The part of a pattern that a form shares, by the other form; two if one cannot say it."""
    elements = pattern.split(".")
    is_open = elements[-1] == ">"
    if is_open:
        elements.pop()
    count = len(old.elements)
    if is_open and len(elements) < count:  # the rest begins before ours does
        elements += ["*"] * (count - len(elements))
        tails = {"": [""], ">": [">"], ".": ["", ">"]}[old.rest]
    elif len(elements) < count:
        return []
    else:
        tail = ".".join([*elements[count:], *([">"] if is_open else [])])
        tails = [] if (not old.rest and tail) or (old.rest == ">" and not tail) else [tail]
    taken: dict[int, str] = {}
    for element, form in zip(elements, old.elements, strict=False):
        if isinstance(form, int):
            taken[form] = element
        elif element not in ("*", form):
            return []
    if pattern.startswith(OWN) and (not old.elements or isinstance(old.elements[0], int)):
        return []
    fixed = [taken[one] if isinstance(one, int) else one for one in new.elements]
    names = (".".join([*fixed, *([tail] if tail else [])]) for tail in tails)
    return [name for name in names if _is_usable(name)]


def _is_usable(name: str) -> bool:
    """Whether it is a name at all: too long a one has no subjects, and none is the bus's own."""
    try:
        check_pattern(name)
    except BadSubject:
        return False
    return not name.startswith(OWN)
