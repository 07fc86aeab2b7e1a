"""`infobus router`: join the bus of a site with those of others, look at it, change it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table

from infobus import UsageError
from infobus.cli.options import AsJson
from infobus.cli.terminal import console, note, stop_when_asked, table, write, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.router.status import AgreementStatus, NeighbourStatus, RouterStatus

app = typer.Typer(
    rich_markup_mode="rich",
    no_args_is_help=True,
    help="Routers: they join the buses of sites, so that what is wanted elsewhere crosses.",
)

_LOOK_S = 0.5

Name = Annotated[
    str | None,
    typer.Option("--name", metavar="ROUTER", help="Which, if several routers run on this host."),
]


@app.command()
def run(
    settings: Annotated[Path, typer.Argument(metavar="ROUTER.toml", help="Its settings.")],
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End after this many seconds.")
    ] = None,
) -> None:
    """Be a router, until Ctrl-C or SIGTERM.

    \b
    infobus router run plant7.toml

    Exit code: 0 if it was asked to end; 2 if the settings are wrong; 1 if it could not start, for
    example because a port is taken.
    """
    from infobus.router.router import Router
    from infobus.router.settings import load_router

    err, router = console(stderr=True), Router(load_router(settings), path=settings)
    stopped = threading.Event()
    stop_when_asked(stopped.set, seconds)
    if not err.is_terminal:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with router:
        note(_greeting(router.status()))
        if err.is_terminal:
            with err.status(_line(router.status())) as shown:
                while not stopped.wait(_LOOK_S):
                    shown.update(_line(router.status()))
        else:
            stopped.wait()
        note("ending: nothing crosses here any more")
    note("ended in order")


@app.command()
def status(
    name: Name = None,
    everywhere: Annotated[
        bool, typer.Option("--all", help="All routers of the backbone, not only this one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a router of this host does: links, agreements, what crossed.

    Exit code: 1 if no router of this user runs on this host, or it does not answer.
    """
    found = _ask(name, "map" if everywhere else "status")
    told = found if everywhere else [found]
    if as_json:
        write_json(*told)
        return
    for one in map(_read, told):
        for drawn in _tables(one):
            console().print(drawn)


@app.command()
def reload(name: Name = None) -> None:
    """Have a router read its settings again; links and agreements that stay go on.

    Exit code: 2 if the settings are wrong; then nothing was changed.
    """
    for line in _ask(name, "reload") or ["nothing has changed"]:
        write(printable(line))


@app.command()
def paths(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="As it is called here.")],
    name: Name = None,
    as_json: AsJson = False,
) -> None:
    """Show where events of a subject go: who wants them, by which routers, all shortest paths.

    Exit code: 1 if nobody beyond wants them.
    """
    found = _ask(name, "paths", subject=subject)
    if as_json:
        write_json(found)
    else:
        _show_paths(found)
    if not found["wanted_by"]:
        raise typer.Exit(1)


def _ask(name: str | None, question: str, **more: Any) -> Any:
    """Ask the router of that name, or the only one of this host."""
    from infobus.router.control import ask_router, routers_here

    if name is None:
        here = routers_here()
        if not here:
            note("no router of this user runs on this host")
            raise typer.Exit(1)
        if len(here) > 1:
            raise UsageError(
                f"several routers run on this host: {', '.join(here)}; say which: --name {here[0]}"
            )
        name = here[0]
    return ask_router(name, question, **more)


def _read(told: Any) -> RouterStatus:
    from infobus.router.status import RouterStatus

    return msgspec.convert(told, RouterStatus)


def _greeting(one: RouterStatus) -> str:
    where = ", ".join(f"{name} {state}" for name, state in one.endpoints.items())
    return f"router {one.name}: bus {one.inside} and backbone {one.backbone}; {where}"


def _line(one: RouterStatus) -> str:
    up = sum(link.is_up for link in one.neighbours)
    out = sum(agreement.out.events for agreement in one.agreements)
    into = sum(agreement.into.events for agreement in one.agreements)
    return (
        f"router {one.name}: {up} of {len(one.neighbours)} neighbours linked, "
        f"{len(one.routers)} routers known, {out:,} events out, {into:,} in"
    )


def _tables(one: RouterStatus) -> list[Table]:
    facts = table("", "", title=f"Router {printable(one.name)}")
    rows = {
        "joins": f"bus {one.inside} with backbone {one.backbone}",
        "domain": one.domain or "none",
        "group": f"{one.group}: {'carries' if one.is_carrying else 'stands by'}"
        if one.group
        else "none",
        "process": f"{one.pid} on {one.host}, infobus {one.version}",
        "endpoints": "\n".join(f"{name}  {state}" for name, state in one.endpoints.items()),
        "quality": _quality(one),
        "remarks": "\n".join(one.remarks) or "none",
        "complaints": "\n".join(f"{who}: {what}" for who, what in one.complaints.items()) or "none",
    }
    for name, value in rows.items():
        facts.add_row(name, "\n".join(printable(line) for line in value.split("\n")))
    return [facts, _links(one), _routers(one), _agreements(one)]


def _quality(one: RouterStatus) -> str:
    """The policy of the group, and whether it is kept to."""
    if (told := one.quality) is None:
        return "no group"
    policy = msgspec.to_builtins(told.policy)
    lines = [f"group {told.group}" + ", which it manages" * told.is_manager]
    lines += [f"{rule}: {value}" for rule, value in policy.items() if value]
    lines += [f"{told.denied} events did not leave"] * bool(told.denied)
    lines += [f"REFUSED: {told.refused}"] * bool(told.refused)
    lines += [f"REFUSED by {node}: {why}" for node, why in told.refusals.items()]
    return "\n".join(lines)


def _links(one: RouterStatus) -> Table:
    drawn = table(
        "neighbour",
        "link",
        "sent",
        "waiting here",
        "waiting there",
        "held classes",
        "reserved",
        title="Links",
        numbers=["sent", "waiting here", "waiting there", "reserved"],
    )
    for link in one.neighbours:
        drawn.add_row(
            printable(link.name),
            "up" if link.is_up else "down",
            f"{link.sent_bytes:,} B",
            f"{link.waiting_bytes:,} B",
            f"{link.load_bytes:,} B",
            printable(", ".join(link.held)),
            _reserved(link),
        )
    return drawn


def _reserved(link: NeighbourStatus) -> str:
    """How much of a link is reserved, and by which sites."""
    if not link.reserved:
        return ""
    total = sum(link.reserved.values())
    of = "" if link.bytes_per_s is None else f" of {link.bytes_per_s:,.0f}"
    who = ", ".join(f"{printable(name)} {rate:,.0f}" for name, rate in link.reserved.items())
    return f"{total:,.0f}{of} B/s\n({who})"


def _routers(one: RouterStatus) -> Table:
    drawn = table("router", "domain", "hops", "shortest paths", title="Routers", numbers=["hops"])
    for known in one.routers:
        ways = "\n".join(" > ".join(map(printable, path)) for path in known.paths)
        drawn.add_row(printable(known.name), printable(known.domain), str(known.hops), ways)
    return drawn


def _agreements(one: RouterStatus) -> Table:
    drawn = table(
        "inside",
        "outside",
        "where",
        "reach",
        "asked",
        "wanted",
        "out",
        "in",
        "losses",
        "kept",
        "stand-ins",
        title="Agreements",
        numbers=["asked", "wanted", "out", "in", "losses"],
    )
    for each in one.agreements:
        drawn.add_row(
            printable(each.inside or ">"),
            printable(each.outside or ">"),
            printable(each.where),
            printable(each.reach),
            str(each.rows_asked),
            str(each.rows_wanted) + (f" ({each.rows_refused} refused)" * bool(each.rows_refused)),
            f"{each.out.events:,}",
            f"{each.into.events:,}",
            str(each.out.lost + each.into.lost),
            _kept(each),
            "/".join(map(str, each.stand_ins)) if any(each.stand_ins) else "",
        )
    return drawn


def _kept(each: AgreementStatus) -> str:
    """How guaranteed events cross: how many out and in, or why they do not."""
    if each.guaranteed is None:
        return ""
    return "\n".join(
        f"{way} {one.carried:,} {one.state}"
        + f": {printable(one.error)}" * (one.state == "waiting")
        for way, one in zip(("out", "in"), each.guaranteed, strict=True)
    )


def _show_paths(found: Any) -> None:
    if not found["outside"]:
        write(f"{printable(found['subject'])} is not shared: no agreement fits it")
        return
    write(f"{printable(found['subject'])} is {printable(found['outside'])} on the backbone")
    if not found["wanted_by"]:
        write("nobody beyond wants it")
        return
    drawn = table("wanted by", "hops", "by way of", "shortest path", numbers=["hops"])
    for one in found["wanted_by"]:
        for number, path in enumerate(one["paths"]):
            drawn.add_row(
                "" if number else printable(one["name"]),
                "" if number else str(one["hops"]),
                printable(path[0]),
                " > ".join(map(printable, path)),
            )
    console().print(drawn)
