"""Runs of events with other subjects: what crosses a border is not decoded, only renamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from infobus.protocols.frames import transactions
from infobus.protocols.frames.items import Items
from infobus.protocols.frames.transactions import Group

Rename = Callable[[str], str | None]
"""What a subject is called on the other side; None if it does not cross."""


def crossing(items: Items, rename: Rename) -> list[int] | None:
    """Return the places of the events that cross; None for all of them.

    >>> crossing(Items(["a", "b"], [7], [0.5], [0], [b"1", b"2"]), {"a": "x"}.get)
    [0]
    >>> crossing(Items(["b"], [7], [0.5], [0], [b"1", b"2"]), {"a": "x"}.get)
    []
    """
    if all(rename(subject) is not None for subject in items.subjects):
        return None
    subjects = zip(range(len(items)), items.each_subject(), strict=False)
    return [at for at, subject in subjects if rename(subject) is not None]


def renamed(items: Items, rename: Rename) -> Items:
    """Return events, all of which cross, under their names on the other side.

    >>> renamed(Items(["a.x"], [7], [0.5], [0], [b"1"]), {"a.x": "eu.x"}.get).subjects
    ['eu.x']
    """
    return replace(items, subjects=[rename(subject) or "" for subject in items.subjects])


def renamed_group(items: Items, places: Sequence[int], rename: Rename) -> Items | None:
    """Return the item of a transaction, with those of its events at `places` that cross.

    None if none crosses.
    """
    group = transactions.decode(items.bodies[0])
    events = group.events.at(places)
    if (crosses := crossing(events, rename)) is not None:
        events = events.at(crosses)
    if not len(events):
        return None
    events = renamed(events, rename)
    body = transactions.encode(Group(group.number, group.epoch, 1, events, len(events)))
    return replace(items, subjects=[next(iter(events.each_subject()))], bodies=[body])
