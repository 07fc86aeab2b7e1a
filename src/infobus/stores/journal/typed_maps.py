r"""Stores values of any shape as typed maps: one entry for each scalar inside, under its path.

    {"price": 41.5, "tags": ["a", "b"], "by": {"name": "GM"}}

becomes

    price -> float 41.5        tags -> list, int 2        tags[0] -> str a
    tags[1] -> str b           by -> dict                 by.name -> str GM

A backslash escapes dots, brackets and backslashes inside a key. A value that is not a map itself,
such as an attribute of kind `any`, has the empty path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from infobus.errors import BadFrame
from infobus.filters.language.values import stored_attributes_of
from infobus.headers import NO_HEADERS, Headers, HeaderValue
from infobus.objects import DataObject, codec, find_type, id_of, type_of

Entry = tuple[str, dict[str, Any]]
"""A path, and the value there: its `kind`, and one more field that is named after the kind."""

FIELDS = {bool: "bool", int: "int", float: "float", str: "text", bytes: "bytes", datetime: "time"}
"""Which field of an entry holds a value."""
KINDS = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes", datetime: "datetime"}

_SPECIAL = re.compile(r"[.\[\]\\]")
_STEP = re.compile(r"\[(\d+)\]|\.?((?:[^.\[\]\\]|\\.)+)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_EMPTY = "\\-"  # an empty key would leave no trace in a path


def entries_of(attributes: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of an event's attributes.

    >>> [path for path, _ in entries_of({"a": {"b.c": 1}, "d": [None]})]
    ['a', 'a.b\\\\.c', 'd', 'd[0]']
    """
    found: list[Entry] = []
    for name, value in attributes.items():
        _add(found, escaped(name), value)
    return found


def entries_of_value(value: Any) -> list[Entry] | None:
    """Return the entries of one value, which has the empty path itself; None for None."""
    if value is None:
        return None
    found: list[Entry] = []
    _add(found, "", value)
    return found


def _add(found: list[Entry], path: str, value: Any) -> None:
    if value is None:
        found.append((path, {"kind": "none"}))
    elif (kind := KINDS.get(value.__class__)) is not None:
        found.append((path, {"kind": kind, FIELDS[value.__class__]: value}))
    elif isinstance(value, list):
        found.append((path, {"kind": "list", "int": len(value)}))
        for at, item in enumerate(value):
            _add(found, f"{path}[{at}]", item)
    elif isinstance(value, DataObject):
        found.append((path, {"kind": "object", "text": type_of(value).name}))
        if (id := id_of(value)) is not None:
            found.append((f"{path}[id]", {"kind": "id", "text": id}))
        _add_all(found, path, stored_attributes_of(value))
    else:
        found.append((path, {"kind": "dict"}))
        _add_all(found, path, value)


def _add_all(found: list[Entry], path: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        _add(found, f"{path}.{escaped(name)}" if path else escaped(name), value)


def header_entries(headers: Mapping[str, HeaderValue]) -> list[Entry] | None:
    """Return the entries of headers, each under its plain name; None if there are none.

    >>> header_entries({"trace.id": "4bf92f"})
    [('trace.id', {'kind': 'str', 'text': '4bf92f'})]
    """
    if not headers:
        return None
    return [
        (name, {"kind": KINDS[value.__class__], FIELDS[value.__class__]: value})
        for name, value in headers.items()
    ]


def headers_in(entries: Iterable[Read] | None) -> Headers:
    """Return the headers from which `header_entries` made these entries."""
    return Headers({name: value for name, _, value in entries}) if entries else NO_HEADERS


def escaped(name: str) -> str:
    """Return a key, escaped as part of a path."""
    return _SPECIAL.sub(r"\\\g<0>", name) if name else _EMPTY


Read = tuple[str, str, Any]
"""An entry as it is read: path, kind and value."""

FIELD_OF = {
    **{kind: FIELDS[cls] for cls, kind in KINDS.items()},
    "list": "int",
    "object": "text",
    "id": "text",
}
"""Which field of an entry holds the value, by kind; none for the others."""


def read_entries(entries: Iterable[Entry]) -> list[Read]:
    """Return entries in short form, from the form that Arrow returns."""
    return [
        (path, mark["kind"], mark.get(FIELD_OF.get(mark["kind"], ""))) for path, mark in entries
    ]


def attributes_in(entries: Iterable[Read]) -> dict[str, Any]:
    """Return the attributes from which `entries_of` made these entries."""
    return {name: _revive(node) for name, node in _tree(entries).below.items()}


def value_in(entries: Iterable[Read] | None) -> Any:
    """Return the value from which `entries_of_value` made these entries."""
    return None if entries is None else _revive(_tree(entries))


class _Node:
    __slots__ = ("below", "id", "kind", "value")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.kind = "dict"
        self.value: Any = None
        self.id: str | None = None


def _tree(entries: Iterable[Read]) -> _Node:
    root = _Node()
    for path, kind, value in entries:
        if kind == "id":
            _node_at(root, path.removesuffix("[id]")).id = value
        else:
            node = _node_at(root, path)
            node.kind, node.value = kind, value
    return root


def _node_at(node: _Node, path: str) -> _Node:
    for found in _STEP.finditer(path):
        index, name = found.groups()
        step = index or ("" if name == _EMPTY else _ESCAPED.sub(r"\1", name))
        node = node.below.setdefault(step, _Node())
    return node


def _revive(node: _Node) -> Any:
    if node.kind == "dict":
        return {name: _revive(below) for name, below in node.below.items()}
    if node.kind == "list":
        return [_revive(below) for below in node.below.values()]
    if node.kind == "object":
        attributes = {name: _revive(below) for name, below in node.below.items()}
        return object_of(node.value, attributes, node.id)
    return node.value


def object_of(type_name: str, attributes: dict[str, Any], id: str | None) -> Any:
    """Return an object of the type of that name, as if it had just been received."""
    known = find_type(type_name)
    return object_under(0 if known is None else known.fingerprint, attributes, id)


def object_under(fingerprint: int, attributes: dict[str, Any], id: str | None) -> Any:
    """Return an object of the type with that fingerprint; a dict if it is 0 or unknown."""
    _, body, _ = codec.encode(attributes)
    try:
        return codec.decode(fingerprint, body, id)
    except BadFrame:
        return attributes
