"""`infobus tags`: the tags of a bus; who may publish and subscribe there, and what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table

from infobus import Bus, Tag, Type, UsageError
from infobus.cli.options import AsJson, Quality, WhichBus, grouped, refuse_early_options
from infobus.cli.terminal import console, note, table, write_json
from infobus.cli.types import types_on_bus
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.protocols.frames.tags import TagUser

app = typer.Typer(rich_markup_mode="rich")

TagName = Annotated[
    str, typer.Argument(metavar="TAG", help="A subject, or SUBJECT.> for all below it.")
]
AsWhom = Annotated[
    str | None,
    typer.Option(
        "--name",
        envvar="INFOBUS_NAME",
        metavar="NAME",
        help="The application that creates or deletes it.",
    ),
]


@app.callback(invoke_without_command=True)
@grouped
def group(which: WhichBus, context: typer.Context, as_json: AsJson = False) -> None:
    """List the tags of the bus; create, delete and show them.

    \b
    All tags         infobus tags
    Create one       infobus tags create 'plant.oven.>' --publish 'oven-*' --name control
    Show its users   infobus tags show 'plant.oven.>'
    Delete it        infobus tags delete 'plant.oven.>' --name control

    A tag says of the subjects that it matches which type their objects have, and which
    applications may publish and subscribe. At least one `infobus daemon` must run on the bus.
    """
    if context.invoked_subcommand is None:
        _list(which, as_json)
    else:
        refuse_early_options(context)


@app.command("list")
@grouped
def list_(which: WhichBus, as_json: AsJson = False) -> None:
    """List the tags of the bus."""
    _list(which, as_json)


@app.command()
@grouped
def create(
    which: WhichBus,
    quality: Quality,
    tag: TagName,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="The type of all objects, by a name known on the bus."
        ),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", metavar="NAME", help="Who may publish, such as 'oven-*'."),
    ] = None,
    subscribe: Annotated[
        list[str] | None,
        typer.Option("--subscribe", metavar="NAME", help="Who may subscribe, such as 'board'."),
    ] = None,
    name: AsWhom = None,
    as_json: AsJson = False,
) -> None:
    """Create a tag. You may repeat --publish and --subscribe; without them, everyone may.

    --priority and --max-age are those of events whose publisher asks for none.
    """
    with which.join(name) as node:
        if not node.application:
            raise UsageError(
                "who creates the tag? Give --name (or INFOBUS_NAME): only that application may "
                "change or delete it"
            )
        made = node.tags.create(
            tag,
            type=None if type_ is None else _type(node, type_),
            publish=publish or ("*",),
            subscribe=subscribe or ("*",),
            priority=quality.priority,
            max_age=quality.max_age,
        )
    if as_json:
        write_json(_record(made))
    else:
        note(f"{made.creator} has created tag {made.name}")


@app.command()
@grouped
def delete(
    which: WhichBus,
    tag: TagName,
    name: AsWhom = None,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it although another application created it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a tag: its subjects are as free as any other from then on."""
    with which.join(name) as node:
        node.tags.delete(tag, force=force)
    if as_json:
        write_json({"deleted": tag})
    else:
        note(f"tag {tag} is deleted")


@app.command()
@grouped
def show(which: WhichBus, tag: TagName, as_json: AsJson = False) -> None:
    """Show a tag, and the programs that publish and subscribe under it."""
    with which.join() as node:
        found = node.tags.get(tag)
        if found is None:
            raise UsageError(f"there is no tag {tag!r} on the bus {node.name!r}")
        publishers, subscribers = node.tags.publishers(tag), node.tags.subscribers(tag)
    users = {"publishers": publishers, "subscribers": subscribers}
    if as_json:
        write_json(_record(found) | {what: list(map(_user, them)) for what, them in users.items()})
        return
    console().print(_table([found]))
    for what, them in users.items():
        console().print(f"{what}: {len(them)}")
        for user in them:
            console().print(f"  {printable(user.application or '-')}  {printable(user.node)}")


def _list(which: WhichBus, as_json: bool) -> None:
    with which.join() as node:
        found = list(node.tags)
    if as_json:
        write_json(*map(_record, found))
    elif found:
        console().print(_table(found))
    else:
        note("there are no tags on the bus")


def _type(node: Bus, name: str) -> Type:
    known = types_on_bus(node, name)
    if len(known) > 1:
        raise UsageError(
            f"programs on the bus have {len(known)} definitions of {name}: create the tag in the "
            "program whose definition counts"
        )
    return known[0]


def _record(tag: Tag) -> dict[str, Any]:
    return {**msgspec.to_builtins(tag), "fingerprint": f"{tag.fingerprint:016x}"}


def _user(user: TagUser) -> dict[str, str]:
    return {"node": user.node, "application": user.application}


def _table(tags: Iterable[Tag]) -> Table:
    drawn = table("tag", "creator", "type", "publish", "subscribe", "class", "max age")
    drawn.columns[0].style = "bold cyan"
    for tag in tags:
        drawn.add_row(
            printable(tag.name),
            printable(tag.creator),
            printable(tag.type) or "any",
            ", ".join(map(printable, tag.publish)) or "nobody",
            ", ".join(map(printable, tag.subscribe)) or "nobody",
            printable(tag.priority or ""),
            "" if tag.max_age is None else f"{tag.max_age:g} s",
        )
    return drawn
