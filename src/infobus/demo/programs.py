"""What every program of a demo does: join the demo's bus, and end when the demo ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import infobus


def lifeline() -> Event:
    """An event that is set when the demo is over.

    A program is started with the name of the bus and the reading end of a pipe. Nobody writes to
    the pipe: it closes when the process that holds the other end dies, however it dies.
    """
    held = int(sys.argv[2])
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is meant for the process that started this one
    over = Event()

    def wait_for_the_end() -> None:
        os.read(held, 1)
        over.set()

    Thread(target=wait_for_the_end, daemon=True).start()
    return over


@contextmanager
def on_the_floor() -> Iterator[tuple[infobus.Bus, Event]]:
    """This program's node on the demo's bus, and an event that is set when the demo is over."""
    over = lifeline()
    with infobus.connect(sys.argv[1], engine="zenoh") as bus:
        yield bus, over
