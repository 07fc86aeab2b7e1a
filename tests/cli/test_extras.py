"""A plain installation has no Spark, no database and no plots, and says so."""

import subprocess
import sys
from pathlib import Path

from tests.cli.running import Shell

WITHOUT_EXTRAS = """
import contextlib, io, sys
for name in "pyarrow sqlalchemy psycopg pyspark pandas matplotlib grpc nats zmq".split():
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
            print(line.strip(), end.code, text.count("\\n"), "pip install" in text)
        except BaseException as error:
            print(line.strip(), repr(error))
"""


def test_without_extras_a_command_ends_with_one_line_that_names_the_extra(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (shell.folder / "p.toml").write_text("[source]\nsubject = 'a'\n[jobs.traffic]\n")
    commands = [
        "journal a.> --to J",
        "journal show J",
        "journal verify J",
        "pipeline run p.toml",
        "pipeline stop p.toml",
        "replay --journal J",
        "backtest --journal J --where n>1",
        "capture a.>",
        "query Story",
        "demo newsroom --seconds 1",
        "bench pipeline --quick",
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        cwd=shell.folder,
        env=shell.environment,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(tuple(commands))]
    assert told == [f"{command} 2 1 True" for command in commands], done.stderr
