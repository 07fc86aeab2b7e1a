# ruff: noqa: RUF012  (a default list in a data object is copied for each object)
import json
import sys
from typing import ClassVar

import pytest
from rich.console import Console
from typer.testing import CliRunner

import infobus
from infobus import DataObject, Event
from infobus.cli.lines import event_json, event_line
from infobus.cli.main import app, main
from infobus.cli.types import _table


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_help_shows_how_to_begin():
    output = run("--help").output
    assert "infobus sub 'news.>'" in output
    assert "--install-completion" in output
    assert "<bool>" not in output  # a flag takes no value


@pytest.mark.parametrize("command", "pub sub types describe filter quench watch demo bench".split())
def test_every_command_has_help(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert command in result.output
    assert "<bool>" not in result.output


@pytest.mark.parametrize("command", "pub sub types describe quench watch".split())
def test_every_command_on_a_bus_can_be_told_which(command):
    output = run(command, "--help").output
    assert all(option in output for option in ("--bus", "--home", "--connect", "--listen"))


def test_the_version_is_that_of_the_package():
    assert run("--version").output == f"infobus {infobus.__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"), [(infobus.UsageError("wrong\x1b[2J"), 2), (infobus.DeliveryError("late"), 1)]
)
def test_errors_of_the_bus_are_one_line_and_an_exit_code(error, code, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(infobus, "connect", fail)
    monkeypatch.setattr(sys, "argv", ["infobus", "types"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert capsys.readouterr().err == "infobus: " + str(error).replace("\x1b", "\\x1b") + "\n"


def test_a_loss_is_told_and_watching_goes_on(monkeypatch, capsys):
    lost = infobus.LossError("events 3 to 5 are lost", sender="n", channel="a", first=3, last=5)

    class Lossy:
        """A subscription with a loss between two events."""

        items: ClassVar = [event_of({"n": 2}), lost, event_of({"n": 6})]

        def receive(self, timeout_s):
            item = self.items.pop(0)
            if isinstance(item, Exception):
                raise item
            return item

    monkeypatch.setattr(infobus.Bus, "subscribe_many", lambda *_, **__: Lossy())
    with infobus.connect("cli_loss", engine="memory") as bus:
        monkeypatch.setattr(infobus, "connect", lambda *_, **__: bus)
        monkeypatch.setattr(sys, "argv", ["infobus", "sub", "a.>", "--json", "--count", "2"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["data"]["n"] for line in out.splitlines()] == [2, 6]
    assert "loss: events 3 to 5 are lost" in err


class Named(DataObject, name="cli_line.Named"):
    title: str


class Valued(DataObject, name="cli_line.Valued"):
    value: float


class Thing(Named, Valued, name="cli_line.Thing"):
    tags: list[str] = []


def event_of(data):
    return Event(subject="a.b", data=data, sender="n-1-x", seq=3, time=12.5, number=255)


def test_an_event_is_one_line_that_a_terminal_does_not_obey():
    line = event_line(event_of({"a\x1b[2J": "x\ny", "long": "z" * 1000})).plain
    assert line.isprintable()
    assert "a\\x1b[2J='x\\ny'" in line
    assert len(line) < 250


def test_an_event_as_json_has_all_that_is_known_of_it():
    data = Thing(title="t", value=1.5)
    assert infobus.type_of(data).name == "cli_line.Thing"
    assert event_json(event_of(data)) == (
        '{"subject":"a.b","type":"cli_line.Thing","data":{"title":"t","value":1.5,"tags":[]},'
        '"id":"n-1-x:ff","sender":"n-1-x","seq":3,"time":12.5,"priority":"regular"}'
    )


def test_a_type_stands_once_below_its_first_supertype():
    known = [infobus.type_of(cls) for cls in (Named, Thing, Valued)]
    console = Console(width=100)
    with console.capture() as capture:
        console.print(_table(known))
    rows = [line.rstrip() for line in capture.get().splitlines() if "cli_line" in line]
    assert [row.split()[0] for row in rows] == [known_type.name for known_type in known]
    assert rows[1].startswith(" " * 3 + "cli_line.Thing")
    assert "cli_line.Named, cli_line.Valued" in rows[1]
    assert rows[1].endswith("tags: list[str]")
