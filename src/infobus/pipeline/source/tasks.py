"""Cuts a selection into the shares of Spark's tasks: several small files, or a part of a large one.

Tasks are small enough that a cluster has something to share, and large enough that starting them
does not matter: Spark spends some 15 ms on a task, whatever it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from infobus.stores.journal.columns import REST
from infobus.stores.journal.journal import Segment, Selection
from infobus.stores.journal.writer import ROW_GROUP_COUNT

TASK_COUNT = 16
"""Tasks that a selection is cut into, unless they would be too small or too large."""
TASK_EVENTS_MIN, TASK_EVENTS_MAX = 32_768, 524_288
"""Events of one task, about."""
MAP_EVENTS_MIN = 12_500
"""The same if attributes are read as typed maps, which takes several times as long."""
TASK_BYTES_MAX = 128 * 1024**2
"""Bytes of the files of one task, about: as with Spark's own sources."""


def shares(selection: Selection, count_min: int | None = None) -> list[Selection]:
    """Return what each task reads; at least `count_min` tasks, if there are so many events."""
    counts = [_count_in(selection, one) for one in selection.segments]
    events = _task_events(selection, sum(counts), count_min or 1)
    parts: list[Selection] = []
    small: list[tuple[Segment, float]] = []
    for segment, count in zip(selection.segments, counts, strict=True):
        read_bytes = segment.bytes * count / segment.count
        share = max(count / events, read_bytes / TASK_BYTES_MAX)
        if share < 1.5:
            small.append((segment, share))
        else:
            parts += _cut(selection.part([segment]), segment, round(share))
    return [*map(selection.part, _grouped(small)), *parts]


def _task_events(selection: Selection, count: int, count_min: int) -> float:
    has_maps = selection.is_generic and REST in selection.columns
    least = MAP_EVENTS_MIN if has_maps else TASK_EVENTS_MIN
    events = min(max(count // TASK_COUNT, least), TASK_EVENTS_MAX)
    return min(events, max(count / count_min, 1))


def _count_in(selection: Selection, segment: Segment) -> int:
    """Return how many events of a file lie between the selected offsets, at most."""
    start, stop = _between(selection, segment)
    return max(0, min(segment.count, stop - start))


def _between(selection: Selection, segment: Segment) -> tuple[int, int]:
    conditions = selection.conditions
    start, stop = segment.first, segment.last + 1
    if conditions.start is not None:
        start = max(start, conditions.start)
    if conditions.stop is not None:
        stop = min(stop, conditions.stop)
    return start, stop


def _cut(selection: Selection, segment: Segment, count: int) -> Iterator[Selection]:
    """Cut a file by offsets, at the borders of its row groups if the parts are that large."""
    start, stop = _between(selection, segment)
    step = ceil((stop - start) / count)
    is_dense = segment.last + 1 - segment.first == segment.count
    if is_dense and step >= ROW_GROUP_COUNT:
        step = round(step / ROW_GROUP_COUNT) * ROW_GROUP_COUNT
    border = start
    while border < stop:
        following = border + step
        if is_dense and step >= ROW_GROUP_COUNT:
            following -= (following - segment.first) % ROW_GROUP_COUNT
        yield selection.narrowed(start=border, stop=min(following, stop))
        border = following


def _grouped(small: list[tuple[Segment, float]]) -> list[list[Segment]]:
    """Put neighbours together to tasks of about one size."""
    total, before = sum(share for _, share in small), 0.0
    groups: dict[int, list[Segment]] = {}
    for segment, share in small:
        middle = before + share / 2
        groups.setdefault(int(middle * ceil(total) / total), []).append(segment)
        before += share
    return list(groups.values())
