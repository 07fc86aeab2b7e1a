"""The reader: turn text into forms, each with its position.

form    symbol, keyword, number, string, (form ...), 'form, #'name
symbol  any run of characters but blanks, quotes, semicolons and parentheses; case counts
comment from ; to the end of the line, or between #| and |#
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from infobus.errors import TdlError
from infobus.tdl.values import Symbol, make_list

NESTING_MAX = 64
NAME_LENGTH_MAX = 255
INTEGER_BITS_MAX = 1024

_TOKEN = re.compile(
    r"""(?P<blank>\s+|;[^\n]*|\#\|.*?\|\#)
    |(?P<open>\()|(?P<close>\))
    |(?P<quote>\#?')
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<atom>[^\s()'"`;]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]{1,4})?")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
_WRAPPERS = {"'": Symbol("quote"), "#'": Symbol("function")}


class SourcePosition(NamedTuple):
    """The position of a form: lines and columns count from 1, and `origin` names the text.

    Line 0 means that there is an origin but no text.
    """

    line: int
    column: int
    origin: str = ""

    def __str__(self) -> str:
        if not self.line:
            return self.origin
        place = f"{self.line}:{self.column}"
        return f"{self.origin}:{place}" if self.origin else place


class Atom(NamedTuple):
    """A symbol, number or string."""

    value: Any
    at: SourcePosition


class Parenthesized(NamedTuple):
    """Forms in parentheses; a top-level group also has its source `text`."""

    items: tuple[Form, ...]
    at: SourcePosition
    text: str = ""


Form: TypeAlias = Atom | Parenthesized


def bad_form(at: SourcePosition, message: str) -> TdlError:
    """Return the error for text that is not a valid program."""
    return TdlError(f"{at}: {message}", line=at.line, column=at.column, origin=at.origin)


def datum(form: Form) -> Any:
    """Return the form as a value, as `quote` does."""
    if isinstance(form, Parenthesized):
        return make_list(datum(item) for item in form.items)
    if form.value == Symbol("nil"):
        return None
    return True if form.value == Symbol("t") else form.value


def read(text: str, origin: str = "") -> list[Form]:
    """Parse `text` into forms; raise `TdlError` with the position of an error.

    >>> [group] = read("(+ 1 2.5)")
    >>> [atom.value for atom in group.items]
    [Symbol(name='+'), 1, 2.5]
    """
    return _Reading(text, origin).forms()


def is_unfinished(text: str) -> bool:
    """Return whether more lines could complete `text`."""
    depth = end = 0
    for token in _tokens(text):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        end = token.end()
    is_open_text = text[end : end + 1] == '"' or text[end : end + 2] == "#|"
    return depth > 0 or is_open_text


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens up to the first character that starts none."""
    place = 0
    while token := _TOKEN.match(text, place):
        # An unfinished comment would otherwise become an atom.
        if token.lastgroup == "atom" and token.group().startswith("#|"):
            return
        yield token
        place = token.end()


class _Open:
    """A group or a quote whose forms are not complete yet."""

    def __init__(self, at: SourcePosition, start: int, wrapper: Symbol | None = None) -> None:
        self.at = at
        self.start = start
        self.wrapper = wrapper
        self.items: list[Form] = []


class _Reading:
    def __init__(self, text: str, origin: str) -> None:
        self._text = text
        self._origin = origin
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._stack = [_Open(SourcePosition(1, 1, origin), 0)]

    def forms(self) -> list[Form]:
        end = 0
        for token in _tokens(self._text):
            self._take(token)
            end = token.end()
        if end < len(self._text):
            raise bad_form(self._at(end), _complaint(self._text[end : end + 2]))
        if len(self._stack) > 1:
            missing = "a closing parenthesis" if self._stack[-1].wrapper is None else "a form"
            raise bad_form(self._stack[-1].at, f"{missing} is missing for what begins here")
        return self._stack[0].items

    def _at(self, place: int) -> SourcePosition:
        line = bisect_right(self._line_starts, place)
        return SourcePosition(line, place - self._line_starts[line - 1] + 1, self._origin)

    def _take(self, token: re.Match[str]) -> None:
        kind, text = token.lastgroup, token.group()
        if kind == "blank":
            return
        at = self._at(token.start())
        if kind in ("open", "quote"):
            if len(self._stack) > NESTING_MAX:
                raise bad_form(at, f"forms are nested deeper than {NESTING_MAX} levels")
            self._stack.append(_Open(at, token.start(), _WRAPPERS.get(text)))
        elif kind == "close":
            if len(self._stack) == 1:
                raise bad_form(at, "a closing parenthesis without an opening one")
            if self._stack[-1].wrapper is not None:
                raise bad_form(at, "expected a form after the quote, got a closing parenthesis")
            self._close(token.end())
        elif kind == "string":
            self._add(Atom(_ESCAPE.sub(_unescaped, text[1:-1]), at), token.end())
        else:
            self._add(Atom(_atom(text, at), at), token.end())

    def _close(self, end: int) -> None:
        done = self._stack.pop()
        text = self._text[done.start : end] if len(self._stack) == 1 else ""
        self._add(Parenthesized(tuple(done.items), done.at, text), end)

    def _add(self, form: Form, end: int) -> None:
        opened = self._stack[-1]
        opened.items.append(form)
        if opened.wrapper is not None:
            opened.items.insert(0, Atom(opened.wrapper, opened.at))
            self._close(end)


def _unescaped(match: re.Match[str]) -> str:
    char = match[1]
    return _ESCAPED.get(char, char)


def _complaint(start: str) -> str:
    if start.startswith('"'):
        return "a string begins here and does not end"
    if start == "#|":
        return "a comment begins here and does not end"
    if start[0] == "`":
        return "'`' has no meaning here, because there are no macros; use list"
    return f"{start[0]!r} has no meaning here"


def _atom(text: str, at: SourcePosition) -> Any:
    if _INTEGER.fullmatch(text):
        # The length is checked first: Python refuses to parse very long integers.
        if len(text) > INTEGER_BITS_MAX or int(text).bit_length() > INTEGER_BITS_MAX:
            raise bad_form(at, f"the integer has more than {INTEGER_BITS_MAX} bits")
        return int(text)
    if _FLOAT.fullmatch(text):
        if math.isinf(value := float(text)):
            raise bad_form(at, f"{text:.40} is too large for a float")
        return value
    if len(text) > NAME_LENGTH_MAX:
        raise bad_form(at, f"a name of more than {NAME_LENGTH_MAX} characters")
    if text.startswith("#\\"):
        raise bad_form(at, 'there are no characters; write a string, such as "a"')
    if text[0] == "#" or text in (".", ":"):
        raise bad_form(at, f"{text!r} has no meaning here")
    return Symbol(text)
