"""Convert objects to rows: one for each object, nested object, and item of a list or map.

Objects of one version are converted together, attribute by attribute. Usually all values have
the expected type, and then one check of all values replaces a check of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from infobus.errors import BadValue
from infobus.headers import NO_HEADERS, HeaderValue
from infobus.objects import DataObject, id_of
from infobus.objects.bodies import take_apart
from infobus.objects.data import bad_value
from infobus.objects.kinds import ANY, DEPTH_MAX, SCALARS, Misfit
from infobus.repository.catalog import UNTYPED_FINGERPRINT, Layout, Slot, TypeTable
from infobus.repository.column_forms import OBJECT, OPEN, all_fit, fits, nearest
from infobus.repository.json_values import write_open
from infobus.repository.schema import ENVELOPE

ID_LENGTH_MAX = 255
TOGETHER_MAX = 256
"""How many objects are converted together. With more, a cyclic object would grow too large
before the depth limit stops it."""

Row = tuple[Any, ...]
Rows = dict[str, list[Row]]
"""Rows by the name of their table, in the order of its columns."""


class ObjectRecord(NamedTuple):
    """An object to store, with its id, subject and time."""

    obj: DataObject | dict[str, Any]
    id: str
    subject: str | None = None
    time: datetime | None = None
    headers: Mapping[str, HeaderValue] = NO_HEADERS


Piece = tuple[Any, str | None, str, str | None, datetime | None, Any, Any, Any, Any]
"""An object and, if it differs from the key, its id. Then the values of its row: key, subject,
time, and its place inside another object (holder, attribute, at, key)."""


def key_of(id: str) -> str:
    """Return the database key of an object: its id, or a hash if the id cannot be a key.

    >>> key_of("floor7-4242-9f3a61c2:12c")
    'floor7-4242-9f3a61c2:12c'
    """
    if len(id) <= ID_LENGTH_MAX and "\0" not in id:
        return id
    return f"sha256:{sha256(id.encode(errors='surrogatepass')).hexdigest()}"


@dataclass
class _Group:
    """Objects of one version, nested in objects of one type, that are converted together."""

    layout: Layout
    whole: str
    depth: int
    pieces: list[Piece] = field(default_factory=list)
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    keys: Sequence[str] = ()
    parts: Sequence[int] = ()
    inside: list[Piece] = field(default_factory=list)
    """The objects nested in these, which are not converted yet."""
    unkept: dict[int, set[str]] = field(default_factory=dict)
    """From an object's index to the attributes that have no column, so go to `_extra`."""


class Taking:
    """Converts objects to rows for the tables that `layout_of` names.

    Args:
        layout_of: Returns the layout of a version, creating missing tables and columns.
        write_moment: Converts a moment to the form that the driver accepts.
    """

    def __init__(
        self,
        layout_of: Callable[[int], Layout],
        write_moment: Callable[[datetime], Any],
    ) -> None:
        self._layout_of = layout_of
        self._write_moment = write_moment
        self._layouts: dict[int, Layout] = {}
        self._part_counts: dict[str, int] = {}
        self._headers: dict[str, Mapping[str, HeaderValue]] = {}  # by key, where there are any
        self.rows: Rows = {}
        self.parts: set[tuple[str, str]] = set()
        """Pairs of type names: objects of the second were nested in objects of the first."""
        self.times: dict[str, dict[str, datetime | None]] = {}
        """The times of the objects, by type name and key."""
        self._keepers = {
            ("", False): self._keep_single,
            ("", True): self._keep_part,
            ("list", False): self._keep_list,
            ("list", True): self._keep_list_of_parts,
            ("dict", False): self._keep_map,
            ("dict", True): self._keep_map_of_parts,
        }

    def add(self, records: Iterable[ObjectRecord]) -> None:
        """Convert objects that all have different ids.

        Raises:
            BadValue: An object holds a value that cannot be sent, or is nested too deep. Then
                discard the rows.
        """
        pieces: list[Piece] = []
        for obj, id, subject, time, headers in records:
            key = key_of(id)
            if headers:
                self._headers[key] = headers
            own_id = id if key != id else None
            pieces.append((obj, own_id, key, subject, time, None, None, None, None))
        self._add(pieces, "", 1)

    @property
    def homes(self) -> list[TypeTable]:
        """The tables of the converted objects' types, as they were at that time."""
        return [layout.home for layout in self._layouts.values()]

    def widen(self, name: str, width: int) -> None:
        """Fill up the rows of a table that has got more columns since they were made."""
        self.rows[name] = [row + (None,) * (width - len(row)) for row in self.rows[name]]

    def _add(self, pieces: Sequence[Piece], whole: str, depth: int) -> None:
        """Convert objects nested in objects of type `whole`; it is empty for outermost objects."""
        if depth > DEPTH_MAX:
            raise BadValue(f"nested deeper than {DEPTH_MAX} levels, or cyclic")
        for start in range(0, len(pieces), TOGETHER_MAX):
            groups: dict[int, _Group] = {}
            for piece in pieces[start : start + TOGETHER_MAX]:
                obj = piece[0]
                body: Mapping[str, Any]
                if isinstance(obj, dict):
                    fingerprint, body = UNTYPED_FINGERPRINT, _checked(obj)
                else:
                    fingerprint, body = take_apart(obj)
                group = groups.get(fingerprint)
                if group is None:
                    layout = self._layout(fingerprint)
                    group = groups[fingerprint] = _Group(layout, whole, depth)
                group.pieces.append(piece)
                group.bodies.append(body)
            for group in groups.values():
                self._add_group(group)

    def _layout(self, fingerprint: int) -> Layout:
        layout = self._layouts.get(fingerprint)
        if layout is None:
            layout = self._layouts[fingerprint] = self._layout_of(fingerprint)
        return layout

    def _add_group(self, group: _Group) -> None:
        layout, type_name = group.layout, group.layout.version.type_name
        _, own_ids, keys, subjects, times, *places = zip(*group.pieces, strict=True)
        if group.whole:
            self.parts.add((group.whole, type_name))
        else:
            group.whole = type_name
            self.times.setdefault(type_name, {}).update(zip(keys, times, strict=True))
        group.keys, group.parts = keys, self._next_parts(keys)
        columns: list[Iterable[Any]] = [repeat(None)] * (layout.width - len(ENVELOPE))
        for slot in layout.slots:
            columns[slot.at - len(ENVELOPE)] = self._column(group, slot)
        moments = [None if time is None else self._write_moment(time) for time in times]
        envelope = (keys, group.parts, repeat(layout.version.number), subjects, moments, *places)
        extras = self._extras(group, own_ids)
        rows = zip(*envelope, extras, *columns, strict=False)
        self.rows.setdefault(layout.home.name, []).extend(rows)
        self._add_inside(group)

    def _next_parts(self, keys: Sequence[str]) -> list[int]:
        """Number objects within their outermost object, which comes first and gets 0."""
        counts, numbers = self._part_counts, []
        for key in keys:
            number = counts.get(key, 0)
            counts[key] = number + 1
            numbers.append(number)
        return numbers

    def _add_items(self, slot: Slot, rows: list[Row]) -> None:
        if rows:
            assert slot.item_table is not None
            self.rows.setdefault(slot.item_table, []).extend(rows)

    def _add_inside(self, group: _Group) -> None:
        pieces, group.inside = group.inside, []
        if pieces:
            self._add(pieces, group.whole, group.depth + 1)

    # One attribute of many objects.

    def _column(self, group: _Group, slot: Slot) -> Sequence[Any]:
        """Return the values of an attribute's column, one per object."""
        name, (shape, of), bodies = slot.attribute, slot.form, group.bodies
        values: list[Any]
        try:
            values = list(map(itemgetter(name), bodies))
        except KeyError:  # some object lacks the attribute
            return self._cells(group, slot, [body.get(name) for body in bodies])
        if of in SCALARS and not shape and all_fit(values, of):
            # In a column that is not optional, NULL means "not sent", so None goes to `_extra`.
            if slot.is_optional or None not in values:
                return self._written(values, of)
        elif of in SCALARS and shape == "list" and set(map(type, values)) == {list}:
            items = list(chain.from_iterable(values))
            if all_fit(items, of):
                counts = list(map(len, values))
                keys = chain.from_iterable(map(repeat, group.keys, counts))
                parts = chain.from_iterable(map(repeat, group.parts, counts))
                numbers = chain.from_iterable(map(range, counts))
                written = self._written(items, of)
                self._add_items(slot, list(zip(keys, parts, numbers, written, strict=True)))
                return counts
        return self._cells(group, slot, values)

    def _written(self, values: list[Any], of: str) -> list[Any]:
        """Convert values that fit to the form that the driver accepts."""
        if of != "datetime":
            return values
        return [None if value is None else self._write_moment(value) for value in values]

    def _cells(self, group: _Group, slot: Slot, values: Sequence[Any]) -> list[Any]:
        """Return the same as `_column`, checking each value."""
        keep = self._keepers[slot.form.shape, slot.form.of == OBJECT]
        name, bodies = slot.attribute, group.bodies
        cells: list[Any] = []
        for place, value in enumerate(values):
            cell = None if value is None else keep(group, slot, place, value)
            if cell is None and not (value is None and slot.is_optional and name in bodies[place]):
                group.unkept.setdefault(place, set()).add(name)
                cell = nearest(value, slot.form)
            cells.append(cell)
            if len(group.inside) > TOGETHER_MAX:
                # Convert nested objects early, so that a cycle reaches the depth limit soon.
                self._add_inside(group)
        return cells

    # One value, by its form. These return the value for the row, or None if it does not fit.

    def _keep_single(self, group: _Group, slot: Slot, place: int, value: Any) -> Any:
        of = slot.form.of
        if of == OPEN:
            return self._open(value)
        if not fits(value, of):
            return None
        return value if of != "datetime" else self._write_moment(value)

    def _keep_list(self, group: _Group, slot: Slot, place: int, value: Any) -> int | None:
        items = self._items(slot, value) if value.__class__ is list else None
        if items is None:
            return None
        key, part = group.keys[place], group.parts[place]
        self._add_items(slot, [(key, part, at, item) for at, item in enumerate(items)])
        return len(items)

    def _keep_map(self, group: _Group, slot: Slot, place: int, value: Any) -> int | None:
        items = self._items(slot, list(value.values())) if _is_map(value) else None
        if items is None:
            return None
        key, part, pairs = group.keys[place], group.parts[place], zip(value, items, strict=True)
        self._add_items(slot, [(key, part, at, *pair) for at, pair in enumerate(pairs)])
        return len(items)

    def _items(self, slot: Slot, items: list[Any]) -> list[Any] | None:
        """Convert items for the driver; return None if one does not fit."""
        of = slot.form.of
        if of == OPEN:
            return [None if item is None else self._open(item) for item in items]
        return self._written(items, of) if all_fit(items, of) else None

    def _keep_part(self, group: _Group, slot: Slot, place: int, value: Any) -> int | None:
        return self._keep_parts(group, slot, place, [value], repeat(None))

    def _keep_list_of_parts(self, group: _Group, slot: Slot, place: int, value: Any) -> int | None:
        if value.__class__ is not list:
            return None
        return self._keep_parts(group, slot, place, value, repeat(None))

    def _keep_map_of_parts(self, group: _Group, slot: Slot, place: int, value: Any) -> int | None:
        if (
            not _is_map(value) or None in value.values()
        ):  # None has no row, so its key would be lost
            return None
        return self._keep_parts(group, slot, place, list(value.values()), value)

    def _keep_parts(
        self,
        group: _Group,
        slot: Slot,
        place: int,
        items: list[Any],
        map_keys: Iterable[str | None],
    ) -> int | None:
        if not all(item is None or isinstance(item, DataObject) for item in items):
            return None
        key, part, name = group.keys[place], group.parts[place], slot.attribute
        for at, (item, map_key) in enumerate(zip(items, map_keys, strict=False)):
            if item is not None:
                own_id = id_of(item)
                group.inside.append((item, own_id, key, None, None, part, name, at, map_key))
        return len(items)

    # Values without a column.

    def _extras(self, group: _Group, own_ids: Sequence[str | None]) -> Iterable[str | None]:
        slots, bodies = group.layout.slots, group.bodies
        is_plain = not (group.unkept or any(own_ids) or self._headers)
        if is_plain and set(map(len, bodies)) == {len(slots)}:
            return repeat(None)
        names = {slot.attribute for slot in slots}
        optional = [slot.attribute for slot in slots if slot.is_optional]
        extras = []
        for place, (body, own_id) in enumerate(zip(bodies, own_ids, strict=True)):
            kept = names - group.unkept.get(place, set())
            headers = {} if group.parts[place] else self._headers.get(group.keys[place], {})
            extra: dict[str, Any] = {
                "attributes": {name: value for name, value in body.items() if name not in kept},
                "absent": [name for name in optional if name not in body],
                "id": own_id,
                "headers": dict(headers),  # last: it comes first only if there is nothing else
            }
            told = {name: what for name, what in extra.items() if what}
            extras.append(self._open(told) if told else None)
        return extras

    def _open(self, value: Any) -> str:
        return write_open(value, lambda fp: self._layout_of(fp).version.type_name)


def _checked(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a dict as the bus would send it."""
    try:
        checked: dict[str, Any] = ANY.check(obj)
    except Misfit as misfit:
        raise bad_value(misfit, "dict") from None
    return checked


def _is_map(value: Any) -> bool:
    """Return whether `value` is a map whose keys fit a column."""
    return value.__class__ is dict and all(fits(key, "str") for key in value)
