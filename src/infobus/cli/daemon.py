"""`infobus daemon`: run the daemon of this host, look at it, stop it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from infobus import UsageError
from infobus.bus.settings import load_settings
from infobus.cli.options import AsJson, grouped
from infobus.cli.terminal import console, note, stop_when_asked, table, write, write_json
from infobus.engines.zenoh.rendezvous import DaemonFile, ShownDaemon, find_daemon
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.daemon import DaemonStatus, HostDaemon

app = typer.Typer(
    rich_markup_mode="rich",
    no_args_is_help=True,
    help="The daemon of this host: it links hosts, and stays when programs have gone.",
)

_LOOK_S = 0.5
_VARIABLES = ("INFOBUS_HOME", "INFOBUS_SETTINGS", "INFOBUS_SOCKETS")
_UNIT = """\
[Unit]
Description=The infobus daemon of bus {bus}

[Service]
{lines}
Restart=on-failure
RestartSec=1
TimeoutStopSec=15
NoNewPrivileges=yes

[Install]
WantedBy=default.target"""


@dataclass(frozen=True)
class WhichDaemon:
    """The bus whose daemon on this host is meant."""

    bus: Annotated[
        str | None,
        typer.Option(
            "--bus",
            envvar="INFOBUS_BUS",
            metavar="NAME",
            help="Name of the bus; each bus has a daemon of its own.",
            rich_help_panel="Which bus",
        ),
    ] = None

    @property
    def name(self) -> str:
        """The bus's name, from wherever it is set."""
        return load_settings(bus=self.bus).bus


@dataclass(frozen=True)
class Ways:
    """How others reach a daemon, whom it joins, and what it looks after."""

    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen",
            metavar="ENDPOINT",
            help="Where other hosts reach this one, such as tcp/0.0.0.0:7447. May be repeated.",
        ),
    ] = None
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join",
            metavar="HOST:PORT",
            help="Another daemon; tried until it answers. May be repeated.",
        ),
    ] = None
    home: Annotated[
        list[Path] | None,
        typer.Option(
            "--home",
            metavar="FOLDER",
            help="A home whose ledgers are served when its programs have gone. May be repeated; "
            "the first is the daemon's own.",
        ),
    ] = None

    heartbeat: Annotated[
        float,
        typer.Option(
            "--heartbeat",
            metavar="SECONDS",
            help="The pace of the membership; the same for all daemons. Who fails is out after 3.",
        ),
    ] = 1.0
    founders: Annotated[
        list[str] | None,
        typer.Option(
            "--founder",
            metavar="HOST",
            help="A majority of the hosts named here begins the membership. May be repeated.",
        ),
    ] = None
    membership: Annotated[
        str,
        typer.Option(
            "--membership",
            metavar="majority|any",
            help="With [b]any[/b], those left go on: only where the network never splits.",
        ),
    ] = "majority"
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen without TLS: let in anyone who can reach it."),
    ] = None

    def daemon(self, bus: str | None) -> HostDaemon:
        """The daemon of this host, not open yet."""
        from infobus.daemon import HostDaemon

        return HostDaemon(
            bus,
            listen=self.listen and [_endpoint(one) for one in self.listen],
            join=self.join and [_endpoint(one) for one in self.join],
            insecure=self.insecure,
            homes=self.home or (),
            heartbeat_s=self.heartbeat,
            founders=self.founders or (),
            membership=self.membership,  # type: ignore[arg-type]  # which checks it
            is_program=True,
        )


@app.command()
@grouped
def run(
    which: WhichDaemon,
    given: Ways,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End after this many seconds.")
    ] = None,
) -> None:
    """Be the daemon of this host, until Ctrl-C or SIGTERM.

    \b
    On one host      infobus daemon run --listen tcp/0.0.0.0:7447 --insecure
    On another one   infobus daemon run --listen tcp/0.0.0.0:7447 --insecure --join 10.0.0.1:7447
    For one host     infobus daemon run
    By systemd       infobus daemon unit > ~/.config/systemd/user/infobus.service

    Programs find it by themselves. Exit code: 0 if it was asked to end; 1 if it could not start,
    for example because this host has a daemon for this bus already, or a port is taken.
    """
    err, daemon = console(stderr=True), given.daemon(which.bus)
    stopped = threading.Event()
    stop_when_asked(stopped.set, seconds)
    if not err.is_terminal:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with daemon:
        note(_greeting(daemon.status()))
        if err.is_terminal:
            with err.status(_line(daemon)) as shown:
                while not stopped.wait(_LOOK_S):
                    shown.update(_line(daemon))
        else:
            stopped.wait()
        note("ending: programs go on without the daemon")
    note("ended in order")


@app.command()
@grouped
def unit(which: WhichDaemon, given: Ways) -> None:
    """Print a unit by which systemd runs the daemon for you, with the options given here.

    \b
    infobus daemon unit --bus plant > ~/.config/systemd/user/infobus-plant.service
    systemctl --user enable --now infobus-plant
    """
    name = which.name
    given.daemon(which.bus)  # refuses what would be refused at the start
    command = [sys.executable, "-m", "infobus.cli", "daemon", "run", "--bus", name]
    for option, values in (("--listen", given.listen), ("--join", given.join)):
        command += [word for value in values or () for word in (option, value)]
    command += [word for folder in given.home or () for word in ("--home", str(folder.absolute()))]
    command += [word for one in given.founders or () for word in ("--founder", one)]
    command += [] if given.heartbeat == 1.0 else ["--heartbeat", str(given.heartbeat)]
    command += [] if given.membership == "majority" else ["--membership", given.membership]
    command += ["--insecure"] * bool(given.insecure)
    variables = [one for one in _VARIABLES if one in os.environ]
    settings = [f"Environment={_quoted(f'{one}={os.environ[one]}')}" for one in variables]
    lines = [*settings, f"ExecStart={' '.join(map(_quoted, command))}"]
    write(_UNIT.format(bus=name, lines="\n".join(lines)))


def _quoted(word: str) -> str:
    """A word as systemd reads it.

    >>> _quoted("tcp/0.0.0.0:7447"), _quoted("50 % off")
    ('tcp/0.0.0.0:7447', '"50 %% off"')
    """
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if set(plain) & set(" '\"\\;") else plain


@app.command()
@grouped
def status(which: WhichDaemon, as_json: AsJson = False) -> None:
    """Show the daemon of this host, and the other daemons of the bus.

    Exit code: 1 if this host has none for this bus, or if it does not answer.
    """
    from infobus.daemon import ask_daemons

    name = which.name
    shown = find_daemon(name)
    if shown is None:
        if as_json:
            write_json({"bus": name, "running": False})
        else:
            write(f"no daemon of bus {printable(name)} runs on this host")
        raise typer.Exit(1)
    found = ask_daemons(name)
    here = next((one for one in found if one.node == shown.node), None)
    if as_json:
        write_json(*({"running": True, "here": one is here, **_facts(one)} for one in found))
    else:
        _show(shown, here, [one for one in found if one is not here])
    if here is None:
        note(f"process {shown.pid} holds the place of the daemon, but does not answer")
        raise typer.Exit(1)


@app.command()
@grouped
def stop(
    which: WhichDaemon,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="How long to wait until it has ended.")
    ] = 10.0,
) -> None:
    """Stop the daemon of this host, and wait until it has ended.

    Programs that were attached go on without it. Exit code: 1 if it has not ended in time.
    """
    name = which.name
    shown = find_daemon(name)
    if shown is None:
        write(f"no daemon of bus {printable(name)} runs on this host")
        return
    if not shown.is_program:
        raise UsageError(
            f"the daemon of bus {name!r} is part of the program with process id {shown.pid}: "
            "end that program, or have it close its daemon"
        )
    with suppress(ProcessLookupError):  # it ends just now
        os.kill(shown.pid, signal.SIGTERM)
    place = DaemonFile(name)
    if not place.claim(seconds):  # its lock is held until everything is saved
        write(f"process {shown.pid} was asked to end, and has not done so in {seconds:g} s")
        raise typer.Exit(1)
    place.leave()
    write(f"stopped: node {shown.node}, process {shown.pid}, up {_span(shown.since)}")


def _endpoint(given: str) -> str:
    """An endpoint; HOST:PORT alone is one over TCP."""
    return given if "/" in given else f"tcp/{given}"


def _greeting(one: DaemonStatus) -> str:
    where = ", ".join(f"{name} {state}" for name, state in one.endpoints.items())
    return (
        f"daemon {one.node} of bus {one.bus}: {where or 'for this host only'}; "
        f"homes {', '.join(one.homes)}"
    )


def _line(daemon: HostDaemon) -> Text:
    one = daemon.status()
    return Text(
        f"bus {one.bus}: {len(one.programs)} programs here, {len(one.peers)} nodes, "
        f"{len(one.daemons)} other daemons, {len(one.ledgers)} ledgers served"
    )


def _show(shown: ShownDaemon, here: DaemonStatus | None, others: list[DaemonStatus]) -> None:
    facts = table("", "", title=f"Daemon of bus {printable(shown.bus)} on this host")
    rows = {
        "node": shown.node,
        "process": f"{shown.pid}, up {_span(shown.since)}",
        "version": f"{shown.version}, wire {'.'.join(map(str, shown.wire))}",
    }
    if here is not None:
        rows |= {
            "endpoints": "\n".join(f"{one}  {state}" for one, state in here.endpoints.items())
            or "none: for this host only",
            "homes": "\n".join(here.homes),
            "ledgers served": "\n".join(here.ledgers) or "none: nobody lacks anything",
            "programs here": "\n".join(here.programs) or "none",
            "nodes on the bus": str(len(here.peers) + 1),
            "members": "\n".join(here.members) or "none yet",
            "the view is": f"not stable: {here.unstable}" if here.unstable else "stable",
            "types kept": str(here.types),
            "its own events": f"{here.sent_events:,} sent, {here.received_events:,} received, "
            f"{here.lost:,} losses",
            "complaints": "\n".join(f"{who}: {what}" for who, what in here.complaints.items())
            or "none",
        }
    for name, value in rows.items():
        facts.add_row(name, "\n".join(printable(line) for line in value.split("\n")))
    out = console()
    out.print(facts)
    if others:
        listed = table(
            "host",
            "node",
            "up",
            "programs",
            "endpoints",
            title="Other daemons",
            numbers=["programs"],
        )
        for one in others:
            cells = (one.host, one.node, _span(one.since), str(len(one.programs)))
            listed.add_row(*map(printable, cells), printable(", ".join(one.endpoints)))
        out.print(listed)


def _facts(one: DaemonStatus) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _span(since: float) -> str:
    """How long something has lasted, for people.

    >>> _span(time.time() - 3700)
    '1 h 1 min'
    """
    minutes, seconds = divmod(max(0, round(time.time() - since)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
