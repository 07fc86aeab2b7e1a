"""Frames that nobody takes must not hold up others: a class of events has keys of its own."""

import threading
import time
import uuid

from infobus.engines.zenoh.engine import ZenohEngine
from tests.patience import PATIENT_PROGRAM

FRAMES_COUNT = 20_000


def test_frames_of_a_key_that_wait_do_not_delay_those_of_another():
    bus = f"test-{uuid.uuid4().hex}"
    sender, receiver = (ZenohEngine(bus, patience=PATIENT_PROGRAM) for _ in range(2))
    release, known, urgent, taken = *(threading.Event() for _ in range(3)), []

    def stuck(frame):
        release.wait(100)
        taken.append(frame)

    try:
        receiver.open("receiver")
        receiver.declare("c/x", stuck)
        receiver.declare("q/emergency/x", lambda frame: (urgent if frame else known).set())
        sender.open("sender")
        while not known.wait(0.05):  # until it is known that somebody listens
            sender.put("q/emergency/x", b"", urgency=2)
        for number in range(FRAMES_COUNT):
            sender.put("c/x", number.to_bytes(4, "big") + bytes(200))
        sender.put("q/emergency/x", b"help", urgency=2)
        assert urgent.wait(50)
        release.set()
        deadline_s = time.monotonic() + 60
        while len(taken) < FRAMES_COUNT and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert [int.from_bytes(frame[:4], "big") for frame in taken] == list(range(FRAMES_COUNT))
    finally:
        release.set()
        sender.close()
        receiver.close()
