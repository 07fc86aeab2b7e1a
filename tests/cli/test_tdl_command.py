"""`infobus tdl`: programs from files and pipes, and a host that runs what is sent to it."""

import pytest

import infobus
from infobus.cli.tdl_prompt import prompt_until_end
from tests.cli.running import Shell

THERMOSTAT = """
(defclass cli_tdl.Thermostat ()
  ((target :type float :initform 20.0))
  (:operations (set-target ((celsius float)) float)))
(defmethod set-target ((self cli_tdl.Thermostat) celsius)
  (prog1 (slot-value self 'target) (setf (slot-value self 'target) celsius)))
(serve "plant.thermostat" (make-instance 'cli_tdl.Thermostat))
"""


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def test_a_program_runs_and_prints(shell):
    (shell.folder / "sum.tdl").write_text('(format t "~a~%" (loop for i to 10 sum i))')
    assert shell.run("tdl", "run", "sum.tdl") == (0, "55\n", "")


def test_what_it_prints_cannot_command_the_terminal(shell):
    _, out, _ = shell.run("tdl", stdin='(princ "a\x1b[2Jb\nc")')
    assert out == "a\\x1b[2Jb\nc"


def test_the_prompt_survives_a_defect_of_its_own(tmp_path, monkeypatch, capsys):
    class Broken:
        def run(self, text):
            raise IndexError("list index out of range")

        def names(self):
            return []

    lines = iter(["(car 1)", "(car 2)", "quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    prompt_until_end(Broken(), tmp_path / "history")
    said = capsys.readouterr().out
    assert said.count("infobus failed on this: IndexError: list index out of range") == 2


def test_a_program_that_fails_says_where(shell):
    (shell.folder / "bad.tdl").write_text("(defun f (x)\n  (car x))\n(f 5)")
    code, out, err = shell.run("tdl", "run", "bad.tdl")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "bad.tdl:2:3: car: expected a list, got 5",
        "  in f, called at bad.tdl:3:1",
    ]


def test_a_file_that_is_none_is_one_line(shell):
    code, _, err = shell.run("tdl", "run", "none.tdl")
    assert code == 1
    assert err.startswith("infobus: ")
    (shell.folder / "bytes.tdl").write_bytes(b"\xff\xfe")
    code, _, err = shell.run("tdl", "run", "bytes.tdl")
    assert (code, err.count("\n")) == (2, 1)


def test_a_key_that_everybody_could_read_is_shut_with_a_warning(shell):
    key = shell.folder / "key"
    (shell.folder / "nothing.tdl").write_text("1")
    for mode, after, told in ((0o640, 0o640, False), (0o644, 0o600, True)):
        key.write_bytes(b"a key of those who trust each other")
        key.chmod(mode)
        code, _, err = shell.run("tdl", "run", "nothing.tdl", "--key", "key")
        assert (code, key.stat().st_mode & 0o777, "open to other users" in err) == (0, after, told)


def test_a_host_serves_what_it_is_sent_until_it_is_ended(shell):
    (shell.folder / "thermostat.tdl").write_text(THERMOSTAT)
    (shell.folder / "key").write_bytes(b"a key of those who trust each other\n")
    (shell.folder / "key").chmod(0o600)
    host = shell.start("tdl", "host", "plant.host", "--key", "key")
    assert host.stderr.readline().startswith("ready for programs under plant.host")
    code, _, err = shell.run("tdl", "send", "thermostat.tdl", "plant.host")
    assert code == 2
    assert "not signed with its key" in err
    sent = shell.run("tdl", "send", "thermostat.tdl", "plant.host", "--key", "key")
    assert sent == (0, "t\n", "")
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        service = bus.service("plant.thermostat")
        assert (service.set_target(25), service.set_target(21)) == (20.0, 25.0)
    host.terminate()
    assert host.wait(60) == 0


def test_a_killed_host_serves_again_what_it_has_kept(shell):
    (shell.folder / "thermostat.tdl").write_text(THERMOSTAT)
    command = ("tdl", "host", "plant.host", "--permit-all", "--keep", "programs.jsonl")
    host = shell.start(*command)
    assert host.stderr.readline().startswith("ready")
    assert shell.run("tdl", "send", "thermostat.tdl", "plant.host") == (0, "t\n", "")
    host.kill()
    host.wait()
    assert shell.start(*command).stderr.readline().startswith("ready")
    code, out, _ = shell.run("call", "plant.thermostat", "set_target", "celsius=25", "--json")
    assert (code, out) == (0, "20.0\n")


def test_a_host_must_be_told_whom_to_trust(shell):
    code, _, err = shell.run("tdl", "host", "plant.host")
    assert code == 2
    assert "give the host a key, or permit all programs" in err
