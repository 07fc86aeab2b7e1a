"""Ends the programs of loopback hosts when their test has ended, however it ended.

Run as `guardian.py PIDFD MARK FOLDER`: waits for the process behind PIDFD, kills whatever has MARK
in its environment, and removes FOLDER. It is run by its path, with the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time


def marked(mark: str) -> list[int]:
    """The processes of this user that have `mark` in the environment they were started with."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(entry.name))
    return found


def end_all(mark: str) -> None:
    """Kill them until there are none."""
    deadline_s = time.monotonic() + 10.0
    while (pids := marked(mark)) and time.monotonic() < deadline_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def main() -> None:
    """Wait for the end of the test, and clear up."""
    life, mark, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    select.select([life], [], [])
    end_all(mark)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
