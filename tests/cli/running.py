"""Runs `infobus` as a user does: as a process, on a bus that no other test hears."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pexpect

from tests.patience import SETTINGS

COMMAND = [sys.executable, "-m", "infobus.cli"]
SOURCE = Path(__file__).parents[2] / "src"


class Shell:
    """A folder and an environment in which to run commands."""

    def __init__(self, folder):
        self.folder = folder
        self.bus = f"test-{uuid.uuid4().hex[:12]}"
        self.environment = {
            **{name: text for name, text in os.environ.items() if "INFOBUS" not in name},
            "INFOBUS_BUS": self.bus,
            "INFOBUS_HOME": str(folder),
            "INFOBUS_SETTINGS": str(SETTINGS),
            "PYTHONPATH": str(SOURCE),
            "COLUMNS": "100",
        }
        self._started = []
        self._terminals = []

    def start(self, *arguments, **options):
        """Start `infobus ...` and return the process."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
            **options,
        )
        self._started.append(process)
        return process

    def terminal(self, *arguments, columns=100, **environment):
        """Start `infobus ...` on a terminal of its own, for a test to type at and to read."""
        settings = {"TERM": "dumb", "INPUTRC": os.devnull, "COLUMNS": str(columns)}
        child = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], *arguments],
            env=self.environment | settings | environment,
            cwd=str(self.folder),
            encoding="utf-8",
            timeout=60,
            dimensions=(24, columns),
        )
        self._terminals.append(child)
        return child

    def listen(self, *arguments, **options):
        """Start `infobus sub ...` and return once it listens."""
        process = self.start("sub", *arguments, **options)
        assert process.stderr.readline().startswith("listening on")
        return process

    def run(self, *arguments, stdin=""):
        """Run `infobus ...` to its end; returns exit code, standard output and error."""
        process = self.start(*arguments)
        out, err = process.communicate(stdin, timeout=60)
        return process.returncode, out, err

    def close(self):
        for child in self._terminals:
            child.close(force=True)
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
