"""From objects to rows: an object becomes one row, and so does every object and item inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from infobus.errors import BadValue
from infobus.objects import DataObject, id_of
from infobus.objects.bodies import take_apart
from infobus.objects.kinds import DEPTH_MAX
from infobus.repository.catalog import UNTYPED_FINGERPRINT, Layout, Slot, TypeTable
from infobus.repository.forms import OBJECT, OPEN, all_fit, fits
from infobus.repository.open_values import write_open
from infobus.repository.schema import EXTRA, HOLDER, ID, PART, SUBJECT, TIME, VERSION

ID_LENGTH_MAX = 255

Row = tuple[Any, ...]
Rows = dict[str, list[Row]]
"""Rows by the name of their table, in the order of its columns."""


class Record(NamedTuple):
    """An object on its way into the repository."""

    obj: DataObject | dict[str, Any]
    id: str
    subject: str | None = None
    time: datetime | None = None


class _Place(NamedTuple):
    """Where inside an object another one is."""

    holder: int | None = None
    attribute: str | None = None
    at: int | None = None
    key: str | None = None


def key_of(id: str) -> str:
    """The text by which an object is found: its id, unless that is longer than keys may be.

    >>> key_of("floor7-4242-9f3a61c2:12c")
    'floor7-4242-9f3a61c2:12c'
    """
    if len(id) <= ID_LENGTH_MAX and "\0" not in id:
        return id
    return f"sha256:{sha256(id.encode(errors='surrogatepass')).hexdigest()}"


class Taking:
    """Takes objects apart, into rows for the tables that `layout_of` tells.

    Args:
        layout_of: The layout of a version; it makes room for what was not there before.
        write_moment: A moment as the driver takes it.
    """

    def __init__(
        self,
        layout_of: Callable[[int], Layout],
        write_moment: Callable[[datetime], Any],
    ) -> None:
        self._layout_of = layout_of
        self._write_moment = write_moment
        self._layouts: dict[int, Layout] = {}
        self.rows: Rows = {}
        self.parts: set[tuple[str, str]] = set()
        """The names of types of which one was inside the other."""
        self.times: dict[str, dict[str, datetime | None]] = {}
        """The times of the objects, by the names of their types and by their ids."""
        self._record, self._key = Record({}, ""), ""
        self._whole = ""
        self._part_count = 0

    def add(self, record: Record) -> None:
        """Take one object apart.

        Raises:
            BadValue: It holds what cannot be sent, or is nested too deeply. Then the rows are
                of no more use.
        """
        self._record, self._key = record, key_of(record.id)
        self._part_count = 0
        self._add(record.obj, _Place(), 1)

    @property
    def homes(self) -> list[TypeTable]:
        """The tables of all types that objects were of, as they were when these were added."""
        return [layout.home for layout in self._layouts.values()]

    def widen(self, name: str, width: int) -> None:
        """Make rows of a table fit, which has got more columns since they were made."""
        self.rows[name] = [row + (None,) * (width - len(row)) for row in self.rows[name]]

    def _add(self, obj: DataObject | dict[str, Any], place: _Place, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise BadValue(f"nested deeper than {DEPTH_MAX} levels, or cyclic")
        body: Mapping[str, Any]
        if isinstance(obj, dict):
            fingerprint, body = UNTYPED_FINGERPRINT, obj
        else:
            fingerprint, body = take_apart(obj)
        layout = self._layouts.get(fingerprint)
        if layout is None:
            layout = self._layouts[fingerprint] = self._layout_of(fingerprint)
        record, part = self._record, self._part_count
        type_name, key = layout.version.type_name, self._key
        if part:
            self.parts.add((self._whole, type_name))
        else:
            self._whole = type_name
            self.times.setdefault(type_name, {})[key] = record.time
        row: list[Any] = [None] * layout.width
        row[ID], row[PART], row[VERSION] = key, part, layout.version.number
        if not part:
            row[SUBJECT] = record.subject
            row[TIME] = None if record.time is None else self._write_moment(record.time)
        else:
            row[HOLDER:EXTRA] = place
        absent: list[str] = []
        kept: list[str] = []
        for slot in layout.slots:
            name = slot.attribute
            value = body.get(name)
            if value is None:
                if slot.is_optional:
                    (kept if name in body else absent).append(name)
            elif value.__class__ is slot.exact and (
                slot.exact is not str or "\0" not in str(value)
            ):
                row[slot.at] = value
                kept.append(name)
            elif self._keep(slot, value, row, part, depth):
                kept.append(name)
        own_id = id_of(obj) if part else record.id if key != record.id else None
        if len(kept) < len(body) or absent or own_id:
            rest = {name: value for name, value in body.items() if name not in kept}
            row[EXTRA] = self._extra(rest, absent, own_id)
        self.rows.setdefault(layout.home.name, []).append(tuple(row))

    def _keep(self, slot: Slot, value: Any, row: list[Any], part: int, depth: int) -> bool:
        """Put a value into its place; False if it does not fit."""
        shape, of = slot.form
        if not shape and of != OBJECT:
            if of == OPEN:
                row[slot.at] = self._open(value)
                return True
            if not fits(value, of):
                return False
            row[slot.at] = value if of != "datetime" else self._write_moment(value)
            return True
        if not shape:
            if not isinstance(value, DataObject):
                return False
            self._add_part(value, _Place(part, slot.attribute, 0), depth)
            row[slot.at] = 1
            return True
        if shape == "list":
            if value.__class__ is not list:
                return False
            keys, items = None, value
        else:
            if value.__class__ is not dict or any(not fits(key, "str") for key in value):
                return False
            keys, items = list(value), list(value.values())
        if of == OBJECT:
            kept = self._keep_parts(slot, keys, items, part, depth)
        else:
            kept = self._keep_items(slot, keys, items, part)
        if kept:
            row[slot.at] = len(items)
        return kept

    def _keep_items(self, slot: Slot, keys: list[str] | None, items: list[Any], part: int) -> bool:
        of, key = slot.form.of, self._key
        if of == OPEN:
            items = [None if item is None else self._open(item) for item in items]
        elif not all_fit(items, of):
            return False
        elif of == "datetime":
            items = [None if item is None else self._write_moment(item) for item in items]
        if not items:
            return True
        assert slot.item_table is not None
        rows = self.rows.setdefault(slot.item_table, [])
        if keys is None:
            rows.extend((key, part, at, item) for at, item in enumerate(items))
        else:
            pairs = enumerate(zip(keys, items, strict=True))
            rows.extend((key, part, at, name, item) for at, (name, item) in pairs)
        return True

    def _keep_parts(
        self, slot: Slot, keys: list[str] | None, items: list[Any], part: int, depth: int
    ) -> bool:
        if keys is not None and None in items:
            return False  # its key would be in no row
        if not all(item is None or isinstance(item, DataObject) for item in items):
            return False
        for at, item in enumerate(items):
            if item is not None:
                key = None if keys is None else keys[at]
                self._add_part(item, _Place(part, slot.attribute, at, key), depth)
        return True

    def _add_part(self, obj: DataObject, place: _Place, depth: int) -> None:
        self._part_count += 1
        self._add(obj, place, depth + 1)

    def _extra(self, values: Mapping[str, Any], absent: list[str], own_id: str | None) -> str:
        """What has no place of its own, as JSON."""
        extra = {"attributes": dict(values), "absent": absent, "id": own_id}
        return self._open({name: what for name, what in extra.items() if what})

    def _open(self, value: Any) -> str:
        return write_open(value, lambda fp: self._layout_of(fp).version.type_name)
