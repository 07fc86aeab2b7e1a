"""The options of a query that reads a journal, given by `option(...)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from infobus.bus.settings import load_settings
from infobus.errors import UsageError
from infobus.filters import compile
from infobus.stores.journal.journal import Journal, Selection
from infobus.subjects import check_pattern

_KNOWN = {
    name.lower(): name
    for name in (
        "journal subject where type subtypes since until columns pushdown live startingOffset "
        "maxEventsPerTrigger maxBytesPerTrigger bus home connect listen path"
    ).split()
}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of the source, read and checked."""

    journal: Path
    live: bool
    subject: str | None = None
    where: str | None = None
    type: str | None = None
    subtypes: bool = False
    since: datetime | None = None
    until: datetime | None = None
    columns: tuple[str, ...] | None = None
    pushdown: bool = False
    starting: int | str = "earliest"
    events_max: int | None = None
    bytes_max: int | None = None
    bus: str = "default"
    home: Path = Path()
    connect: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
        """Read the options given to `spark.read` or `spark.readStream`.

        Raises:
            UsageError: An option is unknown, or its value makes no sense.
        """
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name not in _KNOWN:
                raise UsageError(
                    f"the source infobus has no option {name!r}; known are "
                    f"{', '.join(_KNOWN.values())}"
                )
        settings = load_settings(bus=options.get("bus"), home=options.get("home"))
        subject, where = options.get("subject"), options.get("where")
        if subject is not None:
            check_pattern(subject)
        if where is not None:
            compile(where)
        folder = options.get("journal", options.get("path"))
        if folder is None:
            folder = str(live_folder(settings.home, settings.bus, subject or ">"))
            is_live = is_stream
        else:
            is_live = False
        columns = options.get("columns")
        return cls(
            journal=Path(folder).expanduser().absolute(),
            live=_flag("live", options.get("live"), is_live),
            subject=subject,
            where=where,
            type=options.get("type"),
            subtypes=_flag("subtypes", options.get("subtypes"), False),
            since=_moment("since", options.get("since")),
            until=_moment("until", options.get("until")),
            columns=None if columns is None else tuple(one.strip() for one in columns.split(",")),
            pushdown=_flag("pushdown", options.get("pushdown"), False),
            starting=_starting(options.get("startingoffset", "earliest")),
            events_max=_count("maxEventsPerTrigger", options.get("maxeventspertrigger")),
            bytes_max=_count("maxBytesPerTrigger", options.get("maxbytespertrigger")),
            bus=settings.bus,
            home=settings.home,
            connect=_list(options.get("connect")),
            listen=_list(options.get("listen")),
        )

    def select(self, journal: Journal, columns: tuple[str, ...] | None = None) -> Selection:
        """Select the events that the options ask for; only `columns`, if given."""
        return journal.select(
            self.type,
            subtypes=self.subtypes,
            subject=self.subject,
            where=self.where,
            since=self.since,
            until=self.until,
            columns=columns or self.columns,
        )


def live_folder(home: Path, bus: str, subject: str) -> Path:
    """Return the default folder for the journal of a subject."""
    return home / "buses" / quote(bus, safe="") / "journals" / quote(subject, safe="")


def _flag(name: str, value: str | None, default: bool) -> bool:
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise UsageError(f"option {name}={value!r}: expected true or false")
    return value.lower() == "true"


def _count(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise UsageError(f"option {name}={value!r}: expected a whole number of at least 1")
    return int(value)


def _starting(value: str) -> int | str:
    if value.isdigit():
        return int(value)
    if value not in ("earliest", "latest"):
        raise UsageError(f"option startingOffset={value!r}: expected earliest, latest or an offset")
    return value


def _moment(name: str, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        try:
            moment = datetime.fromtimestamp(float(value), UTC)
        except (ValueError, OverflowError, OSError):
            moment = datetime.min
    if moment.utcoffset() is None:
        raise UsageError(
            f"option {name}={value!r}: expected a time with its zone, such as "
            "2026-11-16T08:00:00Z, or seconds since 1970"
        )
    return moment


def _list(value: str | None) -> tuple[str, ...]:
    return () if not value else tuple(one.strip() for one in value.split(","))


def arguments(options: SourceOptions) -> list[Any]:
    """Return the command line arguments that select the bus."""
    found: list[Any] = ["--bus", options.bus, "--home", options.home]
    for name, endpoints in (("--connect", options.connect), ("--listen", options.listen)):
        for endpoint in endpoints:
            found += [name, endpoint]
    return found
