"""`bus.serve(...)`: an object under a subject, until it retires."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from infobus.bounds import DEFAULT_BOUNDS
from infobus.errors import UsageError
from infobus.objects import codec
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.caller import SERVER
from infobus.protocols.invocation.offers import Id, Offer
from infobus.protocols.invocation.rules import RULES, Rule
from infobus.services.client import hidden_by_client
from infobus.services.exactly_once import claim
from infobus.services.exchange import Exchange
from infobus.services.interface import Interface
from infobus.services.runner import Host
from infobus.services.service import interface_of
from infobus.services.threads import Loop
from infobus.subjects import check_publishable

log = logging.getLogger("infobus")

CONCURRENCY = 64
SERVE_OPTIONS = ("version", "tags", "info", "concurrency", "queue_count_max", "rule", "rank")


class Offered:
    """A service that this node offers. Made by `Bus.serve`; leaving its `with` block retires it.

    Attributes:
        subject: The subject it is found by.
        service: The object that is served now.
    """

    def __init__(
        self,
        exchange: Exchange,
        loop: Loop,
        subject: str,
        service: object,
        *,
        version: str = "",
        tags: Sequence[str] = (),
        info: Mapping[str, Any] | None = None,
        concurrency: int = CONCURRENCY,
        queue_count_max: int = DEFAULT_BOUNDS.calls_count_max,
        rule: Rule | None = None,
        rank: int = 0,
    ) -> None:
        check_publishable(subject)
        if concurrency < 1 or queue_count_max < 0:
            raise UsageError("concurrency must be at least 1, queue_count_max at least 0")
        if rule is not None and rule not in RULES:
            raise UsageError(f"rule {rule!r} is not known; choose one of {', '.join(RULES)}")
        self.subject = subject
        self.service = service
        self._interface = interface_of(service)
        self._tell_surprises()
        self._exchange = exchange
        self._host = Host(exchange, loop)
        self._host.serve(service, self._interface)
        self._said = {"version": version, "tags": list(tags), **(info or {})}
        self._retired = threading.Event()
        self._drained = threading.Event()
        store = exchange.node.reply_store()
        presence = Presence(
            1,
            0,
            subject,
            SERVER,
            time.time(),
            self._info(),
            self._interface.encode(),
            rule=rule or "",
            rank=rank,
            store="" if store is None else store.id,
        )
        if rule is not None:
            exchange.servers(subject, 0.0)  # servers that decide together must know each other
        self._presence = exchange.announce_offer(
            presence, lambda id: Offer(id, subject, concurrency, queue_count_max, rule or ""), self
        )

    @property
    def interface(self) -> Interface:
        """What it can be asked to do."""
        return self._interface

    @property
    def load(self) -> int:
        """Calls that run or wait now."""
        return self._exchange.server.load(self._presence.id)

    @property
    def is_retired(self) -> bool:
        """Whether new calls are refused."""
        return self._retired.is_set()

    def update(self, /, *, version: str | None = None, **info: Any) -> None:
        """Change what those who ask are told about it."""
        changes = {**info, **({} if version is None else {"version": version})}
        self._said = {**self._said, **changes}
        self._presence = replace(self._presence, info=self._info())
        self._exchange.change(self._presence)

    def replace(self, service: object, *, version: str | None = None) -> None:
        """Serve another object from now on. Calls that run are finished by the one before."""
        self._interface = interface_of(service)
        self._host.serve(service, self._interface)
        self.service = service
        self._tell_surprises()
        self._presence = replace(self._presence, interface=self._interface.encode())
        self.update(version=version)

    def retire(self, timeout_s: float = 10.0) -> bool:
        """Take no more calls, and wait for those that run; False if they do not end in time.

        Callers go to other servers with what has not begun here, and lose nothing.
        """
        self.asked_to_retire()
        return self._drained.wait(timeout_s)

    def wait_retired(self, timeout_s: float | None = None) -> bool:
        """Wait until it is retired and all its calls are finished; False if not in time."""
        return self._drained.wait(timeout_s)

    close = retire

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.retire()

    def __repr__(self) -> str:
        state = "retired" if self.is_retired else f"load {self.load}"
        return f"<{self._interface.name} under {self.subject!r}, {state}>"

    def _tell_surprises(self) -> None:
        """Say which methods callers will look for in vain."""
        name, hidden = self._interface.name, hidden_by_client(self._interface.operations.names)
        for why in self._interface.left_out:
            log.warning("a method of %s cannot be called over the bus: %s", name, why)
        if hidden:
            text = "operations of %s whose names clients use themselves: %s; call them as %s"
            log.warning(text, name, ", ".join(hidden), f"service[{hidden[0]!r}](...)")

    def _info(self) -> bytes:
        return codec.encode({name: value for name, value in self._said.items() if value})[1]

    # What the exchange calls.

    def run(self, id: Id, call: wire.Call) -> Callable[[], None] | None:
        """Begin a call; may return what is left for a thread to do."""
        if call.once:
            return lambda: self._claim(id, call)  # the disk may take its time
        return self._host.begin(id, call)

    def _claim(self, id: Id, call: wire.Call) -> None:
        is_idempotent = self._host.is_idempotent(call.operation)
        answer = claim(self._exchange.node, call, self.subject, is_idempotent=is_idempotent)
        if answer is not None:
            self._exchange.claimed(id, answer)
        elif (job := self._host.begin(id, call)) is not None:
            job()

    def is_async(self, operation: str) -> bool:
        """Whether an operation runs on the event loop of the node."""
        return self._host.is_async(operation)

    def stop(self, id: Id) -> None:
        """Nobody waits for a call any more."""
        self._host.stop(id)

    def go_on(self, id: Id) -> None:
        """The caller of a stream has room for more items."""
        self._host.go_on(id)

    def drained(self) -> None:
        """All calls are finished."""
        self._drained.set()

    def asked_to_retire(self) -> None:
        """Take no more calls."""
        self._retired.set()
        self._exchange.withdraw(self._presence.id)
        self._exchange.retire(self._presence.id)
