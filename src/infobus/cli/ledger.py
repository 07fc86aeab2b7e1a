"""`infobus ledger`: the guaranteed events that a home keeps, and for whom; checking and repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infobus import UsageError
from infobus.bus.folders import consumers_folder, ledgers_folder
from infobus.bus.settings import load_settings
from infobus.cli.ledger_listing import holdings, show
from infobus.cli.lines import printable, to_json
from infobus.cli.options import BusName, Home
from infobus.errors import DurableInUse, LedgerInUse, StoreCorrupt, StoreError
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

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Consumer = Annotated[
    str | None, typer.Option("--consumer", metavar="NAME", help="A durable consumer's file.")
]


@app.callback(invoke_without_command=True)
def list_all(
    context: typer.Context, as_json: AsJson = False, bus: BusName = None, home: Home = None
) -> None:
    """Show the ledgers of a home, how far their consumers are, and its durable consumers.

    \b
    Are they whole?             infobus ledger verify
    Salvage a damaged one       infobus ledger repair ID
    A consumer never returns    infobus ledger drop NAME
    """
    if context.invoked_subcommand:
        _refuse_early_options(context)
        return
    found = holdings(*_folders(bus, home))
    if as_json:
        print(to_json(found))
    else:
        show(found, Console(highlight=False))


def _refuse_early_options(context: typer.Context) -> None:
    # Otherwise they would be passed over, and the command would look at another home.
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            raise UsageError(
                f"{option} belongs after the command: "
                f"infobus ledger {context.invoked_subcommand} {option} ..."
            )


@app.command()
def verify(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A ledger.")] = None,
    consumer: Consumer = None,
    as_json: AsJson = False,
    bus: BusName = None,
    home: Home = None,
) -> None:
    """Read everything that is kept, and say what is damaged. Ends with 1 if anything is.

    Without ID and --consumer: all ledgers and durable consumers of the home.
    """
    ledgers, consumers = _folders(bus, home)
    is_all = id is None and consumer is None
    ids = ledger_ids(ledgers) if is_all else [id] if id is not None else []
    names = consumer_names(consumers) if is_all else [consumer] if consumer is not None else []
    about_ledgers = {one: _trouble(check_ledger, ledgers, one) for one in ids}
    about_consumers = {one: _trouble(check_consumer, consumers, one) for one in names}
    if as_json:
        found = {"ledgers": about_ledgers, "consumers": about_consumers}
        print(to_json({kind: _problems(about) for kind, about in found.items()}))
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
def repair(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A ledger.")] = None,
    consumer: Consumer = None,
    as_json: AsJson = False,
    bus: BusName = None,
    home: Home = None,
) -> None:
    """Salvage what is whole in a damaged ledger, or in a durable consumer's file.

    The damaged file is kept aside. One that is sound stays as it is. A repaired ledger serves
    what it has and takes no more events; the next one goes to another ledger.
    """
    if (id is None) == (consumer is None):
        raise UsageError("say what to repair: the ID of a ledger, or --consumer NAME")
    ledgers, consumers = _folders(bus, home)
    with _advice():
        if id is not None:
            done = repair_ledger(ledgers, id)
            told, found = _outcome(done), asdict(done)
            aside = done.aside
        elif consumer is not None:
            aside = repair_consumer(consumers, consumer)
            told, found = _consumer_outcome(consumer, aside), {"name": consumer}
    if as_json:
        print(to_json(found | {"aside": aside and str(aside)}))
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
def seal(
    id: Annotated[str, typer.Argument(metavar="ID", help="A ledger.")],
    bus: BusName = None,
    home: Home = None,
) -> None:
    """Let a ledger take no more events; the next one goes to another ledger.

    For a ledger that was restored from an older copy, before anything uses it: consumers have
    settled events with numbers that it would give to new ones.
    """
    ledgers, _ = _folders(bus, home)
    with _advice(), Ledger.open(ledgers, id) as ledger:
        ledger.seal("it was sealed")
        print(f"ledger {ledger.id}: sealed, with {ledger.extent.count} events")


@app.command()
def drop(
    name: Annotated[str, typer.Argument(help="A durable consumer that will never return.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bus: BusName = None,
    home: Home = None,
) -> None:
    """Forget a durable consumer: events are no longer kept for it.

    It goes from all ledgers of the home, and from the home's own consumers. Should it return
    all the same, it begins anew.
    """
    ledgers, consumers = _folders(bus, home)
    ids = [id for id in ledger_ids(ledgers) if name in glance(ledgers, id).positions]
    is_here = consumer_path(consumers, name).exists()
    if not ids and not is_here:
        raise UsageError(f"no ledger and no file of this home knows a durable consumer {name!r}")
    with _advice(), ExitStack() as opened:
        # All or none: each ledger is held before anything is changed.
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
    """Say also what to do if somebody is in the way."""
    what = "stop the programs that use this home first, then run this again"
    try:
        yield
    except DurableInUse as error:
        raise DurableInUse(f"{error}: {what}", name=error.name) from error
    except LedgerInUse as error:
        raise LedgerInUse(f"{error}: {what}", path=error.path) from error


def _folders(bus: str | None, home: str | None) -> tuple[Path, Path]:
    """The folders of the ledgers and of the durable consumers."""
    found = load_settings(bus=bus, home=home)
    return ledgers_folder(found.home, found.bus), consumers_folder(found.home, found.bus)
