"""Finds which of the incoming events match the rows that a border wants."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from infobus.bus.deliver.event import OnBadObject, Run, objects_of, seen_of
from infobus.protocols.frames import transactions
from infobus.protocols.interest.own_rows import Row
from infobus.protocols.interest.peer_rows import PeerRows, Wanted

_OWNER = "others"  # for whom all rows are held
_SUBJECTS_COUNT_MAX = 100_000  # whose rows are remembered


class BorderRows:
    """The rows that a border wants on behalf of others. Any thread may use it."""

    def __init__(self, depth: int) -> None:
        self.rows: dict[Row, None] = {}
        self._table = PeerRows(depth, rows_count_max=sys.maxsize, spare_count_max=sys.maxsize)
        self._known: dict[str, Wanted] = {}  # by subject
        self._lock = threading.Lock()  # a matcher is one thread's at a time

    def replace(self, rows: Collection[Row]) -> tuple[list[Row], list[Row]]:
        """Want exactly these rows from now on; those that are new, and those that are gone."""
        with self._lock:
            wanted = dict.fromkeys(rows)
            added = [row for row in wanted if row not in self.rows]
            removed = [row for row in self.rows if row not in wanted]
            if added or removed:
                record = self._table.records.get(_OWNER)
                version = 0 if record is None else record.version
                self._table.update(_OWNER, version, version + 1, added, (), removed)
                self.rows, self._known = wanted, {}
            return added, removed

    def sifted(self, run: Run, on_bad_object: OnBadObject) -> Run | None:
        """The events of a run that some row asks for; None if there are none.

        A transaction is whole or not there at all. Its `places` are those asked for.
        """
        if run.places:
            return self._sifted_group(run, on_bad_object)
        items = run.items
        with self._lock:
            wanted = {subject: self._wanted(subject) for subject in dict.fromkeys(items.subjects)}
        if all(one is True for one in wanted.values()):
            return run
        if all(one is False for one in wanted.values()):
            return None
        objects = seen_of(items, objects_of(run, on_bad_object)[0])
        places = self._places(items.each_subject(), objects, wanted)
        if len(places) == len(items):
            return run
        return run.at(places) if places else None

    def _sifted_group(self, run: Run, on_bad_object: OnBadObject) -> Run | None:
        events = transactions.decode(run.items.bodies[0]).events
        inside = replace(events.at(run.places), origins=run.items.origins)
        inner = Run(run.sender, run.lane, (0,) * len(run.places), inside)
        with self._lock:
            wanted = {subject: self._wanted(subject) for subject in dict.fromkeys(inside.subjects)}
        if all(one is True for one in wanted.values()):
            return run
        objects = seen_of(inside, objects_of(inner, on_bad_object)[0])
        asked = self._places(inside.each_subject(), objects, wanted)
        return replace(run, places=tuple(run.places[at] for at in asked)) if asked else None

    def _places(
        self, subjects: Iterable[str], objects: Sequence[Any], wanted: dict[str, Wanted]
    ) -> list[int]:
        with self._lock:
            return [
                at
                for at, (subject, obj) in enumerate(zip(subjects, objects, strict=False))
                if self._is_asked_for(wanted[subject], obj)
            ]

    def _is_asked_for(self, wanted: Wanted, obj: Any) -> bool:
        if obj is None:  # it could not be read
            return False
        return wanted if isinstance(wanted, bool) else wanted(obj)

    def _wanted(self, subject: str) -> Wanted:
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= _SUBJECTS_COUNT_MAX:
                self._known.clear()
            known = self._known[subject] = self._table.wanted(subject)
        return known
