"""The options of a query that reads a journal, given by `option(...)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from infobus.bus.settings import load_settings
from infobus.errors import UsageError
from infobus.filters import compile
from infobus.pipeline.source.positions import offset_at
from infobus.stores.journal.journal import Journal, Selection
from infobus.stores.journal.manifest import local_folder
from infobus.subjects import check_pattern

_KNOWN = {
    name.lower(): name
    for name in (
        "journal subject where type subtypes since until columns attributes pushdown live "
        "startingOffset startingTimestamp endingOffset endingTimestamp minPartitions "
        "maxEventsPerTrigger maxBytesPerTrigger failOnDataLoss newColumns keepDays keepMb "
        "bus home connect listen path"
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
    attributes: frozenset[str] | None = None
    """Of events without a type: only these attributes."""
    pushdown: bool | None = None
    starting: int | str = "earliest"
    starting_at: datetime | None = None
    ending: int | None = None
    ending_at: datetime | None = None
    parts_min: int | None = None
    fail_on_data_loss: bool = True
    new_columns: str = "end"
    keep_days: float | None = None
    keep_mb: float | None = None
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
        _check(options)
        settings = load_settings(bus=options.get("bus"), home=options.get("home"))
        subject = options.get("subject")
        folder = options.get("journal", options.get("path"))
        if folder is None:
            folder = str(live_folder(settings.home, settings.bus, subject or ">"))
            is_live = is_stream
        else:
            is_live = False
        columns = options.get("columns")
        is_live = flag("live", options.get("live"), is_live)
        if is_stream and not is_live and (options.keys() & {"keepdays", "keepmb"}):
            raise UsageError(
                "options keepDays and keepMb are for a live query, which writes its journal; for "
                "another journal: infobus journal record --keep-days ... --keep-mb ..."
            )
        return cls(
            journal=local_folder(folder).expanduser().absolute(),
            live=is_live,
            subject=subject,
            where=options.get("where"),
            type=options.get("type"),
            subtypes=flag("subtypes", options.get("subtypes"), False),
            since=_moment("since", options.get("since")),
            until=_moment("until", options.get("until")),
            columns=None if columns is None else tuple(one.strip() for one in columns.split(",")),
            attributes=_names(options.get("attributes")),
            pushdown=_maybe_flag("pushdown", options.get("pushdown")),
            starting=_starting(options.get("startingoffset", "earliest")),
            starting_at=_moment("startingTimestamp", options.get("startingtimestamp")),
            ending=_ending(options.get("endingoffset", "latest")),
            ending_at=_moment("endingTimestamp", options.get("endingtimestamp")),
            parts_min=_count("minPartitions", options.get("minpartitions")),
            fail_on_data_loss=flag("failOnDataLoss", options.get("failondataloss"), True),
            new_columns=_choice("newColumns", options.get("newcolumns"), ("end", "ignore")),
            keep_days=_amount("keepDays", options.get("keepdays")),
            keep_mb=_amount("keepMb", options.get("keepmb")),
            events_max=_count("maxEventsPerTrigger", options.get("maxeventspertrigger")),
            bytes_max=_count("maxBytesPerTrigger", options.get("maxbytespertrigger")),
            bus=settings.bus,
            home=settings.home,
            connect=_list(options.get("connect")),
            listen=_list(options.get("listen")),
        )

    def select(self, journal: Journal, columns: tuple[str, ...] | None = None) -> Selection:
        """Select the events that the options ask for; only `columns`, if given."""
        selection = journal.select(
            self.type,
            subtypes=self.subtypes,
            subject=self.subject,
            where=self.where,
            since=self.since,
            until=self.until,
            columns=columns or self.columns,
        )
        return replace(selection, attributes=self.attributes)

    def start_in(self, journal: Journal) -> int | None:
        """Return the first offset of a batch read; None for the beginning."""
        if self.starting_at is not None:
            return offset_at(journal, self.starting_at)
        if self.starting == "latest":
            raise UsageError(
                "option startingOffset='latest': a batch read begins at earliest or at an offset"
            )
        return self.starting if isinstance(self.starting, int) else None

    def stop_in(self, journal: Journal) -> int | None:
        """Return the offset at which reading ends; None for the end of the journal."""
        return self.ending if self.ending_at is None else offset_at(journal, self.ending_at)

    @property
    def is_narrow(self) -> bool:
        """Return whether something says that not the whole journal is wanted."""
        asked = (self.subject, self.where, self.type, self.since, self.until, self.columns)
        return self.attributes is not None or any(one is not None for one in asked)


def live_folder(home: Path, bus: str, subject: str) -> Path:
    """Return the default folder for the journal of a subject."""
    return home / "buses" / quote(bus, safe="") / "journals" / quote(subject, safe="")


def flag(name: str, value: str | None, default: bool) -> bool:
    """Return whether an option is `true`.

    Raises:
        UsageError: It is neither `true` nor `false`.
    """
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise UsageError(f"option {name}={value!r}: expected true or false")
    return value.lower() == "true"


def _maybe_flag(name: str, value: str | None) -> bool | None:
    return None if value is None else flag(name, value, False)


def _choice(name: str, value: str | None, known: tuple[str, ...]) -> str:
    if value is None:
        return known[0]
    if value not in known:
        raise UsageError(f"option {name}={value!r}: expected {' or '.join(known)}")
    return value


def _amount(name: str, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        amount = float(value)
    except ValueError:
        amount = -1.0
    if not 0 < amount < float("inf"):
        raise UsageError(f"option {name}={value!r}: expected a number above 0")
    return amount


def _check(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _KNOWN:
            raise UsageError(
                f"the source infobus has no option {name!r}; known are {', '.join(_KNOWN.values())}"
            )
    if "subject" in options:
        check_pattern(options["subject"])
    if "where" in options:
        compile(options["where"])
    for one, other in (
        ("startingOffset", "startingTimestamp"),
        ("endingOffset", "endingTimestamp"),
        ("attributes", "type"),
    ):
        if one.lower() in options and other.lower() in options:
            what = "columns is the option then" if one == "attributes" else "which of them counts?"
            raise UsageError(f"options {one} and {other} are both given: {what}")


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


def _ending(value: str) -> int | None:
    if value.isdigit():
        return int(value)
    if value != "latest":
        raise UsageError(f"option endingOffset={value!r}: expected latest or an offset")
    return None


def _names(value: str | None) -> frozenset[str] | None:
    return None if value is None else frozenset(one for one in _list(value) if one)


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
