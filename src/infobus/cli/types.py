"""`infobus types`: the types that programs on the bus know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

import infobus
from infobus import Bus, Type, UsageError
from infobus.cli.options import AsJson, WhichBus, complete_types, grouped
from infobus.cli.terminal import console, note, suggestion, table, write_json
from infobus.printable import printable


@grouped
def command(
    which: WhichBus,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this type in full.", autocompletion=complete_types
        ),
    ] = None,
    as_json: AsJson = False,
    as_schema: Annotated[
        bool,
        typer.Option(
            "--json-schema", help="Print the JSON schema of the objects, and nothing else."
        ),
    ] = False,
) -> None:
    """List the types known on the bus, subtypes indented.

    With a NAME, show that type in full: inherited attributes, operations and subtypes. If
    programs have different definitions of it, you see each of them.
    """
    with which.join() as node:
        known = types_on_bus(node, name) if name else node.types()
    if as_schema:
        write_json(infobus.json_schema(*known[:1] if name else known))
    elif as_json:
        write_json(*(type_.to_dict() for type_ in known))
    elif name:
        if len(known) > 1:
            note(f"{len(known)} definitions of {name} live on the bus")
        for type_ in known:
            infobus.describe(type_)
        if known[0].subtypes:
            console().print(_tree(known[0]))
    else:
        console().print(_table(known))


def type_on_bus(bus: Bus, name: str) -> Type:
    """The type of that name, which some node on the bus must know."""
    return types_on_bus(bus, name)[0]


def types_on_bus(bus: Bus, name: str) -> list[Type]:
    """The definitions of that name that nodes on the bus have, at least one."""
    known = bus.types()
    found = [type_ for type_ in known if type_.name == name]
    if not found:
        hint = suggestion(name, [type_.name for type_ in known])
        raise UsageError(f"no program on the bus {bus.name!r} knows a type {name!r}{hint}")
    return found


def _table(known: Iterable[Type]) -> Table:
    drawn = table("type", "supertypes", "own attributes")
    drawn.columns[0].style, drawn.columns[1].style = "bold", "magenta"
    drawn.columns[0].no_wrap = True
    for depth, type_ in _in_order(known):
        own = [a for a in type_.attributes if a.inherited_from is None]
        drawn.add_row(
            "  " * depth + printable(type_.name),
            ", ".join(printable(above.name) for above in type_.supertypes),
            Text(", ".join(f"{a.name}: {a.type}" for a in own)),
        )
    return drawn


def _in_order(known: Iterable[Type]) -> Iterator[tuple[int, Type]]:
    """Each type once, below its first supertype, with its depth."""
    below: dict[str, list[Type]] = {}
    names = {type_.name for type_ in known}
    for type_ in known:
        above = next((s.name for s in type_.supertypes if s.name in names), "")
        below.setdefault(above, []).append(type_)

    def walk(name: str, depth: int) -> Iterator[tuple[int, Type]]:
        shown: set[str] = set()
        for type_ in below.get(name, ()):
            yield depth, type_
            if type_.name not in shown:  # it may have several definitions
                shown.add(type_.name)
                yield from walk(type_.name, depth + 1)

    return walk("", 0)


def _tree(type_: Type) -> Tree:
    tree = Tree(Text(printable(type_.name), "bold"))
    for subtype in type_.subtypes:
        tree.add(_tree(subtype))
    return tree
