"""Connect to SQLite or PostgreSQL, and translate their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Text,
    any_,
    cast,
    create_engine,
    event,
    literal,
    make_url,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from infobus.errors import BadValue, StoreCorrupt, StoreError, StoreFull, UsageError
from infobus.extras import advice
from infobus.stores.private import make_private_file

BUSY_S = 30.0
_WRITING = "infobus_writing"
_DISK_FULL = "53100"  # PostgreSQL's code for it


def parse_url(url: str) -> URL:
    """Parse the URL of a database.

    Raises:
        UsageError: `url` is not a valid URL, or names another kind of database.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageError(f"{url!r} is no URL of a database: {error}") from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageError(f"{parsed}: expected sqlite:///FILE or postgresql://HOST/NAME")
    return parsed


def open_database(url: str, *, busy_s: float = BUSY_S) -> Engine:
    """Return an engine for the SQLite or PostgreSQL database at `url`.

    Who finds an SQLite file in use waits `busy_s` for it.

    Raises:
        UsageError: `url` is not a valid URL, or names another kind of database.
    """
    parsed = parse_url(url)
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    try:
        if parsed.get_backend_name() == "sqlite":
            engine = create_engine(parsed, connect_args={"timeout": busy_s})
            event.listen(engine, "do_connect", _make_private)
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            # COPY bypasses SQLAlchemy, which then does not notice that a connection is dead.
            engine = create_engine(parsed, pool_pre_ping=True)
            event.listen(engine, "connect", _prepare_postgresql)
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(f"{url!r} is no URL of a database: {error}") from None
    except ImportError as error:
        raise UsageError(
            f"the driver for {url.partition(':')[0]} is not installed ({error}); {advice('sql')}"
        ) from None
    return engine


def _make_private(_: object, __: object, arguments: list[Any], ___: object) -> None:
    """Let nobody else read an SQLite file; those that it makes beside it get the same mode."""
    path = str(arguments[0])
    if path != ":memory:" and not path.startswith("file:"):
        with suppress(OSError):  # SQLite says what is wrong with it
            make_private_file(Path(path))


def _prepare_sqlite(connection: Any, record: object) -> None:
    # With Python's own transactions, a table would survive a rollback.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _prepare_postgresql(connection: Any, record: object) -> None:
    # In another zone, the first and last moments that Python supports would be out of range.
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the write lock at once: a transaction that began as a reader fails instead
    # of waiting for another writer.
    is_writing = connection.get_execution_options().get(_WRITING)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes; all of it happens, or nothing."""
    with _explained(engine), engine.connect() as connection:
        connection.execution_options(**{_WRITING: True})
        with connection.begin():
            yield connection


@contextmanager
def outside_transactions(engine: Engine) -> Iterator[Connection]:
    """Open a connection on which each statement is committed by itself."""
    with _explained(engine), engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads one consistent state."""
    options = {"isolation_level": "REPEATABLE READ"} if _is_postgresql(engine) else {}
    with _explained(engine), engine.connect() as connection:
        connection.execution_options(**options)
        with connection.begin():
            yield connection


def is_one_of(
    connection: Connection, column: ColumnElement[str], values: Sequence[str]
) -> ColumnElement[bool]:
    """Return the condition that a column has one of many values.

    PostgreSQL gets all values in one parameter, because a thousand parameters are slow.
    """
    if connection.dialect.name == "postgresql":
        return column == any_(cast(literal(_array_text(values), Text()), ARRAY(Text())))
    return column.in_(values)


def _array_text(values: Sequence[str]) -> str:
    """Write strings as a PostgreSQL array; the driver would take five times as long.

    >>> print(_array_text(["NULL", "a,b", 'say "\\\\"', ""]))
    {"NULL","a,b","say \\"\\\\\\"",""}
    """
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"


def _is_postgresql(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


@contextmanager
def _explained(engine: Engine) -> Iterator[None]:
    """Translate the errors of the database inside the `with` block."""
    try:
        yield
    except (SQLAlchemyError, _driver_error(engine)) as error:
        raise explain(error, engine) from error
    except UnicodeEncodeError as error:
        raise BadValue(f"a string cannot be stored: {error}") from None


def _driver_error(engine: Engine) -> type[Exception]:
    found: type[Exception] = engine.dialect.loaded_dbapi.Error  # COPY bypasses SQLAlchemy
    return found


def sqlstate(error: BaseException | None) -> str:
    """Return PostgreSQL's error code, or an empty string."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlstate", None) or ""


def explain(error: Exception, engine: Engine) -> StoreError:
    """Return the `StoreError` that says what a database's error means."""
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    path = engine.url.render_as_string(hide_password=True)
    what = str(cause).strip().replace("\n", "; ")
    dbapi = engine.dialect.loaded_dbapi
    if sqlstate(error) == _DISK_FULL or "disk is full" in what:
        return StoreFull(f"no room in {path}: {what}; nothing of this batch was kept", path=path)
    if isinstance(cause, (dbapi.ProgrammingError, dbapi.DataError, dbapi.IntegrityError)) or (
        "no such " in what or "has no column" in what
    ):
        message = f"{path} refused what fits its catalog: {what}"
        return StoreCorrupt(message, path=path, problems=(what,))
    return StoreError(f"{path} cannot be used now: {what}; nothing was changed", path=path)
