"""Believing types: a process takes descriptors from those alone whom its buses' policies name."""

from __future__ import annotations

from infobus.objects import classes, registry
from infobus.objects.descriptors import authorship
from infobus.security.type_authors import TypeAuthors, is_by

_authors: dict[str, TypeAuthors] = {}  # by node


def believe(node: str, authors: TypeAuthors | None) -> None:
    """Take descriptors only from these authors; with None, this node has none to name (any more).

    What was received before is learned anew. Types are those of the process: with several nodes,
    all that govern a type must name its author.
    """
    if authors is None and node not in _authors:
        return
    if authors is None:
        del _authors[node]
    else:
        _authors[node] = authors
    registry.believes = _believes if _authors else None
    registry.author_names = _names if _authors else None
    classes.forget_unbelieved()


def _believes(type_name: str, descriptor: bytes) -> bool:
    governing = [one for one in _authors.values() if one.is_governed(type_name)]
    if not governing:
        return True
    told = authorship(descriptor)
    if told is None or not is_by(told.key, told.message, told.signature):
        return False
    return all(one.may_define(type_name, told.key) for one in governing)


def _names(key: bytes) -> frozenset[str]:
    return frozenset().union(*(one.names(key) for one in _authors.values()))
