"""A node takes its daemon when that answers, and knows by the end of `watch` whom it sees."""

import time
import uuid

from msgspec.structs import replace

from infobus.engines.attached.engine import AttachedEngine
from infobus.engines.attached.ways import EMBEDDED, Way
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.errors import EngineError
from tests.patience import PATIENT_PROGRAM


def test_a_daemon_that_did_not_answer_is_tried_again(endpoint: str) -> None:
    bus, daemon = uuid.uuid4().hex, Way((endpoint,))
    tried: list[Way] = []

    def make(way: Way) -> ZenohEngine:
        tried.append(way)
        if tried == [daemon]:
            raise EngineError("it stands still")
        # By itself it hears nothing of the daemon: there is no socket at which they could meet.
        return (
            ZenohEngine(bus, role="client", connect=way.endpoints, patience=PATIENT_PROGRAM)
            if way.is_attached
            else ZenohEngine(uuid.uuid4().hex, patience=PATIENT_PROGRAM)
        )

    router = ZenohEngine(bus, role="router", listen=[endpoint], patience=PATIENT_PROGRAM)
    router.open("router")
    patience = replace(PATIENT_PROGRAM, move_s=0.2)
    engine = AttachedEngine(make, lambda: (daemon, EMBEDDED), patience=patience)
    engine.open("a")
    assert engine.way == EMBEDDED
    deadline_s = time.monotonic() + 20.0
    while engine.way != daemon and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert tried == [daemon, EMBEDDED, daemon]
    assert engine.way == daemon
    engine.close()
    router.close()


def test_whoever_is_told_of_a_token_may_put_something_at_once(endpoint: str) -> None:
    """Else the first of many would hold up word of all others."""
    bus, patience = uuid.uuid4().hex, replace(PATIENT_PROGRAM, reach_s=60.0)
    router = ZenohEngine(bus, role="router", listen=[endpoint], patience=PATIENT_PROGRAM)
    router.open("router")
    for number in range(5):
        router.announce(f"l/{number}")
    engine = AttachedEngine(
        lambda way: ZenohEngine(bus, role="client", connect=way.endpoints, patience=patience),
        lambda: (Way((endpoint,)), EMBEDDED),
    )
    engine.open("a")
    seen: list[str] = []

    def note(token: str, is_alive: bool) -> None:
        engine.put(f"n/{token[2:]}", b"hello")
        seen.append(token)

    began_s = time.monotonic()
    engine.watch("l/*", note)
    assert sorted(seen) == [f"l/{number}" for number in range(5)]
    assert time.monotonic() - began_s < 30.0
    engine.close()
    router.close()
