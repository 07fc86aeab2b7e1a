"""`infobus quench` and `infobus watch`, each in a process of its own."""

import json
import signal

import pexpect
import pytest

import infobus
from tests.cli.running import Shell


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def bus(shell):
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        yield bus


def next_json(process):
    return json.loads(process.stdout.readline())


def interrupt(process):
    """Ctrl-C; returns the exit code and what was still said on standard error."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


class TestQuench:
    def test_what_is_wanted_now(self, shell, bus):
        bus.subscribe("trades.>", where='symbol == "GMC" && price > 40')
        bus.subscribe("trades.us", where='symbol == "IBM" && price > 40')
        bus.subscribe("news.>")
        said = 'wanted: price > 40 && symbol in ["GMC", "IBM"]\n'
        assert shell.run("quench", "trades.>", "--once") == (0, said, "")

    def test_changes_as_they_come(self, shell, bus):
        view = shell.start("quench", "trades.>")
        assert view.stdout.readline() == "wanted: nothing\n"
        some = bus.subscribe("trades.us", where="price > 40")
        assert view.stdout.readline() == "+ trades.us where price > 40\n"
        assert view.stdout.readline() == "wanted: price > 40\n"
        with bus.subscribe("*.us"):  # which covers the other
            assert view.stdout.readline() == "- trades.us where price > 40\n"
            assert view.stdout.readline() == "+ *.us\n"
            assert view.stdout.readline() == "wanted: everything\n"
        assert view.stdout.readline() == "- *.us\n"
        assert view.stdout.readline() == "+ trades.us where price > 40\n"
        assert view.stdout.readline() == "wanted: price > 40\n"
        some.close()
        assert view.stdout.readline() == "- trades.us where price > 40\n"
        assert view.stdout.readline() == "wanted: nothing\n"
        assert interrupt(view) == (130, "")

    def test_tools_get_one_object_per_change(self, shell, bus):
        view = shell.start("quench", "trades.>", "--json")
        nothing = {"wanted": "nothing", "everything": False, "filters": [], "exact": True}
        assert next_json(view) == nothing
        bus.subscribe("trades.us", where="price > 40")
        assert next_json(view) == {
            "wanted": "price > 40",
            "everything": False,
            "filters": ["price > 40"],
            "exact": True,
            "added": [{"subject": "trades.us", "where": "price > 40"}],
            "removed": [],
        }
        bus.subscribe("trades.eu")
        change = next_json(view)
        assert change["everything"]
        assert change["added"] == [{"subject": "trades.eu", "where": None}]

    def test_a_terminal_shows_the_present_and_the_last_changes(self, shell, bus):
        bus.subscribe("trades.>", where='symbol == "GMC"')
        view = shell.terminal("quench", "trades.>", TERM="xterm")
        view.expect_exact("wanted under trades.>:")
        view.expect_exact('symbol == "GMC"')
        bus.subscribe("trades.>", where="price > 40")
        view.expect_exact("+ trades.> where price > 40")
        view.sendintr()
        view.expect(pexpect.EOF)
        view.wait()
        assert view.exitstatus == 130

    def test_a_bad_pattern_is_a_wrong_call(self, shell):
        code, out, err = shell.run("quench", "trades..a", "--once")
        assert (code, out) == (2, "")
        assert "has an empty" in err


class TestWatch:
    def test_files_are_watched_only_while_somebody_wants_them(self, shell, bus):
        folder = shell.folder / "logs"
        folder.mkdir()
        for name in "abc":
            (folder / name).touch()
        watch = shell.start("watch", "logs", "--json")
        assert next_json(watch) == {"watching": []}
        subscription = bus.subscribe("files.changed", where=f'path == "{folder}/b"')
        assert next_json(watch) == {"watching": [str(folder / "b")]}
        with (folder / "b").open("ab") as file:
            file.write(b"news")
        event = subscription.receive(60)
        assert event.type == "files.FileChanged"
        assert event.data.path == str(folder / "b")
        assert (event.data.change, event.data.size) == ("modified", 4)
        subscription.close()
        assert next_json(watch) == {"watching": []}
        said = f"publishing changes below {folder} under files.changed (bus {shell.bus})\n"
        assert interrupt(watch) == (130, said)

    def test_people_are_told_what_is_watched(self, shell, bus):
        (shell.folder / "a").touch()
        watch = shell.start("watch", ".", "--subject", "disk.news")
        assert watch.stdout.readline() == "watching nothing: nobody subscribed to a file\n"
        bus.subscribe("disk.*", where=f'path in ["{shell.folder}/a", "{shell.folder}/sub/b"]')
        said = f"watching 1 directory: {shell.folder}\n"
        assert watch.stdout.readline() == said
        (shell.folder / "sub").mkdir()
        (shell.folder / "sub" / "b").touch()
        lines = iter(watch.stdout.readline, "")
        expected = f"watching 2 files: {shell.folder}/a, {shell.folder}/sub/b\n"
        assert next(line for line in lines if "files" in line) == expected

    def test_a_folder_that_is_not_there_is_a_wrong_call(self, shell):
        code, out, err = shell.run("watch", "nowhere")
        assert (code, out) == (2, "")
        assert "'nowhere' does not exist" in err
