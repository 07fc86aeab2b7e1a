"""The options that several commands share, each declared once.

An option that stands alone is a type alias, such as `AsJson`. Options that go together are the
fields of a dataclass, such as `WhichBus`: a command takes one parameter of that class, and the
decorator `grouped` shows Typer the fields in its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import infobus
from infobus import Bus
from infobus.bus.settings import Settings, load_settings

_bus_option = functools.partial(typer.Option, rich_help_panel="Which bus")

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for other programs, one value per line.")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="Only objects that match this filter, such as 'symbol == \"GMC\" && price > 40'.",
    ),
]
Patterns = Annotated[
    list[str],
    typer.Argument(
        metavar="PATTERN",
        help="Subjects; [b]*[/b] stands for one element, a final [b]>[/b] for one or more.",
    ),
]
Guaranteed = Annotated[
    bool,
    typer.Option(
        "--guaranteed", help="Keep each event on disk until every durable consumer has it."
    ),
]
HeaderItems = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=TEXT",
        help="Say this beside it, such as trace=4bf92f; NAME:=JSON is a number or a bool. "
        "May be repeated.",
    ),
]
TestEvents = Annotated[bool, typer.Option("--test", help="Include test events.")]
JournalFolder = Annotated[
    Path, typer.Option("--journal", metavar="DIR", help="The journal that holds the history.")
]

OnSpark = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark",
        show_default=False,
        help="Use Spark, or do not; by default for more than 200,000 events.",
    ),
]

DEFAULT_DB = "sqlite:///infobus.db"
Database = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="INFOBUS_DB",
        metavar="URL",
        help="sqlite:///FILE or postgresql://USER@HOST/NAME.",
    ),
]


@dataclass(frozen=True)
class WhichHome:
    """The bus and the home whose files a command looks at."""

    bus: Annotated[
        str | None,
        _bus_option(
            "--bus",
            envvar="INFOBUS_BUS",
            metavar="NAME",
            help="Name of the bus; you do not hear other buses.",
        ),
    ] = None
    home: Annotated[
        str | None,
        _bus_option(
            "--home",
            envvar="INFOBUS_HOME",
            metavar="FOLDER",
            help="Folder for everything that must survive a restart.",
        ),
    ] = None

    def settings(self) -> Settings:
        """What is named here, with the environment and the settings file."""
        return load_settings(bus=self.bus, home=self.home)


@dataclass(frozen=True)
class WhichBus(WhichHome):
    """The bus that a command joins."""

    connect: Annotated[
        list[str] | None,
        _bus_option(
            "--connect",
            metavar="ENDPOINT",
            help="Also connect to this endpoint, such as tcp/10.0.0.7:7500. May be repeated.",
        ),
    ] = None
    listen: Annotated[
        list[str] | None,
        _bus_option(
            "--listen",
            metavar="ENDPOINT",
            help="Also listen at this endpoint, such as tcp/0.0.0.0:7500. May be repeated.",
        ),
    ] = None

    insecure: Annotated[
        bool | None,
        _bus_option("--insecure", help="Listen without TLS: let in anyone who can reach it."),
    ] = None

    def join(self, name: str | None = None) -> Bus:
        """Join the bus; `connect` decides whatever the options leave open."""
        return infobus.connect(
            self.bus,
            name=name,
            home=self.home,
            connect=self.connect or None,
            listen=self.listen or None,
            insecure=self.insecure,
        )


@dataclass(frozen=True)
class Until:
    """When a command that watches the bus ends by itself."""

    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after this many events.")
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End after this many seconds.")
    ] = None


@dataclass(frozen=True)
class Quality:
    """The priority class of events, and how old they may become."""

    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="CLASS",
            help="Such as [b]emergency[/b], [b]business[/b], [b]regular[/b]; "
            "a higher class overtakes a lower one.",
        ),
    ] = None
    max_age: Annotated[
        float | None,
        typer.Option(
            "--max-age",
            metavar="SECONDS",
            help="Discard events older than this, wherever they wait.",
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """The same for `Bus.publish` and `Bus.subscribe`."""
        return {"priority": self.priority, "max_age": self.max_age}


@dataclass(frozen=True)
class SealingKeys:
    """The keys of events that are published; see `infobus keys event`."""

    sign: Annotated[
        str | None,
        typer.Option("--sign", metavar="KEY", help="Sign it with this pair of keys of the home."),
    ] = None
    seal_to: Annotated[
        list[str] | None,
        typer.Option(
            "--seal-to", metavar="KEY", help="Seal it for who holds this key. May be repeated."
        ),
    ] = None
    clear: Annotated[
        list[str] | None,
        typer.Option(
            "--clear", metavar="NAME", help="Leave this attribute readable. May be repeated."
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """The same for `Bus.publish`."""
        return {"sign": self.sign, "seal_to": self.seal_to, "clear": self.clear or ()}


@dataclass(frozen=True)
class OpeningKeys:
    """The keys of events that are received; see `infobus keys event`."""

    signed_by: Annotated[
        list[str] | None,
        typer.Option(
            "--signed-by", metavar="KEY", help="Only what this key has signed. May be repeated."
        ),
    ] = None
    holds: Annotated[
        list[str] | None,
        typer.Option(
            "--holds", metavar="KEY", help="Open what is sealed for this key. May be repeated."
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """The same for `Bus.subscribe`; none if no key is named."""
        if not (self.signed_by or self.holds):
            return {}
        return {"signed_by": self.signed_by, "holds": self.holds or ()}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: Typer sees the fields, the command gets the groups.

    Groups have no default, so they come first in the command; its help shows them last.

    >>> @grouped
    ... def command(until: Until, subject: str) -> None:
    ...     print(subject, until)
    >>> list(inspect.signature(command).parameters)
    ['subject', 'count', 'seconds']
    >>> command(subject="news", count=3, seconds=None)
    news Until(count=3, seconds=None)
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)
    }
    own = [
        one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(command).parameters.values()
        if one.name not in groups
    ]
    parameters = own + [one for group in groups.values() for one in _parameters_of(group)]

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            fields = dataclasses.fields(group)
            given[name] = group(**{field.name: given.pop(field.name) for field in fields})
        command(**given)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {one.name: one.annotation for one in parameters}
    return flat


def _parameters_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(group).parameters.values()
    ]


def refuse_early_options(context: typer.Context) -> None:
    """Refuse options before the name of a subcommand, which Typer would ignore.

    Raises:
        UsageError: There is one; the message says where it belongs.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            raise infobus.UsageError(
                f"{option} belongs after the command: "
                f"infobus {context.info_name} {context.invoked_subcommand} {option} ..."
            )


def complete_types(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the names of types on the bus that begin with the text typed so far."""
    fields = dataclasses.fields(WhichBus)
    which = WhichBus(**{field.name: context.params.get(field.name) for field in fields})
    # The command itself reports what is wrong; completion must not break the line being typed.
    with contextlib.suppress(infobus.BusError), which.join() as bus:
        return [known.name for known in bus.types(0.5) if known.name.startswith(incomplete)]
    return []
