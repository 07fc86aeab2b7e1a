"""`infobus types`: the types that programs on the bus know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

import infobus
from infobus import Type
from infobus.cli.lines import printable, to_json
from infobus.cli.options import BusName, Connect, Home, Listen, complete_types, join, type_on_bus


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this type in full.", autocompletion=complete_types),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per type.")] = False,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """List the types known on the bus, subtypes indented.

    With a NAME: that type in full, with inherited attributes, operations and subtypes.
    """
    with join(bus, home, connect, listen) as node:
        known = [type_on_bus(node, name)] if name else node.types()
    console = Console(highlight=False)
    if as_json:
        for type_ in known:
            print(to_json(type_.to_dict()))
    elif name:
        infobus.describe(known[0])
        if known[0].subtypes:
            console.print(_tree(known[0]))
    else:
        console.print(_table(known))


def _table(known: Iterable[Type]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("type", style="bold", no_wrap=True)
    table.add_column("supertypes", style="magenta")
    table.add_column("own attributes")
    for depth, type_ in _in_order(known):
        own = [a for a in type_.attributes if a.inherited_from is None]
        table.add_row(
            Text("  " * depth + printable(type_.name)),
            Text(", ".join(printable(above.name) for above in type_.supertypes)),
            Text(", ".join(f"{a.name}: {a.type}" for a in own)),
        )
    return table


def _in_order(known: Iterable[Type]) -> Iterator[tuple[int, Type]]:
    """Each type once, below its first supertype, with how deep it stands there."""
    below: dict[str, list[Type]] = {}
    names = {type_.name for type_ in known}
    for type_ in known:
        above = next((s.name for s in type_.supertypes if s.name in names), "")
        below.setdefault(above, []).append(type_)

    def walk(name: str, depth: int) -> Iterator[tuple[int, Type]]:
        for type_ in below.get(name, ()):
            yield depth, type_
            yield from walk(type_.name, depth + 1)

    return walk("", 0)


def _tree(type_: Type) -> Tree:
    tree = Tree(Text(printable(type_.name), "bold"))
    for subtype in type_.subtypes:
        tree.add(_tree(subtype))
    return tree
