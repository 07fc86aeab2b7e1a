"""A plain installation has no Spark, no database and no plots, and says so."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from infobus.cli.main import app
from tests.cli.running import Shell

WITHOUT_EXTRAS = """
import contextlib, io, sys
names = "pyarrow sqlalchemy psycopg pyspark pandas matplotlib grpc nats zmq cryptography"
for name in names.split():
    sys.modules[name] = None
from infobus.cli.main import main
for line in sys.stdin:
    sys.argv = ["infobus", *line.split()]
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        try:
            main()
        except SystemExit as end:
            text = told.getvalue()
            print(line.strip(), end.code, text.count("\\n"), "pip install '.[" in text)
        except BaseException as error:
            print(line.strip(), repr(error))
"""


def run_without_extras(shell: Shell, commands: list[str]) -> tuple[list[str], str]:
    """Return for each command its exit code, its lines on stderr, and whether an extra is named."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        cwd=shell.folder,
        env=shell.environment,
    )
    return [
        line for line in done.stdout.splitlines() if line.startswith(tuple(commands))
    ], done.stderr


def all_commands() -> Iterator[str]:
    """Yield every command of the command line, with those below it."""
    waiting = [("", typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop()
        yield path
        below = getattr(command, "commands", {})
        waiting.extend((f"{path} {name}".strip(), one) for name, one in below.items())


def test_without_extras_a_command_ends_with_one_line_that_names_the_extra(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (shell.folder / "p.toml").write_text("[source]\nsubject = 'a'\n[jobs.traffic]\n")
    commands = [
        "journal a.> --to J",
        "journal record a.> --to J",
        "journal show J",
        "journal verify J",
        "journal repair J",
        "journal compact J",
        "pipeline run p.toml",
        "pipeline stop p.toml",
        "replay --journal J",
        "backtest --journal J --where n>1",
        "capture a.>",
        "query Story",
        "repository index Story a",
        "repository delete Story --yes",
        "repository prune --keep-days 3",
        "demo newsroom --seconds 1",
        "bench pipeline --quick",
        "bench repository --quick",
        "bench backtest --quick",
    ]
    told, errors = run_without_extras(shell, commands)
    assert told == [f"{command} 2 1 True" for command in commands], errors


def test_without_extras_every_command_has_help(tmp_path: Path) -> None:
    commands = [f"{command} --help".strip() for command in all_commands()]
    told, errors = run_without_extras(Shell(tmp_path), commands)
    assert told == [f"{command} 0 0 False" for command in commands], errors


def test_a_query_server_is_asked_without_extras(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    impatient = tmp_path / "impatient.toml"
    impatient.write_text("[patience]\ncall_s = 0.2\n")
    shell.environment["INFOBUS_SETTINGS"] = str(impatient)
    asked = "query Story --remote svc.nobody"
    told, errors = run_without_extras(shell, [asked])
    assert told == [f"{asked} 1 1 False"], errors
