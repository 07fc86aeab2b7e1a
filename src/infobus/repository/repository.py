"""The object repository: store objects of any type in relational tables, and query them."""

from __future__ import annotations

import difflib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table
from sqlalchemy.exc import IntegrityError

from infobus import Bus, DataObject, Event, Property, Transaction, Type, id_of
from infobus.errors import BadValue, StoreCorrupt, StoreError, UsageError
from infobus.filters import Filter, compile
from infobus.headers import Headers
from infobus.objects import find_type, identify, spelled
from infobus.objects.codec import carried
from infobus.objects.types import ROOT_NAME
from infobus.repository import indexes
from infobus.repository.catalog import (
    UNTYPED,
    Catalog,
    Layout,
    TypeTable,
    read_catalog,
    read_generation,
)
from infobus.repository.column_forms import moment_text
from infobus.repository.database import BUSY_S, open_database, reading, sqlstate, writing
from infobus.repository.migration import (
    bump,
    create_own_tables,
    grow,
    has_own_tables,
    mend_views,
    missing_tables,
)
from infobus.repository.order import Term, terms_of
from infobus.repository.quarantine import SetAside, all_set_aside, set_aside
from infobus.repository.queries import (
    PAGE_COUNT,
    Asking,
    Hit,
    QueryResult,
    headers_in,
    ids_of,
    row_of,
)
from infobus.repository.schema import ID
from infobus.repository.to_rows import ObjectRecord, Taking
from infobus.repository.verification import check_tables
from infobus.repository.views import without_views
from infobus.repository.writer import make_way, remove, write_rows

if TYPE_CHECKING:
    from infobus.repository.capture import Capture

log = logging.getLogger("infobus")

GROW_AGAIN_S = 5.0
"""How long to wait before trying again to add a column."""
_ATTEMPT_COUNT = 10
_RACED = {"23505", "40P01"}  # PostgreSQL's codes for a duplicate key and a deadlock
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Storable = DataObject | dict[str, Any] | Event | ObjectRecord


class Repository:
    """Stores objects in a database whose tables it derives from the objects' types.

    Several threads may use one repository, and several processes may share one database. Use it
    as a context manager, or close it.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/NAME`.
        busy_s: How long to wait for an SQLite file that another process writes to.

    Raises:
        UsageError: The URL is not one of these, or SQLAlchemy is not installed.
        StoreCorrupt: Somebody altered the repository's own tables.
        StoreError: The database cannot be reached.

    >>> class Reading(DataObject):
    ...     celsius: float
    ...     tags: list[str] = []
    >>> with Repository("sqlite://") as repository:
    ...     repository.store([Reading(celsius=21, tags=["oven"]), Reading(celsius=4)])
    ...     repository.query("Reading", where='"oven" in tags')
    2
    [Reading(celsius=21.0, tags=['oven'])]
    """

    def __init__(self, url: str, *, busy_s: float = BUSY_S) -> None:
        self._engine = open_database(url, busy_s=busy_s)
        self.url = self._engine.url.render_as_string(hide_password=True)
        self._is_postgresql = self._engine.dialect.name == "postgresql"
        self._lock = threading.RLock()
        self._has_tables = False  # The first store creates the repository's own tables.
        self._checked: set[str] = set()
        self._grown_at_s: dict[int, float] = {}
        self._catalog = Catalog(-1)
        self._finding_extra: dict[str, bool] = {}  # by table: whether an index finds `_extra`
        self._is_altered = False  # somebody altered tables, perhaps dropping views
        try:
            self._mend_catalog()
            with reading(self._engine) as connection:
                catalog = self._newest(connection)
                is_lacking = bool(without_views(connection, catalog))
            if is_lacking:
                self._mend_views()
        except BaseException:
            self.close()
            raise

    # Storing.

    def store(
        self,
        objects: Iterable[Storable],
        *,
        subject: str | None = None,
        within: Callable[[Connection], bool] | None = None,
    ) -> int:
        """Store all of the objects or none, and return how many.

        Tables and columns are created as needed. An object replaces the stored one with the
        same id; an object without an id gets one.

        Args:
            objects: Objects, plain dicts, or events. For events, subject and time are stored.
            subject: The subject to store objects and dicts under.
            within: Called first, inside the transaction. If it returns False, nothing is
                stored. Its own writes are committed only together with the objects.

        Raises:
            BadValue: An object holds a value that cannot be sent.
            UsageError: An element of `objects` is not an object, dict or event.
            StoreCorrupt: Somebody altered the tables; the message says how to repair them.
            StoreError: The database failed; nothing was stored, and trying again is safe.
        """
        return self.store_records(list(_records(objects, subject)), within)

    def store_records(
        self,
        records: Sequence[ObjectRecord],
        within: Callable[[Connection], bool] | None = None,
        *,
        keep_newer: bool = False,
    ) -> int:
        """Store records, as `store` does; you supply the ids, subjects and times.

        With `keep_newer`, an object does not replace a stored one with a later time.
        """
        catalog, taking = self._take(records, self._write_moment)
        is_thorough = False
        for attempt in range(1, _ATTEMPT_COUNT + 1):
            try:
                is_done = self._write(
                    catalog, taking, within, keep_newer=keep_newer, is_thorough=is_thorough
                )
                return len(records) if is_done else 0
            except StoreError as error:
                # Another process may have stored the same objects meanwhile, or somebody
                # deleted them by hand, without their items.
                is_doubled = isinstance(error.__cause__, IntegrityError)
                raced = sqlstate(error.__cause__) in _RACED or (is_doubled and not is_thorough)
                is_thorough = True
                if not raced or attempt == _ATTEMPT_COUNT:
                    self._say_what_was_altered(catalog, taking, error)
                    raise
        raise AssertionError("the last attempt raises or returns")

    def rows_of(
        self, objects: Iterable[Storable], *, subject: str | None = None
    ) -> list[tuple[Table, list[dict[str, Any]]]]:
        """Return the rows of objects, so that you can write them by other means.

        This creates missing tables and columns.
        """
        catalog, taking = self._take(list(_records(objects, subject)), lambda moment: moment)
        tables = _tables_by_name(catalog)
        return [
            (tables[name], [dict(zip(tables[name].c.keys(), row, strict=True)) for row in rows])
            for name, rows in taking.rows.items()
        ]

    def _take(
        self, records: Sequence[ObjectRecord], write_moment: Callable[[datetime], Any]
    ) -> tuple[Catalog, Taking]:
        """Convert objects to rows, and create missing tables and columns."""
        with self._lock:
            taking = Taking(self._layout_of, write_moment)
            # If an object occurs several times, its last state counts. Sorted ids fill an index
            # fastest.
            newest = {record.id: record for record in records}
            taking.add([newest[id] for id in sorted(newest)])
            if not taking.parts <= self._catalog.parts:
                self._grow((), taking.parts)
            for home in taking.homes:
                width = self._catalog.tables[home.type_name].width
                if home.width < width and home.name in taking.rows:
                    taking.widen(home.name, width)
            return self._catalog, taking

    def _write(
        self,
        catalog: Catalog,
        taking: Taking,
        within: Callable[[Connection], bool] | None,
        *,
        keep_newer: bool,
        is_thorough: bool,
    ) -> bool:
        by_name = _tables_by_name(catalog)
        try:
            with writing(self._engine) as connection:
                if within is not None and not within(connection):
                    raise _NotNow
                kept: set[str] = set()
                for type_name, times in taking.times.items():
                    table = catalog.tables[type_name]
                    kept |= make_way(
                        connection,
                        catalog,
                        table,
                        times,
                        keep_newer=keep_newer,
                        is_thorough=is_thorough,
                    )
                for name, rows in taking.rows.items():
                    chosen = [row for row in rows if row[ID] not in kept] if kept else rows
                    if chosen:
                        write_rows(connection, by_name[name], chosen)
        except _NotNow:
            return False
        return True

    def _say_what_was_altered(self, catalog: Catalog, taking: Taking, error: StoreError) -> None:
        if isinstance(error, StoreCorrupt):
            self._checked.clear()
            for home in taking.homes:
                self._check(catalog.tables[home.type_name])

    def _write_moment(self, moment: datetime) -> Any:
        return moment if self._is_postgresql else moment_text(moment)

    # Making room.

    def _layout_of(self, fingerprint: int) -> Layout:
        """Return the layout of a version, creating its tables and columns if needed."""
        layout = self._catalog.layout(fingerprint)
        if layout is None or (not layout.is_complete and self._may_grow(fingerprint)):
            self._grow([fingerprint], ())
            layout = self._catalog.layout(fingerprint)
            assert layout is not None
        self._check(layout.home)
        return layout

    def _may_grow(self, fingerprint: int) -> bool:
        return time.monotonic() > self._grown_at_s.get(fingerprint, 0.0) + GROW_AGAIN_S

    def _grow(self, fingerprints: Sequence[int], parts: Iterable[tuple[str, str]]) -> None:
        with self.transaction() as connection:
            catalog = grow(connection, fingerprints, parts)
        self._catalog = catalog
        self._grown_at_s.update(dict.fromkeys(fingerprints, time.monotonic()))

    def _check(self, table: TypeTable, connection: Connection | None = None) -> None:
        """Check, once per type, that nobody has altered the tables."""
        if table.name in self._checked:
            return
        try:
            if connection is None:
                with reading(self._engine) as fresh:
                    check_tables(fresh, table)
            else:
                check_tables(connection, table)
        except StoreCorrupt:
            self._is_altered = True
            raise
        self._checked.add(table.name)
        if self._is_altered and connection is None:  # a read transaction cannot create views
            self._is_altered = False
            self._mend_views()

    def _mend_views(self) -> None:
        try:
            with writing(self._engine) as connection:
                mend_views(connection)
        except StoreError as error:
            log.warning("views that somebody dropped are not made again: %s", error)

    def _mend_catalog(self) -> None:
        """Rebuild what somebody deleted of the repository's own tables, where that can be done."""
        with reading(self._engine) as connection:
            missing = missing_tables(connection)
        if missing:
            log.warning("somebody dropped %s; it is made again", ", ".join(sorted(missing)))
            with writing(self._engine) as connection:
                create_own_tables(connection)
        with reading(self._engine) as connection:
            catalog = self._newest(connection)
        layouts = [catalog.layout(one.fingerprint) for one in catalog.by_number.values()]
        lacking = [one.version.fingerprint for one in layouts if one and not one.is_complete]
        if lacking or missing or catalog.generation == 0:
            try:
                self._grow(lacking, ())
            except StoreError as error:
                log.warning("not every attribute has a column yet: %s", error)

    # Asking.

    def query(
        self,
        type_name: str,
        where: str | Filter | None = None,
        order: str | Sequence[str] | None = None,
        limit: int | None = None,
        rows: bool = False,
    ) -> QueryResult:
        """Return the stored objects of a type and all its subtypes, also later ones.

        Args:
            type_name: Such as `news.Story`; use `DataObject` for all objects, `dict` for dicts.
            where: A filter, as for `Bus.subscribe`. Conditions that the database cannot decide
                exactly are decided in Python.
            order: Attributes to order by, such as `"-date"` or `["place", "-date"]`; also
                `_time`, `_subject` and `_id`. Objects without a value come last. Without
                `order`, the order is undefined.
            limit: The maximum number of objects.
            rows: Return dicts instead of objects. They also have `_id`, `_type`, `_subject`,
                `_time`, the values of the properties in `_properties`, and `_headers` if there
                are any.

        Returns:
            A list that also has the objects' properties (`found.properties_of(obj)`), and the
            headers of the events that brought them (`found.headers_of(obj)`).

        Raises:
            BadFilter: `where` is not a valid filter.
            UsageError: Neither the repository nor this process knows the type, or an argument
                is wrong.
            StoreCorrupt: Somebody altered the tables; the message says how to repair them.
            StoreError: The database failed.
        """
        found: list[Any] = []
        properties: dict[str, dict[str, Property]] = {}
        headers: dict[str, Headers] = {}
        for hits, attached in self._pages(type_name, _filter_of(where), terms_of(order), limit):
            found += _rows_of(hits, attached) if rows else (obj for _, obj, _ in hits)
            properties |= attached
            headers |= headers_in(hits)
        return QueryResult(found, properties, headers)

    def stream(
        self,
        type_name: str,
        where: str | Filter | None = None,
        order: str | Sequence[str] | None = None,
        limit: int | None = None,
        rows: bool = False,
    ) -> Iterator[Any]:
        """Iterate over what `query` returns, while the database finds it.

        This holds some hundred objects at a time, however many there are. All come from one
        consistent state, so a transaction is open until you have taken the last one or closed
        the iterator.

        Raises:
            BadFilter, UsageError, StoreCorrupt, StoreError: As `query`.
        """
        pages = self._pages(type_name, _filter_of(where), terms_of(order), limit)
        for hits, attached in pages:
            yield from _rows_of(hits, attached) if rows else (obj for _, obj, _ in hits)

    def _pages(
        self, type_name: str, filter: Filter | None, terms: Sequence[Term], limit: int | None
    ) -> Iterator[tuple[list[Hit], dict[str, dict[str, Property]]]]:
        """Iterate over the objects that a query finds, with the properties of each page."""
        if not isinstance(type_name, str):
            raise UsageError(f"type_name={type_name!r}: expected a name such as 'news.Story'")
        if limit is not None and (type(limit) is not int or limit < 0):
            raise UsageError(f"limit is {limit!r}: expected a number from 0 on, or None")
        with reading(self._engine) as connection:
            asking = self._asking(connection, type_name)
            hits = asking.hits(type_name, filter, terms, limit)
            while page := list(islice(hits, PAGE_COUNT)):
                yield page, asking.properties(ids_of(page))

    def _asking(self, connection: Connection, type_name: str) -> Asking:
        catalog = self._newest(connection)
        members = catalog.members(type_name) or self._nothing(catalog, type_name)
        for table, _ in members:
            self._check(table, connection)
            if table.name not in self._finding_extra:
                self._finding_extra[table.name] = indexes.finds_extra(connection, table)
        finding = {name for name, is_found in self._finding_extra.items() if is_found}
        return Asking(connection, catalog, finding)

    # Removing.

    def delete(
        self,
        type_name: str,
        where: str | Filter | None = None,
        *,
        before: datetime | None = None,
    ) -> int:
        """Delete objects of a type and of its subtypes, and return how many.

        Their items, the objects nested in them, and their properties go with them. Objects are
        deleted in steps of a thousand. If a step fails, those before it are gone, and calling
        this again goes on.

        Args:
            type_name: Such as `news.Story`; use `DataObject` for all objects, `dict` for dicts.
            where: A filter; default: all of them.
            before: Only objects with an earlier time. Objects stored without a time stay.

        Raises:
            BadFilter, UsageError, StoreCorrupt, StoreError: As `query`.
        """
        return sum(self._delete(type_name, _filter_of(where), before))

    def _delete(
        self, type_name: str, filter: Filter | None, before: datetime | None
    ) -> Iterator[int]:
        """Delete objects step by step, and say how many each time."""
        if before is not None and (not isinstance(before, datetime) or before.tzinfo is None):
            raise UsageError(f"before={before!r}: expected a datetime with a time zone, or None")
        with reading(self._engine) as connection:
            self._asking(connection, type_name)
            members = self._catalog.members(type_name)
        for table, versions in members:
            after: str | None = ""
            while after is not None:
                with writing(self._engine) as connection:
                    asking = Asking(connection, self._newest(connection))
                    ids, after = asking.page_of_ids(table, versions, filter, before, after)
                    self._remove(connection, asking, table, ids)
                yield len(ids)

    def _remove(
        self, connection: Connection, asking: Asking, table: TypeTable, ids: list[str]
    ) -> None:
        if ids:
            for home, attached in asking.ids_of_properties(ids):
                remove(connection, self._catalog, home, attached)
            remove(connection, self._catalog, table, ids)

    def prune(self, before: datetime) -> int:
        """Delete all objects and dicts with an earlier time, and return how many."""
        return sum(self.prune_stepwise(before))

    def prune_stepwise(self, before: datetime) -> Iterator[int]:
        """As `prune`, for who may have to stop: yields how many each step has deleted."""
        with reading(self._engine) as connection:
            has_dicts = UNTYPED in self._newest(connection).tables
        for name in [ROOT_NAME, UNTYPED] if has_dicts else [ROOT_NAME]:
            yield from self._delete(name, None, before)

    def index(self, type_name: str, attribute: str) -> int:
        """Let the database find objects of a type and its subtypes by an attribute.

        This makes an index of the attribute's column, or of the items of its list, in each
        table, also in tables of subtypes that are stored later. In PostgreSQL, others can
        write meanwhile. Calling it again does no harm, and returns as many.

        Args:
            type_name: Such as `news.Story`.
            attribute: Of the type or a subtype; also `_time` and `_subject`.

        Returns:
            How many indexes there are.

        Raises:
            UsageError: There is no such type or attribute, or it cannot be indexed.
            StoreError: The database failed. Indexes that were made stay.
        """
        with reading(self._engine) as connection:
            self._asking(connection, type_name)
            catalog = self._catalog
        wanted = indexes.of_attribute(catalog, type_name, attribute)
        if not wanted:
            known = catalog.attributes(type_name)
            close = difflib.get_close_matches(attribute, known, 1)
            hint = f"; did you mean {close[0]}?" if close and close[0] != attribute else ""
            what = (
                "it holds objects, or values of any kind"
                if attribute in known
                else (
                    f"neither {type_name} nor a subtype that is stored has such an attribute{hint}"
                )
            )
            raise UsageError(f"cannot index {attribute!r}: {what}")
        with self.transaction() as connection:
            indexes.ask_for(connection, type_name, attribute)
        extras = [indexes.of_extra(table) for table, _ in catalog.members(type_name)]
        indexes.create(self._engine, [*extras, *wanted])
        with self.transaction() as connection:
            bump(connection)  # so that others look for the indexes
        return len(wanted)

    def types(self) -> list[Type]:
        """Return the latest stored version of each type that has tables, sorted by name."""
        with reading(self._engine) as connection:
            catalog = self._newest(connection)
        newest = {v.type_name: v.type for v in catalog.by_number.values() if v.type is not None}
        return [newest[name] for name in sorted(newest) if name in catalog.tables]

    def _newest(self, connection: Connection) -> Catalog:
        """Return the current catalog, including changes by other processes."""
        with self._lock:
            if not self._has_tables:
                self._has_tables = has_own_tables(connection)
            if self._has_tables and read_generation(connection) != self._catalog.generation:
                self._catalog = read_catalog(connection)
                self._finding_extra = {}
            return self._catalog

    def _nothing(self, catalog: Catalog, type_name: str) -> list[Any]:
        """Return no tables for a known type without objects; raise for a misspelled name."""
        if find_type(type_name) is not None:
            return []
        close = difflib.get_close_matches(type_name, catalog.tables, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"there is no type {type_name!r} in {self.url}{hint}")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction in the repository's database, for your own tables next to it."""
        with writing(self._engine) as connection:
            if not self._has_tables:
                create_own_tables(connection)
            yield connection
        self._has_tables = True

    # The quarantine.

    def set_aside(self, records: Sequence[ObjectRecord], reason: str) -> None:
        """Put objects that could not be stored into the quarantine, until `take_back`."""
        with self.transaction() as connection:
            set_aside(connection, records, reason)

    def all_set_aside(self) -> list[SetAside]:
        """Return the objects that could not be stored, with the reasons."""
        with reading(self._engine) as connection:
            self._newest(connection)
            return all_set_aside(connection) if self._has_tables else []

    def take_back(self) -> int:
        """Try again to store the objects that were set aside; return how many succeeded."""
        count = 0
        for one in self.all_set_aside():
            try:
                count += self.store_records([one.record()], one.forget)
            except (StoreCorrupt, UsageError):
                continue
        return count

    # The rest.

    def capture(
        self,
        bus: Bus,
        patterns: Sequence[str],
        *,
        name: str = "capture",
        keep_s: float | None = None,
    ) -> Capture:
        """Store every event that matches the patterns, until you close the capture.

        Guaranteed events are stored exactly once, even if processes are killed. `name` is the
        name of the durable consumer: one capture at a time may use it, and guaranteed events
        published while no capture runs wait for the next. Other events are stored as they
        arrive.

        With `keep_s`, the capture deletes from the repository everything with an earlier time
        than so many seconds ago, when it begins and every few minutes.
        """
        from infobus.repository.capture import Capture

        return Capture(self, bus, patterns, name=name, keep_s=keep_s)

    def close(self) -> None:
        """Close all connections to the database."""
        self._engine.dispose()

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Repository {self.url}: {len(self._catalog.tables)} types>"


class _NotNow(Exception):
    """Rolls the transaction back because `within` returned False."""


def _filter_of(where: str | Filter | None) -> Filter | None:
    filter = compile(where) if isinstance(where, str) else where
    if not isinstance(filter, Filter | None):
        raise UsageError(f"where={where!r}: expected a filter, as a string or compiled")
    return filter


def _rows_of(
    hits: Sequence[Hit], properties: Mapping[str, dict[str, Property]]
) -> Iterator[dict[str, Any]]:
    for (_, obj, stored), id in zip(hits, ids_of(hits), strict=True):
        yield row_of(obj, stored, properties.get(id, {}))


def _tables_by_name(catalog: Catalog) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for table in catalog.tables.values():
        found[table.name] = table.table
        found.update(table.items)
    return found


def _records(objects: Iterable[Storable], subject: str | None) -> Iterator[ObjectRecord]:
    if isinstance(objects, DataObject | dict | Event | ObjectRecord) or not isinstance(
        objects, Iterable
    ):
        raise UsageError(f"objects={objects!r}: expected a list, or another iterable, of objects")
    if not isinstance(subject, str | None):
        raise UsageError(f"subject={subject!r}: expected a string, or None")
    # Ids begin with the time, so later ones are greater, and the index is filled in order.
    maker = f"repository-{time.time_ns():016x}-{uuid.uuid4().hex[:16]}"
    for number, obj in enumerate(objects):
        if isinstance(obj, Event):
            yield from records_of(obj)
        elif isinstance(obj, ObjectRecord):
            yield obj
        else:
            try:
                obj = carried(obj)
            except BadValue:
                raise UsageError(
                    f"objects[{number}] is {obj!r}: expected an object, a dict or an event"
                ) from None
            new_id = spelled((maker, number))
            id = spelled(identify(obj, new_id)) if isinstance(obj, DataObject) else new_id
            yield ObjectRecord(obj, id, subject)


def records_of(event: Event) -> Iterator[ObjectRecord]:
    """Yield the records of an event; a transaction has one for each of its objects."""
    if isinstance(event.data, Transaction):
        for one in event.data:
            yield from records_of(one)
        return
    id = id_of(event.data) or event.id
    try:
        moment = _EPOCH + timedelta(seconds=event.time)
    except (OverflowError, ValueError):  # a sender's clock may say anything
        moment = None
    yield ObjectRecord(carried(event.data), id, event.subject, moment, event.headers)
