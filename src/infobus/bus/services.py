"""What a `Bus` is to those who serve, find and call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from infobus.bus.folders import replies_folder
from infobus.bus.runtime.runtime import Hub
from infobus.errors import BusClosed

if TYPE_CHECKING:
    from pathlib import Path

    from infobus.bus.service_port import Serving
    from infobus.services import Found, Offered, ServiceClient, Watch
    from infobus.services.presence import IAmHere
    from infobus.services.sessions import Bus, QoS, Session


class ServiceMethods:
    """The methods of `Bus` that concern services; what stands behind them is begun when needed."""

    name: str
    home: Path
    test: bool
    _hub: Hub
    _closed: BusClosed | None

    def _prepare_services(self) -> None:
        self._services: Serving | None = None
        self._beginning_services = threading.Lock()
        self._hub.on_service = self._on_service_frame  # every node answers who is out there

    def serve(self, subject: str, service: object, **options: Any) -> Offered:
        """Let everyone on the bus call the operations of `service`, an `infobus.Service`.

        Returning means that it is served: calls that wait for such a server come at once.

        Args:
            subject: What it is found by, such as `svc.keywords`.
            service: The object; its public methods that are fully annotated can be called.
            version: What it says about its version, for people and policies.
            tags: What else it says.
            info: A map of more such values.
            concurrency: How many calls may run at a time (64).
            queue_count_max: How many more may wait (100,000); the rest go to other servers.
            rule: How the servers of a subject share the calls among themselves: `elected`, each
                call has its server by lot; `balanced`, the least loaded has it; `primary`, the
                one of the highest `rank` (else the oldest) has all, and others stand by. Without
                a rule the callers choose.
            rank: See `rule`.

        Raises:
            UsageError: `service` has no operation, or an option is wrong.
        """
        return self._serving().serve(subject, service, **options)

    def replace(self, subject: str, service: object, **options: Any) -> Offered:
        """Take over a subject, while calls are made, so that none of them fails.

        Calls that run are finished by the object that began them, here or at another node; all
        others go to `service`. Every other server of the subject retires. The options are those
        of `serve`; if this node serves the subject already, only `version` is allowed.
        """
        return self._serving().replace(subject, service, **options)

    def service(self, subject: str, **options: Any) -> ServiceClient:
        """A service by its subject; its operations are the methods of what is returned.

        Nothing is sent before the first call, which also waits, within its time, for a server
        to appear.

        Args:
            subject: What it is found by.
            policy: Which of several servers is called: the `first` one that answered, the
                `least_loaded`, `all` (the result is a list of `Answer`), or a function that gets
                a list of `Found` and returns one, or several of them, best first.
            timeout_s: How long each call may take, finding a server included (10 s). Of a stream,
                how long each item may take.
            exactly_once: The call has an id under which the servers keep its reply, until this
                node has it; so it can be tried again, also after a crash, and still runs once.
                Give the id of an earlier call (`CallMayHaveRun.call_id`) to try that one again.
            idempotent: The operations may run twice, so that a call may go to another server when
                its server dies. Services may declare that themselves (`infobus.idempotent`).
        """
        return self._serving().service(subject, **options)

    def who_is_out_there(
        self,
        pattern: str,
        timeout_s: float = 1.0,
        *,
        role: str | None = "server",
        where: str = "",
    ) -> list[Found]:
        """Ask who serves subjects that `pattern` matches, or is there in another role.

        Returns when every node that can be seen has answered, normally within milliseconds, and
        at the latest after `timeout_s`.

        Args:
            pattern: Of subjects; `>` asks for everyone.
            timeout_s: How long to wait for those who do not answer.
            role: `server`; `client` finds nodes whose calls wait for a server; None asks for all.
            where: A filter over what participants say of themselves, such as `'load < 5 &&
                version == "2"'`; it is decided by those who are asked.
        """
        return self._serving().who_is_out_there(pattern, timeout_s, role, where)

    def watch(self, pattern: str, *, role: str | None = "server") -> Watch:
        """A live feed of who arrives, changes and departs; it begins with those who are there."""
        return self._serving().watch(pattern, role)

    def i_am(self, subject: str, role: str, **info: Any) -> IAmHere:
        """Be found by `who_is_out_there` under `subject`, in a role of your own choice."""
        return self._serving().i_am(subject, role, info)

    def offer_sessions(
        self,
        subject: str,
        converse: Callable[[Session], object],
        *,
        qos: QoS | None = None,
        **options: Any,
    ) -> Offered:
        """Be a supplier of sessions: private, two-way conversations with one consumer each.

        `converse` is called with each `Session`, on a thread of its own; it ends when that
        returns. `qos` limits what is agreed to. The options are those of `serve`.
        """
        from infobus.services.sessions import QoS, SessionSupplier

        serving, bus = self._serving(), cast("Bus", self)
        supplier = SessionSupplier(bus, serving.exchange, converse, qos or QoS())
        return serving.serve(subject, supplier, **options)

    def open_session(
        self,
        subject: str,
        *,
        qos: QoS | None = None,
        choose: Callable[[list[Found]], Found] = lambda found: found[0],
        timeout_s: float = 10.0,
    ) -> Session:
        """Begin a session with a supplier, at a quality of service that both agree to.

        Args:
            subject: What suppliers are found by.
            qos: What is wanted; `Session.qos` is what was agreed.
            choose: Picks one of those who answered; else it is the first.
            timeout_s: How long to wait for a supplier.

        Raises:
            NoServer: Nobody supplies it.
        """
        from infobus.services.sessions import QoS, open_session

        serving, bus = self._serving(), cast("Bus", self)
        client = serving.service(subject, timeout_s=timeout_s)
        return open_session(bus, serving.exchange, client, choose, qos or QoS(), timeout_s)

    def _serving(self) -> Serving:
        """What serves, finds and calls; begun when it is first needed."""
        with self._beginning_services:
            if self._closed is not None:
                raise self._closed
            if self._services is None:
                from infobus.bus.service_port import Serving  # late: most programs need none of it

                folder = replies_folder(self.home, self.name)
                self._services = Serving(self._hub, folder, test=self.test)
            return self._services

    def _on_service_frame(self, payload: bytes) -> None:
        """The first frame about services: whatever answers it also takes all that follow."""
        if self._closed is None:
            self._serving()
            self._hub.on_service(payload)

    def _close_services(self, timeout_s: float) -> None:
        if self._services is not None:
            self._services.close(timeout_s)

    def _abandon_services(self, why: BusClosed) -> None:
        self._beginning_services = threading.Lock()
        if self._services is not None:
            self._services.abandon(why)
