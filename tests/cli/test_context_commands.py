"""`infobus context`: files of the user's own, which commands have their settings from."""

import json

import pytest

from tests.cli.running import Shell


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    shell.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    yield shell
    shell.close()


@pytest.fixture
def folder(shell, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", shell.environment["XDG_CONFIG_HOME"])
    return shell.folder / "config" / "infobus"


def test_a_context_in_use_says_which_bus_to_join(shell):
    bus = shell.environment.pop("INFOBUS_BUS")
    del shell.environment["INFOBUS_SETTINGS"]
    home = shell.environment.pop("INFOBUS_HOME")
    shell.environment["HOME"] = str(shell.folder)
    assert shell.run("context", "add", "paris", "--bus", bus, "--home", home)[0] == 0
    assert shell.run("context", "use", "paris")[0] == 0
    watching = shell.start("sub", "news.>", "--count", "1")
    assert watching.stderr.readline() == f"listening on news.> (bus {bus})\n"
    assert shell.run("pub", "news.a", "x=1") == (0, "", "")
    assert watching.communicate(timeout=60)[0].endswith("x='1'\n")
    assert "not sent" in shell.run("pub", "news.a", "x=1", "--bus", f"{bus}-other")[2]
    shell.environment["INFOBUS_CONTEXT"] = "lyon"
    said = (2, "", "infobus: there is no context 'lyon'; there are: paris\n")
    assert shell.run("pub", "news.a", "x=1") == said


def test_contexts_are_listed_and_removed(run, folder):
    assert run("context", "add", "b", "--bus", "two", "--connect", "tcp/127.0.0.1:1")[0] == 0
    assert run("context", "add", "a", "--bus", "one")[0] == 0
    assert run("context", "use", "b") == (0, "", "")
    rows = [json.loads(line) for line in run("context", "list", "--json")[1].splitlines()]
    assert [(row["name"], row["used"], row["settings"]["bus"]) for row in rows] == [
        ("a", False, "one"),
        ("b", True, "two"),
    ]
    assert rows[1]["settings"]["connect"] == ["tcp/127.0.0.1:1"]
    assert run("context", "remove", "b") == (0, "", "")
    assert not (folder / "context").exists()
    assert run("context", "remove", "b")[0] == 2


def test_a_context_is_for_its_owner_alone(run, folder):
    assert run("context", "add", "a", "--bus", "one")[0] == 0
    path = folder / "contexts" / "a.toml"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.chmod(0o644)
    code, _, err = run("context", "use", "a")
    assert (code, "not yours alone" in err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "../a", "--bus", "x"),
        ("add", "a/b", "--bus", "x"),
        ("add", "", "--bus", "x"),
        ("add", "a", "--bus", "x y"),
        ("add", "a", "--bus", "x", "--connect", "nonsense"),
        ("use", "nothing"),
    ],
)
def test_what_can_be_no_context_is_refused(run, folder, arguments):
    code, out, err = run("context", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not list(folder.glob("contexts/*"))
