"""The node as its services see it: the interface that they state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from infobus.bus.runtime.outbox import Mail
from infobus.bus.runtime.runtime import ALL_KEY, Runtime
from infobus.errors import BadFrame, BusError, StoreError
from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.node_names import addressed
from infobus.protocols.frames.wire import SERVICE_TAGS, encode
from infobus.security.policy import Action
from infobus.services.exactly_once import acknowledge
from infobus.services.exchange import Exchange
from infobus.services.threads import Loop, OperationThreads
from infobus.stores.ledger.reply_store import Replies

log = logging.getLogger("infobus")

_LARGE_TAGS = frozenset({31, 32, 33})  # of presences, calls and replies: they may meet a full link


class Serving:
    """The services of one node."""

    def __init__(self, runtime: Runtime, replies_folder: Path, *, test: bool) -> None:
        self.name = runtime.name
        self.application = runtime.node.application
        self.test = test
        self.now_s = runtime.clock.now_s
        self.answers_s = runtime.patience.answers_s
        self._runtime = runtime
        self._folder = replies_folder
        self._replies: Replies | None = None
        self._has_replies = True
        self._threads = OperationThreads(f"infobus-{runtime.name}")
        self.exchange = Exchange(self, self._threads)
        self.loop = Loop(f"infobus-{runtime.name}")
        self.exchange.on_acknowledged = self._acknowledge
        self.exchange.principal_of = runtime.delivery.principal_of
        runtime.register(self.exchange, SERVICE_TAGS)

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
        peers = list(self._runtime.node.peers.items())
        return [name for name, peer in peers if peer.alive and not peer.refused]

    def carry_out(
        self, effects: Sequence[Any], do: Callable[[Any], None], may_wait: bool
    ) -> Sequence[Any]:
        """Do what a machine of services says, in order."""
        one = effects[0]
        if may_wait and len(effects) == 1 and one.__class__ is ToPeer and one.peer != self.name:
            # The short way of what comes most.
            self._put(f"n/{one.peer}", encode(addressed(one.message, one.peer)))
            return ()
        mail: Mail = []
        heard: list[Any] = []
        self._runtime.carry_out(do, effects, mail, heard=heard)
        for key, frame, bulk, urgency in mail:
            if may_wait and key != ALL_KEY:
                self._put(key, frame)
            else:
                self._runtime.send([(key, frame, bulk or frame[1] in _LARGE_TAGS, urgency)])
        return heard

    def _put(self, key: str, frame: bytes) -> None:
        try:
            self._runtime.engine.put(key, frame)
        except BusError as error:  # the protocol asks again, or gives up
            if not self._runtime.is_closed:
                self._runtime.counters.complain("engine", str(error))

    def check(self, action: Action, subject: str) -> None:
        """Raise `NotAllowed` if this node may not do that on a secured bus."""
        if self._runtime.guard is not None:
            self._runtime.guard.check(action, subject)

    def accepts(self, node: str, action: Action, subject: str) -> bool:
        """Whether another node may do that on a secured bus."""
        guard = self._runtime.guard
        return guard is None or guard.accepts(node, action, subject)

    def accepts_retiring(self, node: str, subject: str) -> bool:
        """Whether another node may have the servers of a subject here retire."""
        guard = self._runtime.guard
        return guard is None or guard.accepts_retiring(node, subject)

    def refusal(self, node: str, action: Action, subject: str) -> tuple[str, int]:
        """Why another node may not do that, and the version of the policy that says so."""
        assert self._runtime.guard is not None
        return self._runtime.guard.refusal(node, action, subject)

    def learn(self, descriptors: list[bytes]) -> None:
        """Take in descriptors of types."""
        self._runtime.learn(descriptors)

    def is_for_us(self, message: Any) -> bool:
        """Whether a frame is for this node; if not, that is complained of."""
        return self._runtime.is_for_us(message)

    def refuse(self, error: BadFrame) -> None:
        """Count and note a frame that cannot be read."""
        self._runtime.on_bad_frame(error)

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
