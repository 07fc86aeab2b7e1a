r"""Splits text into tokens: names, numbers, strings and operators, each with its position.

A name consists of letters, digits and the other characters that Elvin allows, except those that
are operators here; so `price>40` needs no spaces. A hyphen inside a name belongs to it
(`Presence-Protocol`), a dot steps into an object (`story.source`), and a backslash makes any
character part of a name (`a\.b`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from infobus.filters.language.errors import Complaint
from infobus.filters.language.tree import HEADERS

_FIRST = r"(?:[A-Za-z_]|[^\x00-\x7f\s]|\\.)"
_INNER = rf"(?:{_FIRST}|[0-9#$:;?@`{{}}])"
_ELEMENT_TAIL = rf"(?:{_INNER}|-+(?={_INNER}))*"
_NAME = rf"{_FIRST}{_ELEMENT_TAIL}(?:\.{_INNER}{_ELEMENT_TAIL})*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<name>{_NAME})"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)[lL]?)"
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"|(?P<op>>>>|&&|\|\||\^\^|==|!=|<=|>=|<<|>>|[-+*/%&|^~!<>()\[\],])|(?P<end>\Z))",
    re.DOTALL,
)
_NUMBER_TAIL = re.compile(rf"(?:{_INNER}|\.)+", re.DOTALL)
_PLAIN_FIRST = re.compile(r"[A-Za-z_]|[^\x00-\x7f\s]")
_PLAIN_INNER = re.compile(r"[A-Za-z_0-9#$:;?@`{}]|[^\x00-\x7f\s]")
_PLAIN_ELEMENT = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_ELEMENT = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTE_ESCAPE = re.compile(r"\\([\\\"'])")


class Token(NamedTuple):
    """A piece of the text; `kind` is `name`, `number`, `string`, `op` or `end`."""

    kind: str
    text: str
    position: int


def tokens(text: str) -> Iterator[Token]:
    """Return the tokens of `text`; the last one has the kind `end`."""
    position, kind = 0, ""
    while kind != "end":
        found = _TOKEN.match(text, position)
        if found is None:
            raise _misplaced(text, position)
        kind = found.lastgroup or ""
        position = found.end()
        token = Token(kind, found[kind], found.start(kind))
        if kind == "number" and (tail := _NUMBER_TAIL.match(text, position)):
            raise Complaint(
                token.position,
                f"{token.text}{tail[0]:.40} is not a number",
                "whole numbers are written 10, 10L or 0xff, reals 1.5 or 1.5e10",
            )
        yield token


def _misplaced(text: str, position: int) -> Complaint:
    position += len(text[position:]) - len(text[position:].lstrip())
    character = text[position]
    if character in "\"'":
        return Complaint(position, f"the string has no closing {character}")
    if character == "=":
        return Complaint(position, "'=' is not an operator", "write == to compare")
    if character == ".":
        return Complaint(position, "a name or number cannot begin with '.'", "write 0.5 for .5")
    return Complaint(position, f"{character!r} cannot stand here")


def name_path(text: str) -> tuple[str, ...]:
    r"""Return the elements of a name token.

    >>> name_path(r"story.a\.b")
    ('story', 'a.b')
    """
    if "\\" not in text:
        return tuple(text.split("."))
    return tuple(_ESCAPE.sub(r"\1", element) for element in _ELEMENT.findall(text))


def name_text(path: tuple[str, ...]) -> str:
    r"""Return a path as you write it in a filter.

    >>> name_text(("story", "a.b"))
    'story.a\\.b'
    """
    if path[:1] == (HEADERS,):
        return f"header({string_text(path[1])})"
    text = ".".join(_element_text(element, number) for number, element in enumerate(path))
    return f"\\{text}" if text in ("true", "false") else text


def _element_text(element: str, number: int) -> str:
    if _PLAIN_ELEMENT.fullmatch(element):
        return element
    parts = []
    for index, character in enumerate(element):
        if character == "-":
            is_plain = index > 0 and element[index:].strip("-") != ""
        elif index == 0 and number == 0:
            is_plain = _PLAIN_FIRST.match(character) is not None
        else:
            is_plain = _PLAIN_INNER.match(character) is not None
        parts.append(character if is_plain else f"\\{character}")
    return "".join(parts)


def string_value(text: str) -> str:
    r"""Return the value of a string token; a backslash quotes the next character.

    >>> string_value(r"'it\'s'")
    "it's"
    """
    return _ESCAPE.sub(r"\1", text[1:-1]) if "\\" in text else text[1:-1]


def pattern_value(text: str) -> str:
    r"""Return the pattern of `regex` or `wildcard` in a string token.

    A backslash disappears only before a quote or another backslash, so that both `"\d"` and
    `"\\d"` mean a digit.

    >>> pattern_value(r'"\d+\\.\""')
    '\\d+\\."'
    """
    return _QUOTE_ESCAPE.sub(r"\1", text[1:-1])


def string_text(value: str) -> str:
    """Return a string as you write it in a filter."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
