"""What every program of the demo does: join its bus, and end when the demo ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import infobus


@contextmanager
def on_the_floor() -> Iterator[tuple[infobus.Bus, Event]]:
    """This program's node on the demo's bus, and an event that is set when the demo is over.

    The program was started with the bus's name, and with the reading end of a pipe that nobody
    writes to. It ends with the one who holds the other end, however that one ends.
    """
    bus_name, lifeline = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started us
    over = Event()

    def wait_for_the_end() -> None:
        os.read(lifeline, 1)
        over.set()

    Thread(target=wait_for_the_end, daemon=True).start()
    with infobus.connect(bus_name, engine="zenoh") as bus:
        yield bus, over
