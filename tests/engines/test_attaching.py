"""A node that had to begin without its daemon takes it when it answers, also if it sees nobody."""

import time
import uuid

import pytest

from infobus.engines.attached import ways
from infobus.engines.attached.engine import AttachedEngine
from infobus.engines.attached.ways import EMBEDDED, Way
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.errors import EngineError
from tests.patience import PATIENT_PROGRAM


def test_a_daemon_that_did_not_answer_is_tried_again(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "HELD_S", 0.2)
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
    engine = AttachedEngine(make, lambda: (daemon, EMBEDDED))
    engine.open("a")
    assert engine.way == EMBEDDED
    deadline_s = time.monotonic() + 20.0
    while engine.way != daemon and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert tried == [daemon, EMBEDDED, daemon]
    assert engine.way == daemon
    engine.close()
    router.close()
