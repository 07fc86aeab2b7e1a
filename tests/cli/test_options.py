"""Options that several commands share: declared once, and the same wherever they are taken."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import infobus
from infobus.cli.main import app
from infobus.cli.options import Quality, Until, WhichBus, grouped
from infobus.cli.terminal import note, table

ON_A_BUS = (
    "pub, sub, types, describe, quench, watch, services, call, capture, query, replay, "
    "journal record, feed reuters, tdl, tdl run, tdl host, tdl send"
).split(", ")
ON_A_HOME = "ledger, ledger verify, ledger repair, ledger seal, ledger drop".split(", ")


def run(command, *arguments):
    own = typer.Typer()
    own.command()(command)
    return CliRunner().invoke(own, arguments, catch_exceptions=False)


@grouped
def shows_its_options(
    until: Until,
    which: WhichBus,
    subject: str,
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    """Show what came."""
    print(subject, loud, until, which)


def test_a_command_gets_its_options_by_group_wherever_they_are_on_the_line():
    result = run(
        shows_its_options, "--bus", "x", "news", "--connect", "a", "--connect", "b", "--count", "3"
    )
    which = WhichBus(bus="x", connect=["a", "b"])
    assert result.output.split("\n")[0] == f"news False {Until(count=3)} {which}"


def test_the_environment_says_which_bus_if_the_line_does_not(monkeypatch):
    monkeypatch.setenv("INFOBUS_BUS", "from_environment")
    monkeypatch.setenv("INFOBUS_HOME", "a_home")
    which = WhichBus(bus="from_environment", home="a_home")
    assert str(which) in run(shows_its_options, "news").output
    assert "bus='from_line'" in run(shows_its_options, "news", "--bus", "from_line").output


def test_the_limits_of_an_option_hold_in_a_group():
    result = run(shows_its_options, "news", "--count", "0")
    assert result.exit_code == 2
    assert "--count" in result.output


def test_help_shows_a_commands_own_options_before_those_of_its_groups():
    output = run(shows_its_options, "--help").output
    assert "Show what came." in output
    places = [
        output.index(word) for word in ("--loud", "--count", "--seconds", "Which bus", "--bus")
    ]
    assert places == sorted(places)


def test_a_command_may_have_groups_of_its_own():
    @dataclass(frozen=True)
    class Size:
        width: Annotated[int, typer.Option("--width", min=1)] = 80

    def measured(size, quality):
        print(size.width, quality.max_age)

    measured.__annotations__ = {"size": Size, "quality": Quality}
    assert run(grouped(measured), "--width", "7", "--max-age", "1.5").output == "7 1.5\n"


@pytest.mark.parametrize("command", ON_A_BUS)
def test_every_command_on_a_bus_joins_the_one_it_is_told(command):
    output = CliRunner().invoke(app, [*command.split(), "--help"]).output
    assert "Which bus" in output
    assert all(option in output for option in ("--bus", "--home", "--connect", "--listen"))


@pytest.mark.parametrize("command", ON_A_HOME)
def test_commands_on_files_can_be_told_which_home_and_no_endpoint(command):
    output = CliRunner().invoke(app, [*command.split(), "--help"]).output
    assert all(option in output for option in ("--bus", "--home"))
    assert "--connect" not in output


def commands(command, path=()):
    """Every command of a group, with the words that call it."""
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))
    if path:
        yield " ".join(path), command


@pytest.mark.parametrize("name, command", list(commands(get_command(app))))
def test_arguments_have_capital_names_and_typer_says_which_repeat(name, command):
    names = [one.metavar for one in command.params if one.param_type_name == "argument"]
    assert all(shown and shown.split(".")[0].isupper() and "..." not in shown for shown in names)


def test_options_reach_the_bus_that_a_command_joins(monkeypatch):
    asked = []

    def refuse(*name, **options):
        asked.append((*name, options))
        raise infobus.DeliveryError("not today")

    monkeypatch.setattr(infobus, "connect", refuse)
    line = "types --bus x --home h --connect tcp/a:1 --listen tcp/b:2 --insecure".split()
    CliRunner().invoke(app, line)
    endpoints = {"connect": ["tcp/a:1"], "listen": ["tcp/b:2"]}
    assert asked == [("x", {"name": None, "home": "h", "insecure": True, **endpoints})]


def test_a_note_shows_names_as_they_are(capsys):
    note("listening on news.:bus:.[bold]x\x1b[2J")
    assert capsys.readouterr().err == "listening on news.:bus:.[bold]x\\x1b[2J\n"


def test_numbers_in_a_table_are_aligned_to_the_right():
    drawn = table("name", "events", numbers=["events"])
    assert [column.justify for column in drawn.columns] == ["left", "right"]
