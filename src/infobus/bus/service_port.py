"""The node's side of services: the interface that they state, and what a bus does with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from infobus.bus.runtime.runtime import Hub
from infobus.errors import BadFrame, BusClosed, BusError, StoreError, UsageError
from infobus.services import Found, Offered, ServiceClient, Watch
from infobus.services.exactly_once import acknowledge
from infobus.services.exchange import Exchange
from infobus.services.presence import IAmHere
from infobus.services.threads import Loop, Threads
from infobus.stores.ledger.reply_store import Replies
from infobus.subjects import check_pattern, check_subject

log = logging.getLogger("infobus")

_KNOWN_S_MAX = 1.0
_LINGER_S = 0.05


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
        self._loop = Loop(f"infobus-{hub.name}")
        self.exchange.on_acknowledged = self._acknowledge
        self._offers: list[Offered] = []
        hub.on_service = self.exchange.on_frame
        hub.on_peer.append(self.exchange.on_peer)
        self.exchange.start()

    # What the application does.

    def serve(self, subject: str, service: object, **options: Any) -> Offered:
        """See `Bus.serve`."""
        offered = Offered(self.exchange, self._loop, subject, service, **options)
        self._offers = [one for one in self._offers if not one.is_retired] + [offered]
        return offered

    def replace(self, subject: str, service: object, **options: Any) -> Offered:
        """See `Bus.replace`."""
        here = [one for one in self._offers if one.subject == subject and not one.is_retired]
        if here:
            here[0].replace(service, version=options.pop("version", None))
            if options:
                raise UsageError(f"{', '.join(options)} cannot be changed by replacing")
            offered = here[0]
        else:
            offered = self.serve(subject, service, **options)
        self.exchange.ask_to_retire(subject)
        return offered

    def service(self, subject: str, **options: Any) -> ServiceClient:
        """See `Bus.service`."""
        return ServiceClient(self.exchange, subject, **options)

    def who_is_out_there(
        self, pattern: str, timeout_s: float, role: str | None, where: str
    ) -> list[Found]:
        """See `Bus.who_is_out_there`."""
        check_pattern(pattern)
        found = self.exchange.ask(pattern, role or "", where, timeout_s)
        return [Found.of(one.node, one.presence) for one in found]

    def watch(self, pattern: str, role: str | None) -> Watch:
        """See `Bus.watch`."""
        check_pattern(pattern)
        return Watch(self.exchange, pattern, role or "")

    def i_am(self, subject: str, role: str, info: Mapping[str, Any]) -> IAmHere:
        """See `Bus.i_am`."""
        check_subject(subject)
        return IAmHere(self.exchange, subject, role, info)

    def close(self, timeout_s: float) -> None:
        """Retire all services, and let what runs finish, within a time."""
        for offered in self._offers:
            offered.asked_to_retire()
        for offered in self._offers:
            if not offered.wait_retired(timeout_s):
                log.warning("closing while %r still has calls", offered)
                timeout_s = 0.0
        if self._offers and timeout_s:
            self._wait_until_known()
        self.exchange.close()
        self._loop.stop()
        if self._replies is not None:
            self._replies.close()

    def _wait_until_known(self) -> None:
        """Refuse calls until everyone knows that nothing is served here any more.

        Who answers a question has heard what was said before it. Calls that were made before
        that are on their way, and get here a moment later at the most.
        """
        self.exchange.ask(">", "nobody", "", _KNOWN_S_MAX)
        time.sleep(_LINGER_S)

    def abandon(self, why: BusClosed) -> None:
        """End in a forked child."""
        self.exchange.abandon(why)

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
