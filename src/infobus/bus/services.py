"""What a `Bus` does for those who serve, find and call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from infobus.bounds import Bounds
from infobus.bus.lifetime import Lifetime
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.settings import replies_folder
from infobus.errors import BusClosed, UsageError
from infobus.open_files import open_files_needed
from infobus.patience import Patience
from infobus.protocols.frames.wire import SERVICE_TAGS
from infobus.subjects import check_pattern, check_publishable

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.bus import Bus
    from infobus.bus.service_port import Serving
    from infobus.services import Found, Offered, ServiceClient, Watch
    from infobus.services.discovery import IAmHere
    from infobus.services.exchange import Exchange
    from infobus.services.sessions import Conversations, QoS, Session
    from infobus.services.sessions import SessionBus as SessionBus

log = logging.getLogger("infobus")

_LINGER_S = 0.05


class Services:
    """The services that a node offers and calls; what stands behind them is begun when needed."""

    def __init__(
        self,
        runtime: Runtime,
        bus_name: str,
        home: Path,
        lifetime: Lifetime,
        patience: Patience,
        bounds: Bounds,
        wish: Callable[..., object],
        *,
        test: bool,
    ) -> None:
        self._runtime = runtime
        self._wish = wish
        self._bus_name = bus_name
        self._home = home
        self._lifetime = lifetime
        self._patience = patience
        self._bounds = bounds
        self._test = test
        self._port: Serving | None = None
        self._beginning = threading.Lock()
        self._offers: list[Offered] = []
        self._conversations: Conversations | None = None
        # Every node answers who is out there, from the first question on.
        runtime.register_late(self._begin_unless_closed, SERVICE_TAGS)

    @property
    def exchange(self) -> Exchange:
        """What calls, serves and finds."""
        return self._begun().exchange

    def offered(self) -> list[Offered]:
        """The services that this node offers now."""
        return list(self._offers)

    @open_files_needed()
    def serve(self, subject: str, service: object, **options: Any) -> Offered:
        """See `Bus.serve`."""
        from infobus.services import Offered  # late: most programs serve nothing
        from infobus.services.served import SERVE_OPTIONS
        from infobus.services.service import check_options

        check_options("serve", options, SERVE_OPTIONS)
        port = self._begun()
        port.check("serve", subject)
        options.setdefault("queue_count_max", self._bounds.calls_count_max)
        offered = Offered(port.exchange, port.loop, subject, service, **options)
        self._offers = [one for one in self._offers if not one.is_retired] + [offered]
        return offered

    def replace(self, subject: str, service: object, **options: Any) -> Offered:
        """See `Bus.replace`."""
        exchange = self.exchange
        here = [one for one in self._offers if one.subject == subject and not one.is_retired]
        if here:
            here[0].replace(service, version=options.pop("version", None))
            if options:
                raise UsageError(f"{', '.join(options)} cannot be changed by replacing")
            offered = here[0]
        else:
            offered = self.serve(subject, service, **options)
        exchange.ask_to_retire(subject)
        return offered

    @open_files_needed()
    def service(self, subject: str, **options: Any) -> ServiceClient:
        """See `Bus.service`."""
        from infobus.services import ServiceClient
        from infobus.services.client import CALL_OPTIONS
        from infobus.services.service import check_options

        is_async = options.pop("is_async", False)
        check_options("service", options, CALL_OPTIONS)
        return ServiceClient(
            self.exchange, subject, is_async=is_async, patience=self._patience, **options
        )

    @open_files_needed()
    def who_is_out_there(
        self, pattern: str, timeout_s: float | None, role: str | None, where: str
    ) -> list[Found]:
        """See `Bus.who_is_out_there`."""
        from infobus.services import Found

        exchange = self.exchange
        check_pattern(pattern)
        timeout_s = self._patience.discovery_s if timeout_s is None else timeout_s
        found = exchange.ask(pattern, role or "", where, timeout_s)
        return [Found.of(one.node, one.presence) for one in found]

    @open_files_needed()
    def watch(self, pattern: str, role: str | None) -> Watch:
        """See `Bus.watch`."""
        from infobus.services import Watch

        exchange = self.exchange
        check_pattern(pattern)
        return Watch(exchange, pattern, role or "")

    @open_files_needed()
    def i_am(self, subject: str, role: str, info: Mapping[str, Any]) -> IAmHere:
        """See `Bus.i_am`."""
        from infobus.services.discovery import IAmHere

        exchange = self.exchange
        check_publishable(subject)
        return IAmHere(exchange, subject, role, info)

    @open_files_needed()
    def offer_sessions(
        self,
        bus: Bus,
        subject: str,
        converse: Callable[[Session], object],
        qos: QoS | None,
        options: dict[str, Any],
    ) -> Offered:
        """See `Bus.offer_sessions`."""
        from infobus.services.sessions import Conversations, QoS, SessionSupplier

        told, offered, exchange = cast("SessionBus", bus), qos or QoS(), self.exchange
        with self._beginning:
            held = self._conversations = self._conversations or Conversations()
        supplier = SessionSupplier(told, exchange, converse, offered, self._check_qos, held)
        return self.serve(subject, supplier, **options)

    @open_files_needed()
    def open_session(
        self,
        bus: Bus,
        subject: str,
        choose: Callable[[list[Found]], Found],
        qos: QoS | None,
        timeout_s: float | None,
    ) -> Session:
        """See `Bus.open_session`."""
        from infobus.services.sessions import QoS, open_session

        timeout_s = self._patience.call_s if timeout_s is None else timeout_s
        client = self.service(subject, timeout_s=timeout_s)
        told, wanted = cast("SessionBus", bus), qos or QoS()
        return open_session(told, self.exchange, client, choose, wanted, timeout_s, self._check_qos)

    def _check_qos(self, qos: QoS) -> None:
        """Raise `UsageError` if events of this quality could not be published."""
        self._wish(priority=qos.priority, max_age=qos.max_age)

    def close(self, timeout_s: float) -> None:
        """Retire all services, and let what runs finish, within a time."""
        if self._port is None:
            return
        deadline_s = time.monotonic() + timeout_s
        for offered in self._offers:
            offered.asked_to_retire()
        if self._conversations is not None:
            self._conversations.hear_no_more()
        is_over = True
        for offered in self._offers:
            if not offered.wait_retired(max(0.0, deadline_s - time.monotonic())):
                log.warning("closing while %r still has calls", offered)
                is_over = False
        if self._conversations is not None:
            for name in self._conversations.wait_silent(max(0.0, deadline_s - time.monotonic())):
                log.warning("closing while the session %s still goes on", name)
                is_over = False
        if self._offers and is_over and time.monotonic() < deadline_s:
            self._wait_until_known()
        self._port.close()

    def retire_what_is_not_allowed(self) -> None:
        """The policy has changed: serve nothing that this node may not serve any more."""
        guard = self._runtime.guard
        for offered in self._offers:
            if guard is not None and not guard.own.may("serve", offered.subject).is_allowed:
                offered.asked_to_retire()

    def abandon(self, why: BusClosed) -> None:
        """End in a forked child."""
        self._beginning = threading.Lock()
        if self._port is not None:
            self._port.exchange.abandon(why)

    def _begun(self) -> Serving:
        with self._beginning:
            self._lifetime.check()
            if self._port is None:
                from infobus.bus.service_port import Serving  # late: most programs need none of it

                folder = replies_folder(self._home, self._bus_name)
                self._port = Serving(self._runtime, folder, test=self._test)
            return self._port

    def _begin_unless_closed(self) -> None:
        if self._lifetime.over is None:
            self._begun()

    def _wait_until_known(self) -> None:
        """Refuse calls until everyone knows that nothing is served here any more.

        Who answers a question has heard what was said before it. Calls that were made before
        that are on their way, and get here a moment later at the most.
        """
        self._begun().exchange.ask(">", "nobody", "", self._patience.discovery_s)
        self._runtime.wait_until(lambda: False, _LINGER_S)
