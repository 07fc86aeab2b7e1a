"""`infobus topology`: hosts, daemons, programs, and the links between them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins
from rich.table import Table

from infobus import NodeStats
from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.router_map import show_routers
from infobus.cli.stats import WAIT_S, node_reports, program_name
from infobus.cli.terminal import console, note, table, warn, write_json
from infobus.cli.topology_map import MappedProgram, by_host, draw, hosts_linked
from infobus.printable import printable
from infobus.subjects import STATS_SPACE


@grouped
def command(
    which: WhichBus,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the map into this file.")
    ] = None,
    routers: Annotated[
        bool,
        typer.Option("--routers", help="The routers beyond, and their links."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which hosts a bus has, what runs on them, and which links join them.

    Every node tells its own links; this command asks all of them, and needs a second or two. A
    program is attached if a daemon forwards for it; others have links of their own.

    \b
    infobus topology
    infobus topology --svg map.svg
    infobus topology --routers
    """
    if routers:
        show_routers(which, svg, as_json)
        return
    with which.join() as node, node.subscribe(f"{STATS_SPACE}>", on_loss="ignore") as reports:
        told: dict[str, NodeStats] = {}
        peers = set(node.stats().peers)
        for one in node_reports(node, reports, WAIT_S):
            told[one.node] = one
            if told.keys() >= (peers := set(node.stats().peers)):
                break
    places = _places(told.values())
    for silent in sorted(peers - told.keys()):
        warn(f"{silent} tells nothing: it is busy, or of an older version")
    if as_json:
        write_json(*map(to_builtins, places))
    else:
        console().print(_table(places))
    if svg is not None:
        svg.write_text(draw(places), encoding="utf-8")
        note(f"map drawn to {svg}")


def _places(told: Iterable[NodeStats]) -> list[MappedProgram]:
    told = list(told)
    nodes = {one.session: one.node for one in told}
    return [
        MappedProgram(
            one.node,
            program_name(one),
            one.host,
            one.pid,
            one.role,
            tuple(nodes[session] for session in one.links if session in nodes),
        )
        for one in told
    ]


def _table(places: list[MappedProgram]) -> Table:
    drawn = table("host", "program", "pid", "takes part", "links by host")
    for host, found in by_host(places).items():
        for number, place in enumerate(found):
            linked = hosts_linked(place, places)
            drawn.add_row(
                "" if number else printable(host),
                printable(place.name),
                str(place.pid),
                place.way,
                printable(", ".join(f"{one} {count}" for one, count in sorted(linked.items()))),
            )
        drawn.add_section()
    return drawn
