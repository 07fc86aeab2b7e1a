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
from infobus.cli.lines import printable
from infobus.cli.options import AsJson, WhichBus, complete_types, grouped
from infobus.cli.terminal import console, suggestion, table, write_json
from infobus.objects import find_type


@grouped
def command(
    which: WhichBus,
    name: Annotated[
        str | None, typer.Argument(help="Show this type in full.", autocompletion=complete_types)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the types known on the bus, subtypes indented.

    With a NAME, show that type in full: inherited attributes, operations and subtypes.
    """
    with which.join() as node:
        known = [type_on_bus(node, name)] if name else node.types()
    if as_json:
        write_json(*(type_.to_dict() for type_ in known))
    elif name:
        infobus.describe(known[0])
        if known[0].subtypes:
            console().print(_tree(known[0]))
    else:
        console().print(_table(known))


def type_on_bus(bus: Bus, name: str) -> Type:
    """The type of that name, which some node on the bus must know."""
    names = [known.name for known in bus.types()]
    found = find_type(name)
    if found is None:
        hint = suggestion(name, names)
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
        for type_ in below.get(name, ()):
            yield depth, type_
            yield from walk(type_.name, depth + 1)

    return walk("", 0)


def _tree(type_: Type) -> Tree:
    tree = Tree(Text(printable(type_.name), "bold"))
    for subtype in type_.subtypes:
        tree.add(_tree(subtype))
    return tree
