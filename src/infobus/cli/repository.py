"""`infobus repository`: look after a database of objects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from infobus import UsageError
from infobus.cli.options import DEFAULT_DB, Database, Where, grouped
from infobus.cli.query import open_repository
from infobus.printable import printable

app = typer.Typer(
    no_args_is_help=True, help="Look after a database of objects: indexes, and what is deleted."
)
TypeName = Annotated[
    str, typer.Argument(metavar="TYPE", help="A type, with its subtypes; or [b]dict[/b].")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True)
class Deleted:
    """Which objects are deleted."""

    where: Where = None
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="TIME",
            help="Only objects published before this time, such as 2026-11-16T08:00:00Z.",
        ),
    ] = None


@app.command()
def index(
    type_name: TypeName,
    attribute: Annotated[
        str,
        typer.Argument(metavar="ATTRIBUTE", help="An attribute, or [b]_time[/b], [b]_subject[/b]."),
    ],
    db: Database = DEFAULT_DB,
) -> None:
    """Let the database find objects by an attribute, also those of subtypes that come later.

    \b
    infobus repository index Story published
    infobus query Story --order=-published --limit 10

    In PostgreSQL, others can write meanwhile.
    """
    with open_repository(db) as repository:
        count = repository.index(type_name, attribute)
    tables = "table" if count == 1 else "tables"
    print(f"{printable(attribute)} is indexed in {count} {tables}")


@app.command()
@grouped
def delete(
    which: Deleted, type_name: TypeName, db: Database = DEFAULT_DB, yes: Yes = False
) -> None:
    """Delete objects of a type and of its subtypes, with all that belongs to them.

    \b
    infobus repository delete Story --where '"oil" in topics'
    infobus repository delete Story --before 2026-01-01T00:00:00Z --yes
    """
    before = None if which.before is None else _moment(which.before)
    with open_repository(db) as repository:
        if not yes:
            which_ones = "these" if which.where or which.before else "all"
            question = f"Delete {which_ones} objects of {type_name} for good?"
            typer.confirm(printable(question), abort=True, err=True)
        count = repository.delete(type_name, which.where, before=before)
    print(f"{count:,} objects deleted")


@app.command()
def prune(
    keep_days: Annotated[
        float, typer.Option("--keep-days", metavar="N", min=0, help="Keep this many days.")
    ],
    db: Database = DEFAULT_DB,
) -> None:
    """Delete everything that was published longer ago; `infobus capture --keep-days` does so.

    Objects that were stored without a time stay.
    """
    with open_repository(db) as repository:
        count = repository.prune(datetime.now(UTC) - timedelta(days=keep_days))
    print(f"{count:,} objects deleted")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--before {text!r}: expected a time, such as 2026-11-16T08:00Z") from None
    return moment.astimezone(UTC)
