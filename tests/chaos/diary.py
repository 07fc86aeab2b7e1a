"""What each program of the arena has seen, line by line, in files that outlive it.

A line is written in one call to a file opened with `O_APPEND`, before the program goes on. So what
a killed program has seen is there, up to its last whole line.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Diary:
    """Writes the lines of one life of a program."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """Add a line."""
        # The same clock for all processes of the machine, whatever the wall clock does.
        line = {"what": what, "at": time.clock_gettime(time.CLOCK_MONOTONIC), **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a diary. The last one may have been cut short by a kill."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)
