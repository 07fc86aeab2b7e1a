"""`infobus ledger`: show, verify and repair the guaranteed events that a home keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from infobus import UsageError
from infobus.bus.settings import consumers_folder, ledgers_folder, load_settings
from infobus.cli.ledger_table import holdings, show
from infobus.cli.options import AsJson, WhichHome, grouped, refuse_early_options
from infobus.cli.terminal import write_json
from infobus.errors import DurableInUse, LedgerInUse, StoreCorrupt, StoreError
from infobus.printable import printable
from infobus.stores.ledger.consumer_store import (
    consumer_names,
    consumer_path,
    forget,
    repair_consumer,
)
from infobus.stores.ledger.folder import glance, ledger_ids
from infobus.stores.ledger.inspection import check_consumer, check_ledger
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.repair import Repaired
from infobus.stores.ledger.repair import repair as repair_ledger

app = typer.Typer(rich_markup_mode="rich")


@dataclass(frozen=True)
class LedgerFile:
    """A ledger or a durable consumer of the home."""

    id: Annotated[str | None, typer.Argument(metavar="ID", help="The ID of a ledger.")] = None
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="NAME", help="The file of this durable consumer."),
    ] = None


@app.callback(invoke_without_command=True)
@grouped
def list_all(context: typer.Context, which: WhichHome, as_json: AsJson = False) -> None:
    """Show the ledgers of a home, the progress of their consumers, and the durable consumers.

    \b
    Check everything                    infobus ledger verify
    Salvage a damaged ledger            infobus ledger repair ID
    Forget a consumer that is gone      infobus ledger drop NAME
    """
    if context.invoked_subcommand:
        refuse_early_options(context)
        return
    found = holdings(*_folders(which))
    if as_json:
        write_json(found)
    else:
        show(found)


@app.command()
@grouped
def verify(which: WhichHome, target: LedgerFile, as_json: AsJson = False) -> None:
    """Read everything that is kept, and report what is damaged. Exit code: 1 if anything is.

    Without ID and --consumer, check all ledgers and durable consumers of the home.
    """
    ledgers, consumers = _folders(which)
    ids = [] if target.id is None else [target.id]
    names = [] if target.consumer is None else [target.consumer]
    if target == LedgerFile():
        ids, names = ledger_ids(ledgers), consumer_names(consumers)
    about_ledgers = {one: _trouble(check_ledger, ledgers, one) for one in ids}
    about_consumers = {one: _trouble(check_consumer, consumers, one) for one in names}
    if as_json:
        found = {"ledgers": about_ledgers, "consumers": about_consumers}
        write_json({kind: _problems(about) for kind, about in found.items()})
    else:
        _tell("ledger", about_ledgers)
        _tell("durable consumer", about_consumers)
        if not ids and not names:
            print("nothing is kept here")
    if any([*about_ledgers.values(), *about_consumers.values()]):
        raise typer.Exit(1)


def _trouble(check: Callable[[Path, str], None], folder: Path, id: str) -> StoreError | None:
    try:
        check(folder, id)
    except StoreError as error:
        return error
    return None


def _problems(about: dict[str, StoreError | None]) -> dict[str, list[str]]:
    return {
        id: list(error.problems) if isinstance(error, StoreCorrupt) else [str(error)] * bool(error)
        for id, error in about.items()
    }


def _tell(kind: str, about: dict[str, StoreError | None]) -> None:
    for id, error in about.items():
        print(printable(str(error) if error else f"{kind} {id} is whole"))


@app.command()
@grouped
def repair(which: WhichHome, target: LedgerFile, as_json: AsJson = False) -> None:
    """Salvage what is intact in a damaged ledger, or in a durable consumer's file.

    The damaged file is set aside. A file without damage stays as it is. A repaired ledger serves
    the events it has and accepts no more; new events go to another ledger.
    """
    id, consumer = target.id, target.consumer
    if (id is None) == (consumer is None):
        raise UsageError("say what to repair: the ID of a ledger, or --consumer NAME")
    ledgers, consumers = _folders(which)
    with _advice():
        if id is not None:
            done = repair_ledger(ledgers, id)
            told, found = _outcome(done), asdict(done)
            aside = done.aside
        elif consumer is not None:
            aside = repair_consumer(consumers, consumer)
            told, found = _consumer_outcome(consumer, aside), {"name": consumer}
    if as_json:
        write_json(found | {"aside": aside and str(aside)})
    else:
        print(told)
        if aside is not None:
            print(f"the damaged file is kept: {aside}")


def _outcome(done: Repaired) -> str:
    if done.aside is None:
        return f"ledger {done.id} is whole, with {done.count} events; nothing was changed"
    lost = ", ".join(f"{first} to {last}" for first, last in done.lost) or "none that is known"
    return f"ledger {done.id}: {done.count} events saved; numbers lost: {lost}"


def _consumer_outcome(name: str, aside: Path | None) -> str:
    what = f"durable consumer {printable(name)}"
    if aside is None:
        return f"{what} is whole; nothing was changed"
    return f"{what}: saved; events that it has settled may come again"


@app.command()
@grouped
def seal(
    which: WhichHome, id: Annotated[str, typer.Argument(metavar="ID", help="The ID of a ledger.")]
) -> None:
    """Close a ledger to new events; they go to another ledger.

    Use this after you restore a ledger from an older copy, before any program uses it. It would
    otherwise give new events numbers that consumers have already settled.
    """
    ledgers, _ = _folders(which)
    with _advice(), Ledger.open(ledgers, id) as ledger:
        ledger.seal("it was sealed")
        print(f"ledger {ledger.id}: sealed, with {ledger.extent.count} events")


@app.command()
@grouped
def drop(
    which: WhichHome,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A durable consumer that will never return.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Forget a durable consumer: events are no longer kept for it.

    It is removed from all ledgers of the home and from the home's own consumers. If it returns
    after all, it starts from the beginning.
    """
    ledgers, consumers = _folders(which)
    ids = [id for id in ledger_ids(ledgers) if name in glance(ledgers, id).positions]
    is_here = consumer_path(consumers, name).exists()
    if not ids and not is_here:
        raise UsageError(f"no ledger and no file of this home knows a durable consumer {name!r}")
    with _advice(), ExitStack() as opened:
        # All or nothing: hold every ledger before changing any.
        known_to = [opened.enter_context(Ledger.open(ledgers, id)) for id in ids]
        if not yes:
            typer.confirm(_question(name, known_to, is_here), abort=True, err=True)
        if is_here:
            forget(consumers, name)
        for one in known_to:
            one.drop(name)
    places = [f"ledger {id}" for id in ids] + ["this home's consumers"] * is_here
    print(f"dropped {printable(name)} from {', '.join(places)}")


def _question(name: str, known_to: Iterable[Ledger], is_here: bool) -> str:
    waiting = sum(one.next - 1 - one.positions()[name].position for one in known_to)
    where = "registered in this home, " * is_here
    return f"Drop {printable(name)} for good ({where}up to {waiting} events wait for it)?"


@contextmanager
def _advice() -> Iterator[None]:
    """Add to an error what to do about a program that is in the way."""
    what = "stop the programs that use this home first, then run this again"
    try:
        yield
    except DurableInUse as error:
        raise DurableInUse(f"{error}: {what}", name=error.name) from error
    except LedgerInUse as error:
        raise LedgerInUse(f"{error}: {what}", path=error.path) from error


def _folders(which: WhichHome) -> tuple[Path, Path]:
    """The folders of the ledgers and of the durable consumers."""
    found = load_settings(bus=which.bus, home=which.home)
    return ledgers_folder(found.home, found.bus), consumers_folder(found.home, found.bus)
