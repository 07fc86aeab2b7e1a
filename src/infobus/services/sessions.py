"""Sessions (paper 002, section 7): a private, two-way conversation with one supplier.

A consumer asks who supplies a service, chooses one, and proposes a quality of service: a class of
priority, an age limit, a rate. The supplier answers with what it agrees to, which may be less.
Then each side sends to the other on a channel that only the two of them use, in the agreed class,
with the agreed age limit, and no faster than agreed. A session ends when either side closes it,
or dies.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

from infobus.errors import BusClosed, LossError, UsageError
from infobus.objects import DataObject
from infobus.protocols.qos.classes import check_positive
from infobus.services.call import no_server
from infobus.services.discovery import Found
from infobus.services.exchange import Exchange
from infobus.services.service import Service, current_call

log = logging.getLogger("infobus")

_SUBJECT = "session-{}.{}"  # a channel of its own, so that nobody else hears of it
_AGE = "infobus.age"  # header: how many seconds an event took to the router that passes it on


class Ended(DataObject, name="infobus.SessionEnded"):
    """The last word of a session."""

    reason: str = ""


class Missed(DataObject, name="infobus.SessionLoss"):
    """Something that the other side said was lost before it came to its last router."""

    text: str
    first: int
    last: int | None = None


@dataclass(frozen=True)
class QoS:
    """The quality of a session; None leaves it to the other side, or to the bus."""

    priority: str | None = None
    """The class in which its events travel."""
    max_age: float | None = None
    """Seconds after which an event is worthless."""
    max_rate: float | None = None
    """Events a second that each side sends at most."""

    def __post_init__(self) -> None:
        check_positive("max_age", self.max_age, " of seconds")
        check_positive("max_rate", self.max_rate, " of events a second")

    def met_by(self, offered: QoS) -> QoS:
        """What both sides can live with: the supplier's class if it has one, the lower limits.

        >>> QoS("business", 5.0, 100.0).met_by(QoS(max_rate=10.0))
        QoS(priority='business', max_age=5.0, max_rate=10.0)
        """
        return QoS(
            offered.priority or self.priority,
            _lower(self.max_age, offered.max_age),
            _lower(self.max_rate, offered.max_rate),
        )


def _lower(one: float | None, other: float | None) -> float | None:
    given = [value for value in (one, other) if value is not None]
    return min(given, default=None)


class SessionBus(Protocol):
    """What sessions need of a bus."""

    def publish(self, subject: str, obj: Any, **options: Any) -> None:
        """Send."""

    def subscribe(self, pattern: str, **options: Any) -> Any:
        """Receive."""


class Session:
    """One end of a conversation. Iterate it for what the other side sends.

    Attributes:
        id: What both sides call it.
        peer: The node of the other side.
        qos: What was agreed.

    Args:
        hears, speaks: The two directions, `up` to the supplier and `down` from it.
        options: Of the subscription.
    """

    def __init__(
        self,
        bus: SessionBus,
        exchange: Exchange,
        id: str,
        *,
        hears: str,
        speaks: str,
        **options: Any,
    ) -> None:
        self.id = id
        self.peer = ""
        self.qos = QoS()
        self.reason = ""
        """Why it has ended; empty while it goes on."""
        self._bus = bus
        self._exchange = exchange
        self._speaks = _SUBJECT.format(id, speaks)
        self._send_at_s = 0.0
        self._sending = threading.Lock()
        self._heard = bus.subscribe(_SUBJECT.format(id, hears), on_loss="raise", **options)

    def begin(self, peer: str, qos: QoS) -> None:
        """The other side is known."""
        self.peer, self.qos = peer, qos
        self._exchange.departures.append(self._on_departure)

    def send(self, obj: Any) -> None:
        """Send something to the other side; waits if it would be faster than agreed.

        Raises:
            BusClosed: The session has ended; `reason` says why.
        """
        self._wait_for_turn()
        self._publish(obj)

    def pass_on(self, event: Any) -> None:
        """Say what was said in another session: an event of `receive_event`, unless it is too old.

        Raises:
            BusClosed: The session has ended; `reason` says why.
        """
        self._wait_for_turn()
        options: dict[str, Any] = {"test": event.test}
        if (max_age := self.qos.max_age) is not None:
            told = event.headers.get(_AGE)
            age_s = told if isinstance(told, float) else 0.0
            age_s += max(0.0, time.time() - event.time)
            if age_s >= max_age:
                return
            options |= {"max_age": max_age - age_s, "headers": {_AGE: age_s}}
        self._publish(event.data, **options)

    def pass_loss_on(self, error: LossError) -> None:
        """Tell the other side that something was lost on its way here."""
        self._publish(Missed(text=str(error), first=error.first, last=error.last))

    def _wait_for_turn(self) -> None:
        if self.qos.max_rate is not None:
            with self._sending:
                now_s = time.monotonic()
                wait_s = self._send_at_s - now_s
                self._send_at_s = max(now_s, self._send_at_s) + 1.0 / self.qos.max_rate
            if wait_s > 0:
                time.sleep(wait_s)
        if self.reason:
            raise BusClosed(f"the session with {self.peer} has ended: {self.reason}")

    def receive(self, timeout_s: float | None = None) -> Any:
        """What the other side sends next.

        Raises:
            TimeoutError: Nothing came in time.
            BusClosed: The session has ended; `reason` says why.
            LossError: Something it sent can no longer be had; the next call goes on after it.
        """
        return self.receive_event(timeout_s).data

    def receive_event(self, timeout_s: float | None = None) -> Any:
        """The same as `receive`, with what the bus knows of it."""
        try:
            event = self._heard.receive(timeout_s)
        except BusClosed:
            why = self.reason or "the bus was closed"
            raise BusClosed(f"the session with {self.peer} has ended: {why}") from None
        obj = event.data
        if isinstance(obj, Ended):
            self._end(obj.reason or "the other side has closed it")
            raise BusClosed(f"the session with {self.peer} has ended: {self.reason}")
        if isinstance(obj, Missed):
            raise LossError(
                obj.text, sender=self.peer, channel=event.subject, first=obj.first, last=obj.last
            )
        return event

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self.receive()
            except BusClosed:
                return

    def hear_no_more(self) -> None:
        """Take nothing more in: once what has come is taken, `receive` raises `BusClosed`."""
        self._heard.close()

    def close(self, reason: str = "") -> None:
        """End it, for both sides. Idempotent."""
        if not self.reason:
            with suppress(BusClosed):
                self._publish(Ended(reason=reason))
            self._end(reason or "closed here")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _publish(self, obj: Any, **options: Any) -> None:
        usual = {"priority": self.qos.priority, "max_age": self.qos.max_age}
        self._bus.publish(self._speaks, obj, **{**usual, **options})

    def _on_departure(self, node: str) -> None:
        if node == self.peer:
            self._end("the other side has died")

    def _end(self, reason: str) -> None:
        with self._sending:
            if self.reason:
                return
            self.reason = reason
        if self._on_departure in self._exchange.departures:
            self._exchange.departures.remove(self._on_departure)
        self._heard.close()


class Conversations:
    """What the suppliers of a node say in their sessions, each on a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[Session, tuple[str, threading.Thread]] = {}

    def begin(self, session: Session, converse: Callable[[Session], object]) -> None:
        """Begin one."""
        name = getattr(converse, "__qualname__", None) or repr(converse)
        thread = threading.Thread(
            target=self._run,
            args=(session, converse),
            name=f"infobus-session-{session.id}",
            daemon=True,
        )
        self._running[session] = name, thread
        thread.start()

    def hear_no_more(self) -> None:
        """Let all come to their end; they can still say something."""
        for session in list(self._running):
            session.hear_no_more()

    def wait_silent(self, timeout_s: float) -> list[str]:
        """Wait until all but the caller's own have ended; return those that go on."""
        deadline_s = time.monotonic() + timeout_s
        me = threading.current_thread()
        running = [(one, *held) for one, held in list(self._running.items()) if held[1] is not me]
        for _, _, thread in running:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return [f"{name} with {one.peer}" for one, name, thread in running if thread.is_alive()]

    def _run(self, session: Session, converse: Callable[[Session], object]) -> None:
        reason = "the supplier failed"
        try:
            converse(session)
            reason = ""
        except (BusClosed, LossError) as error:
            reason = str(error)
        except Exception:
            log.exception("a session with %s ends, because its supplier failed", session.peer)
        finally:
            session.close(reason)
            del self._running[session]


Check = Callable[[QoS], object]
"""Raises `UsageError` if a node knows no such class."""


class SessionSupplier(Service):
    """What a supplier serves, so that consumers can begin sessions."""

    def __init__(
        self,
        bus: SessionBus,
        exchange: Exchange,
        converse: Callable[[Session], object],
        offered: QoS,
        check: Check,
        conversations: Conversations,
    ) -> None:
        check(offered)
        self._check = check
        self._bus = bus
        self._exchange = exchange
        self._converse = converse
        self._offered = offered
        self._conversations = conversations

    def begin_session(
        self,
        session: str,
        priority: str | None = None,
        max_age: float | None = None,
        max_rate: float | None = None,
    ) -> dict[str, Any]:
        """Begin a session at the proposed quality of service; returns what is agreed to."""
        agreed = QoS(priority, max_age, max_rate).met_by(self._offered)
        self._check(agreed)
        ours = Session(self._bus, self._exchange, session, hears="up", speaks="down")
        ours.begin(current_call().caller, agreed)
        self._conversations.begin(ours, self._converse)
        return {
            "priority": agreed.priority,
            "max_age": agreed.max_age,
            "max_rate": agreed.max_rate,
        }


def open_session(
    bus: SessionBus,
    exchange: Exchange,
    client: Any,
    choose: Callable[[list[Found]], Found],
    qos: QoS,
    timeout_s: float,
    check: Check,
    **options: Any,
) -> Session:
    """Begin a session with a supplier of the client's subject; see `Bus.open_session`."""
    check(qos)
    found = client.servers(timeout_s)
    if not found:
        raise no_server(client.subject, "begin_session", timeout_s, "")
    able = [one for one in found if "begin_session" in one.interface.operations.names]
    if not able:
        raise UsageError(f"{client.subject!r} is served, but not for sessions")
    chosen = choose(able)
    session = Session(bus, exchange, os.urandom(8).hex(), hears="down", speaks="up", **options)
    session.begin(chosen.node, QoS())  # before it knows of the session: so its death is noticed
    try:
        target = client.options(policy=lambda found: chosen)
        told = target.begin_session(session.id, qos.priority, qos.max_age, qos.max_rate)
        agreed = QoS(**told)
        check(agreed)
    except BaseException:
        session.close()
        raise
    session.qos = agreed
    return session
