"""`bus.service(...)`: calls that look like method calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

from infobus.errors import NoServer, UsageError
from infobus.headers import Headers, HeaderValue
from infobus.headers import decode as decode_headers
from infobus.headers import encode as encode_headers
from infobus.objects.members import Members
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.caller import SERVER
from infobus.protocols.invocation.effects import Outgoing
from infobus.protocols.invocation.rules import Key
from infobus.services.call import Answer, PendingCall, Stream, no_server
from infobus.services.discovery import Found
from infobus.services.exchange import Exchange
from infobus.services.interface import Interface, ServiceOperation, read_interface
from infobus.services.service import CURRENT, check_options
from infobus.subjects import check_subject

__all__ = [
    "Answer",
    "Choose",
    "PendingCall",
    "Policy",
    "RemoteOperation",
    "ServiceClient",
    "Stream",
]

TIMEOUT_S_MAX = 366 * 86_400.0

_HINT_FROM_S = 1.0
CALL_OPTIONS = ("policy", "timeout_s", "exactly_once", "idempotent", "headers")

Choose = Callable[[list[Found]], Found | Sequence[Found]]
Policy = Literal["first", "least_loaded", "all"] | Choose
_POLICIES = ("first", "least_loaded", "all")


class ServiceClient:
    """A service as its callers see it: its operations are methods.

    An operation whose name is taken by something else here is reached as `service["name"]`.
    With `bus.aio.service(...)` the methods return awaitables.

    Attributes:
        subject: The subject by which it is found.
    """

    def __init__(
        self,
        exchange: Exchange,
        subject: str,
        *,
        policy: Policy = "first",
        timeout_s: float | None = None,
        exactly_once: bool | str = False,
        idempotent: bool = False,
        headers: Mapping[str, HeaderValue] | None = None,
        is_async: bool = False,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        timeout_s = patience.call_s if timeout_s is None else timeout_s
        check_subject(subject)
        if not callable(policy) and policy not in _POLICIES:
            raise UsageError(
                f"policy {policy!r} is not known; choose {', '.join(_POLICIES)}, or a function"
            )
        if not 0 <= timeout_s <= TIMEOUT_S_MAX:
            raise UsageError(f"timeout_s must be 0 to {TIMEOUT_S_MAX:.0f} seconds, got {timeout_s}")
        self.subject = subject
        self._exchange = exchange
        self._options: dict[str, Any] = {
            "policy": policy,
            "timeout_s": timeout_s,
            "exactly_once": exactly_once,
            "idempotent": idempotent,
            "headers": decode_headers(encode_headers(headers)),
            "is_async": is_async,
            "patience": patience,
        }

    def options(self, **options: Any) -> ServiceClient:
        """The same service, called with other options: see `Bus.service`."""
        check_options("options", options, CALL_OPTIONS)
        return ServiceClient(self._exchange, self.subject, **{**self._options, **options})

    @property
    def operations(self) -> Members[ServiceOperation]:
        """What it can be asked to do, as the first server that answers says."""
        return self.interface.operations

    @property
    def interface(self) -> Interface:
        """The operations, with the name and the doc of the service."""
        found = self.servers(self._options["timeout_s"])
        if not found:
            raise no_server(self.subject, "", self._options["timeout_s"], "")
        return found[0].interface

    def servers(self, timeout_s: float | None = None) -> list[Found]:
        """Who serves it now; waits up to `timeout_s` for the first one to appear."""
        patience: Patience = self._options["patience"]
        timeout_s = patience.call_s if timeout_s is None else timeout_s
        answers_s = min(timeout_s, patience.answers_s)
        servers = self._exchange.servers(self.subject, answers_s, timeout_s)
        return [Found.of(key[0], presence) for key, presence in servers.items()]

    def __getattr__(self, name: str) -> RemoteOperation:
        if name.startswith("_"):
            raise AttributeError(name)
        operation = self[name]
        self.__dict__[name] = operation  # the next time it is simply there
        return operation

    def __getitem__(self, name: str) -> RemoteOperation:
        return RemoteOperation(self._exchange, self.subject, name, **self._options)

    def __repr__(self) -> str:
        return f"<service {self.subject!r}>"


def hidden_by_client(names: Iterable[str]) -> list[str]:
    """Which operations are not reached as methods, because a client has something of that name."""
    return [name for name in names if name == "subject" or hasattr(ServiceClient, name)]


class RemoteOperation:
    """One operation of a service; calling it calls the service."""

    def __init__(
        self,
        exchange: Exchange,
        subject: str,
        name: str,
        *,
        policy: Policy,
        timeout_s: float,
        exactly_once: bool | str,
        idempotent: bool,
        headers: Headers,
        is_async: bool,
        patience: Patience,
    ) -> None:
        self.subject = subject
        self.name = name
        self._exchange = exchange
        self._policy = policy
        self.timeout_s = timeout_s
        self._exactly_once = exactly_once
        self._idempotent = idempotent
        self._headers = encode_headers(headers)
        self._is_async = is_async
        self._patience = patience
        self._is_simple = policy in ("first", "least_loaded")
        self._last: tuple[bytes, ServiceOperation] | None = None  # as the last server has it

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it, and wait for the result; a stream is returned at once.

        Raises:
            BadCall: No server has this operation, or takes these arguments.
            NoServer: Nobody has taken the call within the time; it has not run.
            CallMayHaveRun: The server has died, or has not answered in time.
            RemoteError: The operation has raised something that is not known here. What is known
                is raised as it is.
        """
        if self._is_async:
            return self._awaited(args, kwargs)
        if CURRENT.get(None) is not None:
            self._check_blocking()
        if self._is_simple:
            pending = self._start(args, kwargs)
            try:
                return pending.result()
            except KeyboardInterrupt:
                pending.cancel()
                raise
            except NoServer as error:
                raise self._hinted(error) from None
        if self._policy == "all":
            return self._ask_all(args, kwargs)
        return self._start(args, kwargs, self._chosen()).result()

    def start(self, /, *args: Any, **kwargs: Any) -> PendingCall:
        """Call it without waiting for the result."""
        if self._policy == "all":
            raise UsageError("with policy='all' there are many results; call it without start")
        targets = None if self._is_simple else self._chosen()
        return self._start(args, kwargs, targets)

    def _start(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], targets: Sequence[Key] | None = None
    ) -> PendingCall:
        exchange = self._exchange
        once, store = "", ""
        if self._exactly_once:
            given = os.urandom(16).hex() if self._exactly_once is True else self._exactly_once
            once, _, store = given.partition("@")
        key = next(exchange.keys)
        pending = PendingCall(exchange, key, self, args, kwargs, once)
        call = Outgoing(
            key,
            self.subject,
            self.name,
            pending.bind,
            time.monotonic() + self.timeout_s,
            self._policy == "least_loaded",
            targets,
            self._idempotent,
            once,
            store,
            self._exactly_once is not True,
            self._headers,
        )
        exchange.call(call, pending)
        return pending

    def at(self, presence: Presence) -> ServiceOperation:
        """The operation as a server has it.

        Raises:
            KeyError: It has none of this name.
            BadFrame: It says nothing that can be read.
        """
        last = self._last
        if last is None or last[0] is not presence.interface:
            operation = read_interface(presence.interface).operations[self.name]
            last = self._last = presence.interface, operation
        return last[1]

    def _awaited(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._is_simple:
            return self._start(args, kwargs)
        import asyncio

        if self._policy == "all":
            return asyncio.to_thread(self._ask_all, args, kwargs)
        return asyncio.to_thread(lambda: self._start(args, kwargs, self._chosen()).result())

    def _check_blocking(self) -> None:
        """Refuse to wait on an event loop for an operation that needs this loop to run."""
        from asyncio import _get_running_loop

        if _get_running_loop() is not None and self._exchange.runs_async(self.subject, self.name):
            raise UsageError(
                f"{self.name} of {self.subject!r} runs on the event loop of this node, on which "
                "you wait for it: call it by bus.aio.service(...), and await the result"
            )

    def _hinted(self, error: NoServer) -> NoServer:
        """The same error, with the subject that may have been meant. Quick calls have no time."""
        if self.timeout_s < _HINT_FROM_S:
            return error
        found = self._exchange.ask(">", SERVER, "", self._patience.answers_s)
        served = {one.presence.subject for one in found}
        close = get_close_matches(self.subject, served, 1)
        if self.subject in served or not close:
            return error
        text = f"{error}; did you mean {close[0]!r}?"
        return NoServer(text, subject=self.subject, operation=self.name)

    def _chosen(self) -> list[Key]:
        """The servers that the application's own policy prefers, best first."""
        found = self._servers()
        if not found:
            raise no_server(self.subject, self.name, self.timeout_s, "")
        assert callable(self._policy)
        chosen = self._policy(found)
        several = list(chosen) if isinstance(chosen, Iterable) else []
        preferred = [chosen] if isinstance(chosen, Found) else several
        if not preferred or not all(isinstance(one, Found) for one in preferred):
            raise UsageError(f"the policy must return some of what it is given, got {chosen!r}")
        return [one.key for one in preferred]

    def _servers(self) -> list[Found]:
        service = ServiceClient(self._exchange, self.subject, patience=self._patience)
        return service.servers(self.timeout_s)

    def _ask_all(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Answer]:
        """Call every server; their answers, in the order of the servers."""
        found = self._servers()
        if not found:
            raise no_server(self.subject, self.name, self.timeout_s, "")
        pending = [(one, self._start(args, kwargs, [one.key])) for one in found]
        answers = []
        for one, call in pending:
            try:
                answers.append(Answer(one, call.result()))
            except Exception as error:
                answers.append(Answer(one, None, error))
        return answers

    def __repr__(self) -> str:
        return f"<operation {self.name} of {self.subject!r}>"
