"""Convert rows to objects: the reverse of `to_rows`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, select

from infobus.errors import StoreCorrupt
from infobus.headers import NO_HEADERS, Headers
from infobus.objects import DataObject
from infobus.objects.bodies import put_together
from infobus.repository import schema
from infobus.repository.catalog import UNTYPED, Catalog, Slot, TypeTable
from infobus.repository.column_forms import OBJECT, OPEN, Form, is_of
from infobus.repository.database import is_one_of
from infobus.repository.json_values import read_open
from infobus.repository.schema import AT, ATTRIBUTE, EXTRA, HOLDER, ID, KEY, PART, VERSION

AnyRow = Sequence[Any]
_ITEM_KEY = 3


class Rebuilding:
    """Rebuilds the objects of some rows of one table, with their items and nested objects."""

    def __init__(
        self, connection: Connection, catalog: Catalog, table: TypeTable, rows: Sequence[AnyRow]
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._items: dict[tuple[str, str, int], list[AnyRow]] = defaultdict(list)
        self._parts: dict[tuple[str, int, str], list[AnyRow]] = defaultdict(list)
        ids = [row[ID] for row in rows]
        self._fetch_items(table, ids)
        for inside in catalog.part_tables(table):
            chosen = select(inside.table).where(
                is_one_of(connection, inside.table.c["_id"], ids), inside.table.c["_part"] > 0
            )
            for row in connection.execute(chosen.order_by(inside.table.c["_part"])):
                self._parts[row[ID], row[HOLDER], row[ATTRIBUTE]].append(row)
            if inside is not table:
                self._fetch_items(inside, ids)
        self.objects = [self._object(row) for row in rows]
        self.headers = [self._headers_of(row) for row in rows]

    def _fetch_items(self, table: TypeTable, ids: list[str]) -> None:
        for name, items in table.items.items():
            for row in self._connection.execute(self._items_of(items, ids)):
                self._items[name, row[ID], row[PART]].append(row)

    def _items_of(self, items: Table, ids: list[str]) -> Select[Any]:
        columns = items.c
        keys = [columns["_key"]] if "_key" in columns else []
        place = (columns["_id"], columns["_part"], columns["_at"])
        chosen = select(*place, *keys, columns[schema.VALUE])
        return chosen.where(is_one_of(self._connection, columns["_id"], ids)).order_by(*place)

    def _object(self, row: AnyRow) -> Any:
        version = self._catalog.by_number.get(row[VERSION])
        if version is None or self._catalog.layout(version.fingerprint) is None:
            raise self._damaged(row, f"its version {row[VERSION]} is not among the types")
        layout = self._catalog.layout(version.fingerprint)
        assert layout is not None
        extra = self._open(row, row[EXTRA]) if row[EXTRA] is not None else {}
        try:
            body = dict(extra.get("attributes", {}))
            absent = extra.get("absent", ())
            own_id = extra.get("id")
        except (AttributeError, TypeError, ValueError):
            raise self._damaged(row, "its column _extra was changed") from None
        for slot in layout.slots:
            if slot.attribute not in body and slot.attribute not in absent:
                value = self._value(slot, row)
                if value is not None or slot.is_optional:
                    body[slot.attribute] = value
        if version.type_name == UNTYPED:
            return body
        return put_together(version.fingerprint, body, own_id or (None if row[PART] else row[ID]))

    def _headers_of(self, row: AnyRow) -> Headers:
        if row[EXTRA] is None or '"headers":' not in row[EXTRA]:
            return NO_HEADERS
        headers = self._open(row, row[EXTRA]).get("headers", {})
        try:
            return Headers(headers)
        except (TypeError, ValueError):
            raise self._damaged(row, "its column _extra was changed") from None

    def _value(self, slot: Slot, row: AnyRow) -> Any:
        stored, (shape, of) = row[slot.at], slot.form
        if stored is None:
            return None
        if not is_of(stored, slot.form):
            raise self._misfit(row, slot, slot.form, stored)
        if slot.form.is_column:
            return self._open(row, stored) if of == OPEN else stored
        if of == OBJECT:
            return self._inside(slot, row, stored)
        assert slot.item_table is not None
        rows = self._items.get((slot.item_table, row[ID], row[PART]), [])
        values = [item[-1] for item in rows]
        for value in values:
            if value is not None and not is_of(value, Form("", of)):
                raise self._misfit(row, slot, Form("", of), value)
        if of == OPEN:
            values = [None if value is None else self._open(row, value) for value in values]
        if shape == "list":
            return values
        return dict(zip((item[_ITEM_KEY] for item in rows), values, strict=True))

    def _inside(self, slot: Slot, row: AnyRow, count: int) -> Any:
        rows = self._parts.get((row[ID], row[PART], slot.attribute), [])
        if not slot.form.shape:
            return self._object(rows[0]) if rows else None
        if slot.form.shape == "dict":
            return {part[KEY]: self._object(part) for part in sorted(rows, key=lambda p: p[AT])}
        found: list[DataObject | None] = [None] * count
        for part in rows:
            if part[AT] < count:
                found[part[AT]] = self._object(part)
        return found

    def _open(self, row: AnyRow, text: str) -> Any:
        try:
            return read_open(text)
        except ValueError as error:
            raise self._damaged(row, str(error)) from None

    def _misfit(self, row: AnyRow, slot: Slot, form: Form, value: Any) -> StoreCorrupt:
        home = self._catalog.tables[self._catalog.by_number[row[VERSION]].type_name]
        place = f"{home.name}.{home.table.columns.keys()[slot.at]}"
        if form != slot.form:  # it is an item
            place = f"{slot.item_table}.{schema.VALUE}"
        expected = str(form) if form.is_column else "a number of items"
        return self._damaged(row, f"{place} is {value!r:.80}, expected {expected}")

    def _damaged(self, row: AnyRow, problem: str) -> StoreCorrupt:
        message = f"object {row[ID]} (part {row[PART]}) cannot be read: {problem}"
        return StoreCorrupt(message, path=str(self._connection.engine.url), problems=(problem,))
