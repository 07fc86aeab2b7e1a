"""`infobus members`: the daemons that agree on who is there, and the programs that ask them."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from infobus import Bus, ExcludedView, MembersView, Unstable, UsageError
from infobus.cli.options import AsJson, WhichBus, grouped
from infobus.cli.terminal import console, table, warn, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.protocols.frames.membership import Roster

PATIENCE_S = 1.0


@grouped
def command(
    which: WhichBus,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running; show each view, in order.")
    ] = False,
    force: Annotated[
        str,
        typer.Option(
            "--force",
            metavar="MEMBER",
            help="Let this one go on alone, because most others are gone for good. What those "
            "decide meanwhile is lost if they are not.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the members of the bus: the daemons that agree on who is there."""
    with which.join() as bus:
        if watch:
            _watch(bus, as_json)
            return
        rosters = bus.members.roster(PATIENCE_S)
        if force:
            rosters = bus.members.roster(PATIENCE_S, force_at=_node_of(force, rosters))
        if not rosters:
            bus.members(PATIENCE_S)  # says that there is no daemon, or that none answers
            raise Unstable(f"no daemon has answered in {PATIENCE_S:g} s")
    if as_json:
        write_json(*map(_record, rosters))
    else:
        _print(rosters, bus.node)


def _node_of(member: str, rosters: Iterable[Roster]) -> str:
    found = {one.member: one.sender for one in rosters}
    named = [node for id, node in found.items() if member in (id, id.partition("#")[0])]
    if len(named) != 1:
        known = ", ".join(map(printable, sorted(found))) or "none"
        raise UsageError(f"--force: no single member is called {member!r}; there are: {known}")
    return named[0]


def _watch(bus: Bus, as_json: bool) -> None:
    news: queue.SimpleQueue[MembersView | ExcludedView] = queue.SimpleQueue()
    bus.members(PATIENCE_S)
    bus.on_members(news.put)
    out = console()
    before: tuple[str, ...] = ()
    while True:
        view = news.get()
        if isinstance(view, ExcludedView):
            if as_json:
                write_json({"anew_after": view.number})
            else:
                out.print(Text("the views that follow do not continue those before", "yellow"))
            continue
        if as_json:
            write_json({"view": view.number, "members": list(view.members)})
        else:
            out.print(_view_line(view, before))
        before = view.members


def _view_line(view: MembersView, before: tuple[str, ...]) -> Text:
    line = Text(f"view {view.number:<4}", "bold")
    for member in view.members:
        line.append(f" {printable(member)}", "green" if before and member not in before else "")
    for member in before:
        if member not in view.members:
            line.append(f" {printable(member)} gone", "red")
    return line


def _print(rosters: Sequence[Roster], own: str) -> None:
    out = console()
    groups: dict[Any, list[Roster]] = {}
    for one in rosters:
        groups.setdefault((one.group, one.view.number), []).append(one)
    for (_, number), members in groups.items():
        best = next((one for one in members if not one.why), members[0])
        line = Text(f"view {number}", "bold") if best.view.members else Text("no group", "bold")
        line.append("  stable" if not best.why else "  not stable", "red" if best.why else "green")
        out.print(line.append(f"  heartbeat {best.heartbeat_s:g} s", "not bold default"))
        _print_members(best, members)
    if len(groups) > 1:
        warn("not all daemons have the same view: they are finding each other, or are cut off")
    _print_programs(rosters, own)
    for one in rosters:
        for about, what in one.complaints:
            out.print(
                Text(f"{printable(one.member)} complains of {printable(about)}: ", "yellow").append(
                    printable(what)
                ),
                soft_wrap=True,
            )


def _print_members(best: Roster, there: Sequence[Roster]) -> None:
    answers = {one.member: one for one in there}
    drawn = table("member", "", "node", "says")
    drawn.columns[0].style = "bold cyan"
    for member in best.view.members or tuple(answers):
        answer = answers.get(member)
        says = "does not answer" if answer is None else answer.why or "stable"
        node = answer.sender if answer else best.nodes.get(member, "")
        role = "leads" if member == best.leader and not best.why else ""
        drawn.add_row(printable(member), role, printable(node), printable(says))
    console().print(drawn)


def _print_programs(rosters: Sequence[Roster], own: str) -> None:
    programs = [(roster, one) for roster in rosters for one in roster.programs if one.node != own]
    if not programs:
        return
    drawn = table("program", "node", "asks", "primary of", "")
    for roster, one in programs:
        primary_of = "" if roster.why else ", ".join(map(printable, one.primary_of))
        state = Text("hung", "red") if one.is_hung else Text("")
        names = (printable(one.name), printable(one.node), printable(roster.member))
        drawn.add_row(*names, primary_of, state)
    console().print(drawn)


def _record(one: Roster) -> dict[str, Any]:
    return {
        "member": one.member,
        "node": one.sender,
        "group": one.group.birth,
        "era": one.group.era,
        "view": one.view.number,
        "members": list(one.view.members),
        "leader": one.leader,
        "stable": not one.why,
        "why": one.why,
        "heartbeat_s": one.heartbeat_s,
        "programs": [
            {
                "node": program.node,
                "name": program.name,
                "hung": program.is_hung,
                "primary_of": program.primary_of,
            }
            for program in one.programs
        ],
        "complaints": [list(complaint) for complaint in one.complaints],
    }
