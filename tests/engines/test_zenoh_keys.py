"""Keys of nodes that come and go do not get into the way of those that stay."""

import uuid

import pytest

from infobus.engines.zenoh.engine import ZenohEngine
from tests.bus.helpers import wait_until


@pytest.mark.slow
@pytest.mark.world
def test_more_inboxes_than_numbers_leave_other_keys_alone() -> None:
    bus = f"keys-{uuid.uuid4().hex[:8]}"
    sender, receiver = ZenohEngine(bus), ZenohEngine(bus)
    sender.open("a")
    receiver.open("b")
    try:
        inbox: list[bytes] = []
        kept: list[bytes] = []
        receiver.declare("n/*", inbox.append)
        receiver.declare("c/kept", kept.append)

        def is_heard() -> bool:
            sender.put("c/kept", b"first")
            return bool(kept)

        wait_until(is_heard)
        sent = [b"%d" % number for number in range(66_000)]
        for one in sent:
            sender.put(f"n/{one.decode()}", one)
        sender.put("c/kept", b"last")
        wait_until(lambda: kept[-1] == b"last" and len(inbox) == len(sent), 60.0)
        assert inbox == sent
    finally:
        sender.close()
        receiver.close()
