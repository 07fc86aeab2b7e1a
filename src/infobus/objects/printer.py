"""`describe`: print any object, by introspection alone.

It understands the fundamental kinds, and finds out everything else by asking the object
(paper 000, section 3). It first makes plain lines in which each part has a style. Colours are
added only when the output is a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TextIO

from infobus.objects.data import DataObject, Foreign, attribute_values, id_of, type_of
from infobus.objects.kinds import DEPTH_MAX
from infobus.objects.types import Type
from infobus.printable import printable

TEXT_LENGTH_MAX = 200
ITEM_COUNT_MAX = 100
LINE_COUNT_MAX = 10_000

Part = tuple[str, str]
"""A piece of text and its style: a style name of rich, or empty for plain text."""
Line = tuple[int, list[Part]]
"""The indentation of a line, and its parts."""

_NAME, _KIND, _VALUE, _NOTE, _TITLE = "cyan", "dim", "green", "italic yellow", "bold"


def describe(obj: object, file: TextIO | None = None) -> None:
    """Print the type and content of `obj`, with all nested values.

    You can pass an object of any type (also a received one of unknown type), a type, a dict, a
    list, or any other Python value. The output goes to `file` (standard output by default), in
    colour if that is a terminal; to get it as text, pass an `io.StringIO`. Long texts and lists
    are shortened. The output ends after 10,000 lines, because an object with shared parts may
    contain them exponentially often.

    >>> class Reading(DataObject):
    ...     celsius: float
    >>> describe(Reading(celsius=21.5))
    Reading
      celsius: float = 21.5
    """
    if isinstance(obj, type) and issubclass(obj, DataObject):
        obj = type_of(obj)
    found = _type_lines(obj) if isinstance(obj, Type) else _Walk().value_lines(obj, [])
    lines = [
        (depth, [(printable(text), style) for text, style in line])
        for depth, line in islice(found, LINE_COUNT_MAX)
    ]
    if len(lines) == LINE_COUNT_MAX and next(found, None) is not None:
        lines.append((0, [(f"... (the first {LINE_COUNT_MAX:,} lines)", _NOTE)]))
    text = "\n".join("  " * depth + "".join(part for part, _ in line) for depth, line in lines)
    target = file if file is not None else sys.stdout
    if target.isatty():
        _print_coloured(lines, target)
    else:
        print(text, file=target)


def _print_coloured(lines: Iterable[Line], target: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=target, highlight=False)
    for depth, line in lines:
        console.print(Text.assemble("  " * depth, *line), soft_wrap=True)


class _Walk:
    """One description. It remembers the values around the current one, so that cycles end."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def value_lines(self, value: object, head: list[Part]) -> Iterator[Line]:
        """Yield the lines for a value; the first line begins with `head`."""
        depth = len(self._open)
        if not isinstance(value, (DataObject, dict, list, tuple, set, frozenset)):
            yield depth, [*head, (_shortened(value), _VALUE)]
        elif id(value) in self._open:
            yield depth, [*head, ("(contains itself: already shown above)", _NOTE)]
        elif depth > DEPTH_MAX:
            yield depth, [*head, ("(nested too deep to show)", _NOTE)]
        elif not isinstance(value, DataObject) and not value:
            yield depth, [*head, (_shortened(value), _VALUE)]
        else:
            self._open.append(id(value))
            yield from self._content(value, head, depth)
            self._open.pop()

    def _content(self, value: Any, head: list[Part], depth: int) -> Iterator[Line]:
        if isinstance(value, DataObject):
            yield depth, [*head, *_title(value)]
            yield from self._object_lines(value)
            return
        kind = f"{type(value).__name__} of {len(value)}"
        yield depth, [*head, (kind, _KIND)]
        items: Iterable[tuple[Any, Any]] = (
            value.items() if isinstance(value, dict) else enumerate(value)
        )
        for shown, (key, item) in enumerate(items):
            if shown == ITEM_COUNT_MAX:
                yield depth + 1, [(f"... and {len(value) - shown} more", _NOTE)]
                return
            label = _shortened(key) if isinstance(value, dict) else f"[{key}]"
            yield from self.value_lines(item, [(label, _NAME), (": ", "")])

    def _object_lines(self, obj: DataObject) -> Iterator[Line]:
        known = type_of(obj)
        tag = (
            obj.__bus_tag__ if obj.__bus_tag__.__class__ is Foreign else Foreign(known.fingerprint)
        )
        for name, value in attribute_values(obj).items():
            if name in tag.filled:
                continue
            kind = f": {obj.__bus_plan__.attributes[name].type}"
            yield from self.value_lines(value, [(name, _NAME), (kind, _KIND), (" = ", "")])
        for name, value in tag.extra.items():
            note = (" (unknown attribute)" if known.is_known else "", _NOTE)
            if name in obj.__bus_plan__.attributes:
                note = (" (sent with another type)", _NOTE)
            elif name in known.attributes.names:  # a generic object of a known type
                note = (f": {known.attributes[name].type}", _KIND)
            yield from self.value_lines(value, [(name, _NAME), note, (" = ", "")])
        for name in tag.filled:
            if name not in tag.extra:
                value = obj.__dict__[name]
                head = [(name, _NAME), (" (not sent)", _NOTE), (" = ", "")]
                yield from self.value_lines(value, head)


def _title(obj: DataObject) -> list[Part]:
    known = type_of(obj)
    parts = [(known.name, _TITLE)]
    if known.supertypes:
        parts.append((f" (supertypes: {', '.join(_supertype_names(known))})", _KIND))
    if not known.is_known:
        parts.append((" (type not known here)", _NOTE))
    if obj.__bus_tag__.__class__ is Foreign and (misfit := obj.__bus_tag__.misfit) is not None:
        parts.append((f" (as sent; here {misfit.path[1:]}: {misfit.problem})", _NOTE))
    if (object_id := id_of(obj)) is not None:
        parts.append((f" id {object_id}", _KIND))
    return parts


def _supertype_names(known: Type) -> list[str]:
    """Return the names of all supertypes, nearest first."""
    names: dict[str, None] = {}
    level = list(known.supertypes)
    while level:
        names.update(dict.fromkeys(s.name for s in level))
        level = [above for s in level for above in s.supertypes if above.name not in names]
    return list(names)


def _type_lines(known: Type) -> Iterator[Line]:
    yield 0, [("type ", _KIND), (known.name, _TITLE), (f" {known.fingerprint:016x}", _KIND)]
    if not known.is_known:
        yield 1, [("no descriptor of it has come", _NOTE)]
    for text in known.doc.splitlines():
        yield 1, [(text, "")]
    if known.supertypes:
        yield 1, [("supertypes: ", _KIND), (", ".join(_supertype_names(known)), "")]
    if known.subtypes:
        yield 1, [("subtypes: ", _KIND), (", ".join(s.name for s in known.subtypes), "")]
    for attribute in known.attributes:
        line = [(attribute.name, _NAME), (f": {attribute.type}", _KIND)]
        if attribute.has_default:
            line += [(" = ", ""), (_shortened(attribute.default), _VALUE)]
        yield 1, line + _origin(attribute.inherited_from, attribute.doc)
    for operation in known.operations:
        line = [(operation.signature, _NAME)]
        yield 1, line + _origin(operation.inherited_from, operation.doc)


def _origin(inherited_from: str | None, doc: str) -> list[Part]:
    source = [(f" (from {inherited_from})", _KIND)] if inherited_from else []
    return source + ([(f"  {doc.splitlines()[0]}", _NOTE)] if doc else [])


def _shortened(value: object) -> str:
    try:
        if isinstance(value, (str, bytes)) and len(value) > TEXT_LENGTH_MAX:
            unit = "characters" if isinstance(value, str) else "bytes"
            return f"{value[:TEXT_LENGTH_MAX]!r}... ({len(value)} {unit})"
        text = repr(value)
    except Exception as error:
        # A __repr__ that fails must not stop the rest of the object from being printed.
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"
    if len(text) > TEXT_LENGTH_MAX:
        return f"{text[:TEXT_LENGTH_MAX]}... ({len(text)} characters)"
    return text
