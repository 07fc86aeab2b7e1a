"""Sessions across the border of two buses: a session on each, with the same words.

The stand-in of a supplier takes part in a session with the consumer, and in another one with the
supplier. Each is an ordinary session between two nodes of one bus, so each end hears at once when
its neighbour on the way is gone, and the end of one session is that of the other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

from infobus.bus.bus import Bus, interior
from infobus.errors import Backpressure, BusClosed, BusError, LossError, NoServer
from infobus.objects import codec
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.rules import Key
from infobus.services.discovery import Found
from infobus.services.service import Service, current_call
from infobus.services.sessions import QoS, Session, SessionBus, SessionSupplier, open_session

log = logging.getLogger("infobus")

_PAIRS_COUNT_MAX = 1_000  # of one way: each has two threads
# A router takes what it passes on as it was sent, also what only tests are to see.
_UNREAD: dict[str, Any] = {"test": True, "on_mismatch": "generic"}


class SessionTerms(NamedTuple):
    """What sessions may agree to at most."""

    classes: tuple[str, ...] = ()
    """The classes that may cross; empty is all."""
    max_rate: float | None = None
    """Events a second, each way."""


UNLIMITED = SessionTerms()


def supplies_sessions(found: Found) -> bool:
    """Whether a server is one with which sessions begin."""
    return found.interface.name in (SessionSupplier.__name__, SessionRelay.__name__)


class SessionPairs:
    """The sessions that cross between two buses, one way."""

    def __init__(self, source: Bus, target: Bus, terms: SessionTerms) -> None:
        self.source, self.target, self.terms = source, target, terms
        self._running: dict[SessionPair, None] = {}
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._running)

    def check_room(self) -> None:
        """Raise `Backpressure` if there are as many as there may be."""
        if len(self._running) >= _PAIRS_COUNT_MAX:
            raise Backpressure(
                f"a router on the way carries {_PAIRS_COUNT_MAX} sessions of this agreement "
                "already: close one, or try again later"
            )

    def begin(self, ours: Session, theirs: Session) -> None:
        """Let two sessions be one."""
        pair = SessionPair(ours, theirs, self._forget)
        with self._changed:
            self._running[pair] = None
            is_closed = self._is_closed
        if is_closed:
            pair.hear_no_more()
        pair.begin()

    def close(self) -> None:
        """End all of them; what has come is passed on, as far as there is time."""
        with self._changed:
            self._is_closed = True
            running = list(self._running)
        for pair in running:
            pair.hear_no_more()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, self.source.patience.close_s)

    def _forget(self, pair: SessionPair) -> None:
        with self._changed:
            self._running.pop(pair, None)
            self._changed.notify_all()


class SessionPair:
    """Two sessions; what is said in one of them is said in the other."""

    def __init__(
        self, ours: Session, theirs: Session, on_end: Callable[[SessionPair], None]
    ) -> None:
        self._sessions = ours, theirs
        self._on_end = on_end

    def begin(self) -> None:
        """Pass on what is said, on a thread for each direction, until one of them ends."""
        ours, theirs = self._sessions
        for source, target in ((ours, theirs), (theirs, ours)):
            threading.Thread(
                target=self._run,
                args=(source, target),
                name=f"infobus-relay-{source.id}",
                daemon=True,
            ).start()

    def hear_no_more(self) -> None:
        """Take nothing more in, and end when what has come is passed on."""
        for one in self._sessions:
            one.hear_no_more()

    def _run(self, source: Session, target: Session) -> None:
        try:
            self._pass_on(source, target)
        except BusClosed:
            if target.reason and not source.reason:
                return  # the other direction ends it, when it has passed on the last words
            reason = source.reason or "a router on the way carries it no longer"
        except Exception:
            log.exception("a session with %s ends, because a router cannot go on", source.peer)
            reason = "a router on the way failed"
        for one in (target, source):  # one that has ended stays as it is
            with suppress(BusError):
                _insist(one, partial(one.close, reason))
        self._on_end(self)

    def _pass_on(self, source: Session, target: Session) -> None:
        while True:
            try:
                event = source.receive_event()
            except LossError as error:
                _insist(target, partial(target.pass_loss_on, error))
            else:
                _insist(target, partial(target.pass_on, event))


def _insist(session: Session, say: Callable[[], None]) -> None:
    """Say something in a session as soon as the other side has room, or the session has ended."""
    while True:
        try:
            say()
            return
        except Backpressure:
            if session.reason:
                raise BusClosed(session.reason) from None


class SessionRelay(Service):
    """What a router serves instead of a supplier at another site, so that sessions can begin."""

    def __init__(self, pairs: SessionPairs, subject: str, server: Key) -> None:
        self._relays = pairs
        self._subject = subject
        self._server = server

    def begin_session(
        self,
        session: str,
        priority: str | None = None,
        max_age: float | None = None,
        max_rate: float | None = None,
    ) -> dict[str, Any]:
        """Begin a session at the proposed quality of service; returns what is agreed to."""
        pairs, call = self._relays, current_call()
        wanted = QoS(priority, max_age, max_rate).met_by(QoS(max_rate=pairs.terms.max_rate))
        pairs.check_room()
        exchange = interior(pairs.target).services.exchange
        here = cast("SessionBus", pairs.target)
        ours = Session(here, exchange, session, hears="up", speaks="down", **_UNREAD)
        ours.begin(call.caller, QoS())
        try:
            theirs = self._open(self._allowed(wanted))
        except BaseException:
            ours.close("it has not begun")
            raise
        agreed = self._allowed(theirs.qos)
        ours.qos, theirs.qos = _on(pairs.target, agreed), _on(pairs.source, agreed)
        if call.is_cancelled:
            ours.close("nobody waits for its beginning any more")
        pairs.begin(ours, theirs)
        return {
            "priority": agreed.priority,
            "max_age": agreed.max_age,
            "max_rate": agreed.max_rate,
        }

    def _open(self, wanted: QoS) -> Session:
        """Begin the session with the supplier itself, or with the next router on the way."""
        source = self._relays.source
        timeout_s = source.patience.call_s

        def choose(found: list[Found]) -> Found:
            for one in found:
                if one.key == self._server:
                    return one
            raise NoServer(
                f"{self._server[0]}, at another site, supplies no sessions any more",
                subject=self._subject,
                operation="begin_session",
            )

        return open_session(
            cast("SessionBus", source),
            interior(source).services.exchange,
            source.service(self._subject, timeout_s=timeout_s),
            choose,
            wanted,
            timeout_s,
            lambda qos: None,  # the two ends know which classes there are
            **_UNREAD,
        )

    def _allowed(self, qos: QoS) -> QoS:
        classes = self._relays.terms.classes
        is_allowed = not classes or qos.priority in classes
        return QoS(qos.priority if is_allowed else None, qos.max_age, qos.max_rate)


def _on(bus: Bus, qos: QoS) -> QoS:
    """The same quality where its class may not be known."""
    is_known = qos.priority in interior(bus).runtime.node.terms.classes.names
    return QoS(qos.priority if is_known else None, qos.max_age, qos.max_rate)


class SessionStandIn:
    """What offers sessions on one bus instead of a supplier on another."""

    def __init__(
        self, pairs: SessionPairs, key: Key, subject: str, presence: Presence, said: bytes
    ) -> None:
        self.subject, self.server_subject = subject, presence.subject
        self._said = said
        relay = SessionRelay(pairs, presence.subject, key)
        self._offered = pairs.target.serve(subject, relay, info=codec.decode(0, said))

    def change(self, presence: Presence, said: bytes) -> None:
        """The supplier says something else about itself."""
        if said != self._said:
            self._said = said
            self._offered.update(**codec.decode(0, said))

    def close(self) -> None:
        """Begin no more sessions."""
        self.asked_to_retire()

    def asked_to_retire(self) -> None:
        """Begin no more sessions; those that go on are not concerned."""
        self._offered.asked_to_retire()
