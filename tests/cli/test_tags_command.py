"""`infobus tags`, against a node of this process that holds the table."""

import json
import subprocess
import uuid

import pytest

import infobus
from infobus import DataObject
from infobus.testing.tags import table_of_its_own
from tests.bus.helpers import wait_until
from tests.cli.running import COMMAND, Shell


class Reading(DataObject, name="plant.Reading"):
    celsius: float


@pytest.fixture
def bus(tmp_path, monkeypatch):
    """A node of this process; commands that run here find it without a network."""
    settings = tmp_path / "memory.toml"
    settings.write_text('engine = "memory"\n')
    monkeypatch.setenv("INFOBUS_SETTINGS", str(settings))
    with infobus.connect(f"test-{uuid.uuid4().hex}", home=tmp_path) as bus:
        yield bus


@pytest.fixture
def table(bus):
    with table_of_its_own(bus):
        yield


def test_a_tag_is_created_shown_and_deleted(run, bus, table):
    code, out, err = run("tags")
    assert (code, out, err) == (0, "", "there are no tags on the bus\n")
    how = ["--type", "plant.Reading", "--publish", "oven-*", "--max-age", "5"]
    code, _, err = run("tags", "create", "plant.oven.>", *how, "--name", "control")
    assert (code, err) == (0, "control has created tag plant.oven.>\n")
    code, out, _ = run("tags")
    assert code == 0
    for part in ("plant.oven.>", "control", "plant.Reading", "oven-*", "5 s"):
        assert part in out
    code, out, _ = run("tags", "list", "--json")
    (tag,) = map(json.loads, out.splitlines())
    assert (tag["name"], tag["creator"], tag["publish"]) == ("plant.oven.>", "control", ["oven-*"])
    assert run("tags", "delete", "plant.oven.>", "--name", "control")[0] == 0
    assert bus.tags.get("plant.oven.>") is None


def test_its_users_are_shown(run, bus, table):
    bus.tags.create("plant.oven.>")
    bus.publish("plant.oven.3", Reading(celsius=1.0))
    bus.subscribe("plant.>")
    wait_until(lambda: bus.tags.publishers("plant.oven.>"))
    code, out, _ = run("tags", "show", "plant.oven.>", "--json")
    shown = json.loads(out)
    nobody = [{"node": bus.node, "application": ""}]
    assert (code, shown["publishers"], shown["subscribers"]) == (0, nobody, nobody)
    code, out, _ = run("tags", "show", "plant.oven.>")
    assert "publishers: 1" in out
    assert bus.node in out


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["create", "a"], 2, "who creates the tag? Give --name"),
        (["create", "taken", "--name", "press"], 2, "was created by"),
        (["create", "a.*", "--name", "press"], 2, "holds the wildcard"),
        (["create", "a", "--name", "press", "--type", "Nothing"], 2, "knows a type 'Nothing'"),
        (["create", "a", "--name", "press", "--publish", "a b"], 2, "not a pattern of application"),
        (["delete", "taken", "--name", "press"], 2, "who alone may change or delete it"),
        (["delete", "a", "--name", "press"], 2, "there is no tag 'a'"),
        (["show", "a"], 2, "there is no tag 'a'"),
        (["--json", "list"], 2, "--json belongs after the command: infobus tags list --json"),
    ],
)
def test_what_is_refused_is_said_in_one_line(run, bus, table, arguments, code, what):
    bus.tags.create("taken")
    found, _, err = run("tags", *arguments)
    assert (found, err.count("\n")) == (code, 1)
    assert what in err


def test_an_operator_deletes_by_force(run, bus, table):
    bus.tags.create("taken")
    assert run("tags", "delete", "taken", "--force", "--json")[:2] == (0, '{"deleted":"taken"}\n')


def test_without_daemons_it_is_said_what_to_do(run, bus):
    code, _, err = run("tags")
    assert (code, err.count("\n")) == (1, 1)
    assert "start `infobus daemon run`" in err


def test_a_program_of_another_process_is_refused_what_a_tag_forbids(tmp_path):
    shell = Shell(tmp_path)
    with infobus.connect(shell.bus, home=tmp_path, name="daemon") as bus, table_of_its_own(bus):
        bus.tags.create("plant.oven.>", publish=["oven-*"], subscribe=["board"])
        environment = shell.environment | {"INFOBUS_NAME": "press"}
        for arguments, what in (
            (["pub", "plant.oven.3", "celsius:=1"], "press may not publish 'plant.oven.3'"),
            (["sub", "plant.oven.>"], "press may not subscribe 'plant.oven.>'"),
        ):
            done = subprocess.run(
                [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=60
            )
            assert (done.returncode, what in done.stderr) == (2, True), done.stderr
