"""Runs of events with other subjects: what crosses a border is not decoded, only renamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from infobus.protocols.frames import transactions
from infobus.protocols.frames.items import Items
from infobus.protocols.frames.transactions import Group

Rename = Callable[[str], str | None]
"""What a subject is called on the other side; None if it does not cross."""


def renamed(items: Items, rename: Rename) -> Items:
    """Return the events that cross, under their names on the other side.

    >>> run = Items(["a.x", "b", "a.y"], [7], [0.5], [0], [b"1", b"2", b"3"])
    >>> told = renamed(run, {"a.x": "eu.x", "a.y": "eu.y"}.get)
    >>> told.subjects, list(told.each_number()), told.bodies
    (['eu.x', 'eu.y'], [7, 9], [b'1', b'3'])
    """
    found = [rename(subject) for subject in items.subjects]
    if None in found:
        if len(found) == 1:
            return items[0:0]
        crossing = [at for at, name in enumerate(found) if name is not None]
        items = items.at(crossing)
    return replace(items, subjects=[name for name in found if name is not None])


def renamed_group(items: Items, places: Sequence[int], rename: Rename) -> Items:
    """Return the item of a transaction, with those of its events at `places` that cross.

    None are left if none crosses.
    """
    group = transactions.decode(items.bodies[0])
    events = renamed(group.events.at(places), rename)
    if not len(events):
        return items[0:0]
    body = transactions.encode(Group(group.number, group.epoch, 1, events, len(events)))
    return replace(items, subjects=[next(iter(events.each_subject()))], bodies=[body])
