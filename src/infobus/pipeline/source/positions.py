"""Positions in a stream of a journal: where it begins, how far a batch goes, what is left.

A position names the journal and an offset: everything before it has been read. It also names the
*era* in which the event before it was written. A journal that was restored from an older copy gives
old offsets to new events, but in another era, so a position from before is recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from infobus.errors import StoreError, UsageError
from infobus.stores.journal.journal import Journal, Segment, Selection

Place = dict[str, Any]
"""A position as Spark stores it: `journal`, `offset`, `era`, and maybe `taken`."""


def place_at(journal: Journal, offset: int, taken: int | None = None) -> Place:
    """Return a position. `taken`: the query knows that retention has removed events up to there."""
    place: Place = {"journal": journal.id, "offset": offset}
    if (era := journal.era_before(offset)) is not None:
        place["era"] = era
    if taken is not None and offset < taken:
        place["taken"] = taken
    return place


def earliest(journal: Journal, selection: Selection, type: str | None) -> Place:
    """Return the position before everything that is still there.

    Retention removes whole files, and offsets of different types lie between each other. So files
    of one type may reach further back than what was removed of another.
    """
    taken = journal.first_offset_of(type)
    there = min((one.first for one in selection.segments), default=taken)
    return place_at(journal, min(there, taken), taken)


def offset_in(
    journal: Journal, place: Mapping[str, Any], type: str | None = None, *, loss_ok: bool = False
) -> int:
    """Return the offset of a position in this journal.

    Raises:
        UsageError: It is a position in another journal, or in one that was replaced by an older
            copy of it.
        StoreError: Retention has removed events of the type that were not read yet, and that is
            not `loss_ok`.
    """
    if place["journal"] != journal.id:
        raise UsageError(
            f"the checkpoint belongs to the journal {place['journal']}, but in {journal.folder} "
            f"there is {journal.id}: begin with a new checkpoint, or name the right folder"
        )
    offset = int(place["offset"])
    _check_era(journal, offset, place.get("era"))
    taken = journal.first_offset_of(type)
    if offset < taken and place.get("taken") != taken and not loss_ok:
        raise StoreError(
            f"retention has taken events from offset {offset} on, up to {taken}, before this query "
            "has read them: to go on without them, set the option failOnDataLoss to false, or "
            "begin with a new checkpoint",
            path=str(journal.folder),
        )
    return offset


def _check_era(journal: Journal, offset: int, era: str | None) -> None:
    end = journal.next_offset if era is None else journal.era_end(era, offset)
    if end is not None and offset <= end:
        return
    where = (
        f"ends at {journal.next_offset}"
        if offset > journal.next_offset
        else "has other events before that offset than those that were read"
    )
    raise UsageError(
        f"the checkpoint is at offset {offset}, but the journal in {journal.folder} {where}: it "
        "seems to have been restored from an older copy; begin with a new checkpoint, and with "
        "startingOffset where this query is to go on"
    )


def offset_at(journal: Journal, moment: datetime) -> int:
    """Return the offset of the first event published at this time or later; the end if none is.

    Events of several publishers lie in the journal in the order of their arrival, so events behind
    it may be older.
    """
    selection = journal.select(since=moment, columns=("_offset",))
    found = journal.next_offset
    for segment in sorted(selection.segments, key=lambda one: one.first):
        if segment.first >= found:
            break
        table = selection.part([segment]).table()
        if table.num_rows:
            found = min(found, table["_offset"][0].as_py())
    return found


def fitting(
    selection: Selection, begin: int, end: int, most: int, weight: Callable[[Segment], float]
) -> int:
    """Return the largest end before which there is certainly no more than `most` to read."""

    def certainly(stop: int) -> float:
        return sum(
            weight(one) * min(one.count, max(0, min(stop, one.last + 1) - max(begin, one.first)))
            for one in selection.segments
        )

    low, high = begin + 1, end  # at least one event, or the stream would never advance
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if certainly(middle) <= most else (low, middle - 1)
    return low


def behind_s(journal: Journal, offset: int, now_s: float) -> float:
    """Return how old the oldest event is that was not read yet, at most; 0 if all were read."""
    left = [one.limits.get("_time") for one in journal.manifest.segments if one.last >= offset]
    times_us = [limits[0] for limits in left if limits is not None and limits[0] is not None]
    return max(0.0, now_s - min(times_us) / 1e6) if times_us else 0.0
