"""The node as its services see it: the interface that they state."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from infobus.bus.runtime.runtime import Hub
from infobus.errors import BadFrame, BusError, StoreError
from infobus.services.exactly_once import acknowledge
from infobus.services.exchange import Exchange
from infobus.services.threads import Loop, Threads
from infobus.stores.ledger.reply_store import Replies

log = logging.getLogger("infobus")


class Serving:
    """The services of one node."""

    def __init__(self, hub: Hub, replies_folder: Path, *, test: bool) -> None:
        self.name = hub.name
        self.test = test
        self._hub = hub
        self._folder = replies_folder
        self._replies: Replies | None = None
        self._has_replies = True
        self._threads = Threads(f"infobus-{hub.name}")
        self.exchange = Exchange(self, self._threads)
        self.loop = Loop(f"infobus-{hub.name}")
        self.exchange.on_acknowledged = self._acknowledge
        hub.on_service = self.exchange.on_frame
        hub.on_peer.append(self.exchange.on_peer)
        self.exchange.start()

    def close(self) -> None:
        """Call and answer no more."""
        self.exchange.close()
        self.loop.stop()
        if self._replies is not None:
            self._replies.close()

    # What services ask of the node.

    def alive(self) -> Collection[str]:
        """The peers that can be seen."""
        # A copy made at one stroke: the peers may change meanwhile.
        peers = list(self._hub.node.peers.items())
        return [name for name, peer in peers if peer.alive and not peer.refused]

    def send(self, peer: str, frame: bytes) -> None:
        """Put a frame into a peer's inbox; waits, bounded, for a slow link."""
        try:
            self._hub.engine.put(f"n/{peer}", frame)
        except BusError as error:  # the protocol asks again, or gives up
            if not self._hub.is_closed:
                self.complain("engine", str(error))

    def post(self, peer: str, frame: bytes, bulk: bool) -> None:
        """The same, without waiting."""
        self._hub.send([(f"n/{peer}", frame, bulk)])

    def post_to_all(self, frame: bytes) -> None:
        """Put a frame where every node hears it."""
        self._hub.send([("all", frame, False)])

    def learn(self, descriptors: list[bytes]) -> None:
        """Take in descriptors of types."""
        self._hub.learn(descriptors)

    def refuse(self, error: BadFrame) -> None:
        """Count and note a frame that cannot be read."""
        self._hub.counters.bad_frames += 1
        self.complain(type(error).__name__, str(error))

    def complain(self, source: str, what: str) -> None:
        """Note that somebody did something wrong."""
        self._hub.counters.complain(source, what)

    def reply_store(self) -> Replies | None:
        """Where the replies of calls that must run once are kept."""
        if self._replies is None and self._has_replies:
            try:
                self._replies = Replies.open(self._folder)
            except StoreError as error:
                self._has_replies = False
                log.warning("services here cannot be called exactly once: %s", error)
        return self._replies

    def _acknowledge(self, once: str) -> None:
        self._threads.do(lambda: acknowledge(self, once))  # the disk may take its time
