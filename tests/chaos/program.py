"""One program of the arena: it works until it is told to end, and keeps a diary.

Run as `program.py FOLDER ROLE LIFE`; LIFE names this life of the program, and no other has had it.
SIGTERM ends it in good order. A file `clock` in the folder says by how many seconds the wall clock
is wrong.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.diary import Diary

# Whoever looks for doctests imports this file without arguments.
FOLDER, ROLE, LIFE = Path(), "", ""
if __name__ == "__main__":
    FOLDER, ROLE, LIFE = Path(sys.argv[1]), *sys.argv[2:4]
CHANNELS, CLASSES = ("red", "blue"), ("regular", "regular", "business", "emergency")
SLOT = LIFE.partition("-")[0]  # of all lives of this program
LOOK_S = 0.2  # between looks at who knows a listener's subscription

real_time = time.time
if __name__ == "__main__":  # before infobus takes it for the system's clock
    time.time = lambda: real_time() + wrong_s()


def wrong_s() -> float:
    try:
        return float((FOLDER / "clock").read_text() or 0)
    except (OSError, ValueError):
        return 0.0


def on_the_clock_of_diaries(*facts: Any) -> logging.LogRecord:
    record = logging.LogRecord(*facts)
    record.at = time.clock_gettime(time.CLOCK_MONOTONIC)
    return record


ended = threading.Event()
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    faulthandler.enable()  # on SIGABRT, too
    logging.setLogRecordFactory(on_the_clock_of_diaries)
    logging.basicConfig(format="%(at).2f %(message)s", level=logging.INFO)
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]
import infobus  # noqa: E402
from tests.chaos import diary as diaries  # noqa: E402


class Book(infobus.Service):
    """Notes every call that runs."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary

    def pay(self, key: str) -> str:
        """Have an effect that must not happen twice."""
        self._diary.note("ran", key=key)
        return key


def publish(bus: infobus.Bus, diary: Diary) -> None:
    """Number the events of each lane from 1; what was refused keeps its number for the next."""
    luck, numbers = random.Random(LIFE), Counter[tuple[str, str]]()
    while not ended.wait(luck.expovariate(100)):
        channel, class_ = luck.choice(CHANNELS), luck.choice(CLASSES)
        number = numbers[channel, class_] + 1
        event = {"by": LIFE, "lane": f"{channel}/{class_}", "n": number}
        begun = time.clock_gettime(time.CLOCK_MONOTONIC)
        with contextlib.suppress(infobus.Backpressure):
            bus.publish(f"{channel}.{luck.randrange(5)}", event, priority=class_)
            numbers[channel, class_] = number
            diary.note("accepted", begun=begun, **event)


def keep(bus: infobus.Bus, diary: Diary) -> None:
    """Publish guaranteed events, one by one and in transactions of two."""
    luck, number = random.Random(LIFE), 0
    while not ended.wait(luck.expovariate(40)):
        count = luck.choice((1, 1, 2))
        events = [{"by": LIFE, "n": number + 1 + i} for i in range(count)]
        begun = time.clock_gettime(time.CLOCK_MONOTONIC)
        try:
            if count == 1:
                bus.publish("kept.a", events[0], guaranteed=True)
            else:
                bus.publish_many([("kept.a", event) for event in events], guaranteed=True)
        except (infobus.StoreError, infobus.Backpressure) as error:
            diary.note("refused", why=type(error).__name__, text=str(error)[:200])
            number += count  # it may be there all the same; it was not promised
            continue
        for event in events:
            diary.note("kept", begun=begun, **event)
        number += count


def listen(bus: infobus.Bus, diary: Diary) -> None:
    """Note what comes, every loss that is told, and who knows its subscription."""
    subscription = bus.subscribe(">")
    version = bus._runtime.node.own.version
    diary.note("up", node=bus.node)
    known, look_at_s = set[str](), 0.0
    while True:
        if (now_s := time.monotonic()) >= look_at_s:
            look_at_s = now_s + LOOK_S
            with bus._runtime.lock:
                peers = bus._runtime.node.peers.items()
                new = {name for name, one in peers if one.confirmed >= version} - known
            known |= new
            for node in new:
                diary.note("known to", node=node)
        try:
            event = subscription.receive(0.2)
        except infobus.LossError as loss:
            diary.note(
                "loss",
                sender=loss.sender,
                channel=loss.channel,
                priority=loss.priority,
                first=loss.first,
                last=loss.last,
            )
        except TimeoutError:
            if ended.is_set():
                return
        else:
            # Others are guaranteed, or the enemy has made them up.
            if isinstance(event.data, dict) and "lane" in event.data:
                diary.note("got", sender=event.sender, seq=event.seq, **event.data)


def consume(bus: infobus.Bus, diary: Diary) -> None:
    """Note guaranteed events before they are settled."""
    subscription = None
    while subscription is None and not ended.wait(0.1):
        with contextlib.suppress(infobus.StoreError):  # the disk is full just now
            subscription = bus.subscribe("kept.>", durable=SLOT)
    diary.note("up", node=bus.node)
    while subscription is not None and not ended.is_set():
        try:
            event = subscription.receive(0.2)
        except TimeoutError:
            continue
        except infobus.StoreError as error:  # a full disk: it could not be settled
            diary.note("refused", why=type(error).__name__, text=str(error)[:200])
            continue
        diary.note("got", deliveries=event.deliveries, **event.data)


def serve(bus: infobus.Bus, diary: Diary) -> None:
    """Answer calls."""
    with bus.serve("svc.book", Book(diary)):
        diary.note("up", node=bus.node)
        ended.wait()


def call(bus: infobus.Bus, diary: Diary) -> None:
    """Call, each key once; half of them so that they may be tried again."""
    luck, number = random.Random(LIFE), 0
    while not ended.wait(luck.expovariate(20)):
        number += 1
        key, once = f"{LIFE}-{number}", luck.random() < 0.5
        service = bus.service("svc.book", exactly_once=key) if once else bus.service("svc.book")
        try:
            answer = service.pay(key)
        except infobus.BusError as error:
            diary.note("failed", key=key, once=once, why=type(error).__name__)
        else:
            assert answer == key, answer
            diary.note("answered", key=key, once=once)


def attack(bus: infobus.Bus, diary: Diary) -> None:
    """Send frames that are broken, absurd, or of nodes that do not exist."""
    from tests.chaos.enemy import frames

    luck = random.Random(LIFE)
    nodes = [LIFE]
    for count, (key, frame) in enumerate(frames(luck, bus.node, nodes)):
        bus._runtime.engine.put(key, frame)
        if count % 500 == 0:
            diary.note("attacked", frames=count)
        if ended.wait(0.002):
            return


def main() -> None:
    # A program has its own home, so that a full disk is its own; consumers and publishers of
    # guaranteed events share one, as those of one host do.
    diary = diaries.Diary(FOLDER / "diaries" / f"{ROLE}.{LIFE}")
    roles = {
        "publisher": publish,
        "keeper": keep,
        "listener": listen,
        "consumer": consume,
        "server": serve,
        "caller": call,
        "enemy": attack,
    }
    home = os.environ.get("INFOBUS_HOME", FOLDER / "home")
    name = os.environ.get("INFOBUS_BUS", f"chaos-{FOLDER.name}")
    with infobus.connect(name, home=home) as bus:
        diary.note("born", node=bus.node, host=os.uname().nodename)
        roles[ROLE](bus, diary)
    diary.note("ended")


if __name__ == "__main__":
    main()
