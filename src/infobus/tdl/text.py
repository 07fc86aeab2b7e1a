"""Write values as text: as a program could read them (`~s`), or for people (`~a`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from infobus.objects.data import DataObject, attribute_values, type_of, unknown_attributes
from infobus.tdl.conditions import Condition, WrongType, failed
from infobus.tdl.limits import CHARACTER_BYTES
from infobus.tdl.reader import SourcePosition
from infobus.tdl.values import Cell, ClassObject, Function, Symbol, Table, TextStream, shown_name

if TYPE_CHECKING:
    from infobus.tdl.machine import Evaluation

DEPTH_MAX = 32
PRINTING_DEPTH_MAX = 16
"""How many `print-object` methods may be active at once; each needs Python's own stack."""
PRINTING_STEPS = 20
"""The fuel that a `print-object` method costs, besides what it does."""
SHORT_LENGTH_MAX = 60
PRINTING = SourcePosition(0, 0, "printing")


def written(run: Evaluation | None, value: Any, *, is_plain: bool = False) -> str:
    """Return `value` as text; `is_plain` omits the quotes of strings.

    The text is charged to the run's memory; without a run it is cut short.
    """
    writer = _Writer(run, is_plain)
    writer.add(value, 0)
    return "".join(writer.parts)


def print_plainly(run: Evaluation, value: Any, stream: Any) -> Any:
    """Print an object in the usual way: the last method of `print-object`."""
    if stream.__class__ is not TextStream:
        raise failed(f"print-object: expected a stream, got {short(stream)}", WrongType)
    writer = _Writer(run, run.is_plain)
    writer.add_object(value, 0) if isinstance(value, DataObject) else writer.add(value, 0)
    run.allocate(len(writer.parts))
    stream.parts.extend(writer.parts)
    return value


def short(value: Any) -> str:
    """Return `value` in few characters, for an error message."""
    text = written(None, value)
    return text if len(text) <= SHORT_LENGTH_MAX else f"{text[: SHORT_LENGTH_MAX - 3]}..."


class _Writer:
    def __init__(self, run: Evaluation | None, is_plain: bool) -> None:
        self.parts: list[str] = []
        self._run = run
        self._is_plain = is_plain
        self._length = 0

    def put(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)
        if self._run is not None:
            self._run.spend(1)
            self._run.allocate(len(text), CHARACTER_BYTES)

    @property
    def _is_full(self) -> bool:
        return self._run is None and self._length > SHORT_LENGTH_MAX

    def add(self, value: Any, depth: int) -> None:
        if self._is_full:
            return
        if depth > DEPTH_MAX:
            self.put("...")
        elif value.__class__ is Cell:
            self._list(value, depth)
        elif isinstance(value, DataObject):
            if self._run is None or not self._by_method(self._run, value):
                self.add_object(value, depth)
        elif value.__class__ is Table:
            self._fields("#<hash-table", value.items(), depth)
        elif isinstance(value, (list, dict)):
            self._plain(value, depth)
        else:
            self.put(self._atom(value))

    def _atom(self, value: Any) -> str:
        if value is None:
            return "nil"
        if value.__class__ is bool:
            return "t" if value else "nil"
        if isinstance(value, str):
            if self._run is None:
                value = value[:SHORT_LENGTH_MAX]
            return value if self._is_plain else '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
        if value.__class__ is Symbol:
            return str(value.name)
        if isinstance(value, Function):
            return f"#<function {value.name}>"
        if isinstance(value, bytes):
            return f"#<{len(value)} bytes>"
        if value.__class__ is ClassObject:
            return f"#<class {shown_name(value.name)}>"
        return "#<stream>" if value.__class__ is TextStream else str(value)

    def _list(self, value: Any, depth: int) -> None:
        opening = "("
        while value.__class__ is Cell and not self._is_full:
            self.put(opening)
            self.add(value.first, depth + 1)
            value, opening = value.rest, " "
        if value is not None and value.__class__ is not Cell:
            self.put(" . ")
            self.add(value, depth + 1)
        self.put(")")

    def _plain(self, value: Any, depth: int) -> None:
        """Write a Python list or map, as objects hold them."""
        if isinstance(value, dict):
            self._fields("#<hash-table", value.items(), depth)
        elif not value:
            self.put("nil")
        else:
            for index, item in enumerate(value):
                if self._is_full:
                    break
                self.put(" " if index else "(")
                self.add(item, depth + 1)
            self.put(")")

    def _by_method(self, run: Evaluation, value: DataObject) -> bool:
        """Write an object with the program's `print-object`, if it has a method for that."""
        generic, stream = run.interpreter.printer, TextStream()
        if len(generic.methods) == 1 or len(generic.plan(run, [value, stream]).methods) == 1:
            return False  # only the one of the language applies
        if run.printing >= PRINTING_DEPTH_MAX:
            raise failed(f"print-object calls itself more than {PRINTING_DEPTH_MAX} levels deep")
        run.spend(PRINTING_STEPS)
        run.printing += 1
        was_plain, run.is_plain = run.is_plain, self._is_plain
        try:
            run.drive(generic.invoke(run, [value, stream], PRINTING))
        finally:
            run.printing -= 1
            run.is_plain = was_plain
        for part in stream.parts:
            self.put(part)
        return True

    def add_object(self, value: DataObject, depth: int) -> None:
        """Write an object in the usual way: its class and its slots."""
        if isinstance(value, Condition) and self._is_plain and value.__dict__.get("message"):
            self.put(value.message)
            return
        name = shown_name(type_of(value).name)
        held = attribute_values(value) | unknown_attributes(value)
        fields = ((Symbol(f":{name}"), item) for name, item in held.items())
        self._fields(f"#<{name}", fields, depth)

    def _fields(self, opening: str, fields: Iterable[tuple[Any, Any]], depth: int) -> None:
        self.put(opening)
        for name, item in fields:
            if self._is_full:
                break
            self.put(" ")
            self.add(name, depth + 1)
            self.put(" ")
            self.add(item, depth + 1)
        self.put(">")


_DIRECTIVE = re.compile(r"~(?:,([0-9]{1,2}))?([a-zA-Z%~])|~")


def formatted(run: Evaluation, text: str, values: tuple[Any, ...]) -> str:
    """Replace the directives in `text` by values: ~a ~s ~d ~f ~,2f ~% ~~."""
    left = list(values)

    def carry_out(match: re.Match[str]) -> str:
        digits, letter = match[1], (match[2] or "").lower()
        if letter == "%":
            return "\n"
        if letter == "~":
            return "~"
        if letter not in ("a", "s", "d", "f"):
            raise failed(f"format: {match[0]!r} is not one of ~a ~s ~d ~f ~,2f ~% ~~")
        if not left:
            raise failed(f"format: there is no value for {match[0]}")
        value = left.pop(0)
        if letter == "f" and value.__class__ in (int, float):
            return f"{float(value):.{int(digits or 2)}f}" if digits else str(float(value))
        return written(run, value, is_plain=letter != "s")

    run.allocate(len(text), CHARACTER_BYTES)  # `written` charges for the values
    result = _DIRECTIVE.sub(carry_out, text)
    if left:
        raise failed(f"format: {len(left)} values too many for {short(text)}")
    return result
