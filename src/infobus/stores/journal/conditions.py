"""The conditions of a selection, decided by the manifest if possible, else row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from infobus.stores.journal.manifest import Segment
from infobus.subjects import matches


@dataclass(frozen=True)
class Conditions:
    """Conditions on events; None means "no condition"."""

    subject: str | None = None
    """A pattern."""
    where: str | None = None
    """A filter on the attributes, as they were when they were written."""
    shown: str | None = None
    """A filter on the columns, as they are read; it may let through what it is not true of."""
    since: datetime | None = None
    until: datetime | None = None
    """The publisher's clock; `until` itself does not belong to it."""
    start: int | None = None
    stop: int | None = None
    """Offsets; `stop` itself does not belong to them."""

    def may_be_in(self, segment: Segment) -> bool:
        """Return whether a segment may hold such events, ignoring content; False is certain."""
        if self.start is not None and segment.last < self.start:
            return False
        if self.stop is not None and segment.first >= self.stop:
            return False
        least, greatest, _ = segment.limits.get("_time", (None, None, 0))
        if self.since is not None and greatest is not None and greatest < _us(self.since):
            return False
        if self.until is not None and least is not None and least >= _us(self.until):
            return False
        if self.subject is None or not segment.subjects:
            return True
        return any(matches(self.subject, subject) for subject in segment.subjects)

    def left_for(self, segment: Segment) -> Conditions:
        """Return the conditions that the manifest cannot decide, to be checked row by row."""
        start, stop, subject = self.start, self.stop, self.subject
        if start is not None and segment.first >= start:
            start = None
        if stop is not None and segment.last < stop:
            stop = None
        if subject is not None and segment.subjects:
            is_of_all = all(matches(subject, one) for one in segment.subjects)
            subject = None if is_of_all else subject
        return replace(self, start=start, stop=stop, subject=subject)

    @property
    def columns(self) -> set[str]:
        """Return the columns of the envelope that `holding` needs."""
        asked = {
            "_offset": (self.start, self.stop),
            "_time": (self.since, self.until),
            "_subject": (self.subject,),
        }
        return {name for name, values in asked.items() if any(one is not None for one in values)}

    def holding(self, table: pa.Table) -> pa.Table:
        """Return the rows that satisfy everything but `where`; the table must have `columns`."""
        masks = []
        if self.start is not None:
            masks.append(pc.field("_offset") >= self.start)
        if self.stop is not None:
            masks.append(pc.field("_offset") < self.stop)
        if self.since is not None:
            masks.append(pc.field("_time") >= pa.scalar(self.since))
        if self.until is not None:
            masks.append(pc.field("_time") < pa.scalar(self.until))
        if self.subject is not None:
            different = pc.unique(table["_subject"])
            wanted = [one for one in different.to_pylist() if matches(self.subject, one)]
            if len(wanted) < len(different):
                masks.append(pc.field("_subject").isin(pa.array(wanted, pa.string())))
        for mask in masks:
            table = table.filter(mask)
        return table


def _us(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
