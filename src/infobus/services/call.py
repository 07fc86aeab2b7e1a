"""A call that was made: its result when it is there, or item after item."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from infobus.errors import (
    BadCall,
    BadFrame,
    BadValue,
    BusError,
    CallCancelled,
    CallError,
    CallMayHaveRun,
    NoServer,
    NotAllowed,
    UsageError,
)
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.effects import Bound, GivenUp
from infobus.protocols.invocation.rules import Key
from infobus.services.arguments import read, write
from infobus.services.discovery import Found
from infobus.services.exchange import Exchange
from infobus.services.failures import read_error
from infobus.services.interface import ServiceOperation, read_interface
from infobus.waiters import Mailbox

if TYPE_CHECKING:
    from infobus.services.client import RemoteOperation

_MISFITS_SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """What one of several servers has answered: `value`, or the `error` that it raised."""

    server: Found
    value: Any
    error: Exception | None = None


class PendingCall(Coroutine[Any, Any, Any]):
    """A call whose result may not be there yet; it can be waited for, awaited and cancelled.

    It is a coroutine to asyncio, so a task can be made of it. If it is a stream, `async for` goes
    over its items.
    """

    # What most calls never change is not written for each of them.
    server: Key | None = None
    """Who has answered."""
    _body: bytes | None = None
    _error: Exception | None = None
    _stream: Stream | None = None
    # Weak once it is handed out: a stream that nobody holds any more closes itself.
    _handed_out: ref[Stream] | None = None
    _misfits: Sequence[tuple[Presence, BusError | None]] = ()
    _is_done = False
    _steps: Generator[Any, None, Any] | None = None  # as a coroutine

    def __init__(
        self,
        exchange: Exchange,
        key: int,
        operation: RemoteOperation,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        once: str,
    ) -> None:
        self.key = key
        self.id = once
        self._exchange = exchange
        self._operation = operation
        self._args = args
        self._kwargs = kwargs
        self._callbacks: list[Callable[[PendingCall], object]] = []
        self._mail: Mailbox[None] = Mailbox()  # says that it is done, to all who wait

    @property
    def is_done(self) -> bool:
        """Whether `result` returns or raises at once."""
        return self._is_done

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the result; see `RemoteOperation.__call__` for what it raises.

        With `timeout_s`, `TimeoutError` says that it is not there yet; the call goes on.
        """
        if not self._is_done:
            # The call's own time is watched by the exchange; this is just in case.
            wait_s = self._operation.timeout_s + 5.0 if timeout_s is None else max(0.0, timeout_s)
            try:
                self._mail.put(self._mail.get(timeout=wait_s))
            except Empty:
                if timeout_s is not None:
                    what = f"{self._operation.name} has not answered in {timeout_s} s"
                    raise TimeoutError(what) from None
                self._exchange.cancel(self.key, "late")
        if self._body is not None:
            return read(self._body).get("value")
        if self._error is not None:
            raise self._error
        stream = self._its_stream()
        assert stream is not None, "the stream was closed"
        self._handed_out, self._stream = ref(stream), None
        return stream

    def cancel(self) -> None:
        """Give it up. Those who wait for it get `CallCancelled`; the server is told to stop."""
        self._exchange.cancel(self.key)

    def add_done_callback(self, callback: Callable[[PendingCall], object]) -> None:
        """Have `callback` called with this when it is done; by any thread, so it must be quick."""
        self._callbacks.append(callback)
        if self._is_done and callback in self._callbacks:
            self._run_callbacks()

    def __await__(self) -> Generator[Any, None, Any]:
        from asyncio import CancelledError

        while not self._is_done:
            try:
                yield from self._mail.ready().__await__()
            except CancelledError:
                self.cancel()
                raise
        return self.result(0)

    async def __aiter__(self) -> AsyncIterator[Any]:
        stream = await self
        if not isinstance(stream, Stream):
            raise UsageError(f"{self._operation.name} is no stream: await it instead")
        with stream:
            async for item in stream:
                yield item

    # What a task calls.

    def send(self, value: Any) -> Any:
        """Go on as a coroutine."""
        return self._its_steps().send(value)

    def throw(self, *error: Any) -> Any:
        """Go on as a coroutine, with an exception."""
        return self._its_steps().throw(*error)

    def close(self) -> None:
        """End as a coroutine; the call itself goes on."""
        self._its_steps().close()

    def _its_steps(self) -> Generator[Any, None, Any]:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps

    # What the exchange and the protocol call.

    def bind(self, presence: Presence) -> Bound | None:
        """The arguments as a server takes them; None if it does not."""
        try:
            operation = self._operation.at(presence)
            arguments = operation.bind(self._args, self._kwargs)
            try:
                payload, types = write(arguments)
            except BadValue as error:
                raise _unsendable(operation, arguments, error) from None
        except KeyError:
            self._noted(presence, None)
            return None
        except (BusError, BadFrame) as error:
            self._noted(presence, error)
            return None
        if operation.is_stream:
            self._becomes_stream()
        return Bound(payload, types, operation.is_idempotent, operation.is_stream)

    def returned(self, body: bytes, server: Key) -> None:
        """It has its result."""
        self.server = server
        if self._stream is None and self._handed_out is None:
            self._body = body
            self._done()
        elif (stream := self._its_stream()) is not None:
            stream.end(None)

    def raised(self, error: bytes, server: Key) -> None:
        """It has raised an exception."""
        self.server = server
        self._fail(read_error(error))

    def yielded(self, bodies: list[bytes]) -> None:
        """It has its next items."""
        if (stream := self._its_stream()) is not None:
            stream.add(bodies)

    def given_up(self, given_up: GivenUp) -> None:
        """It has no answer."""
        self._fail(self._explained(given_up))

    def ended(self, error: Exception) -> None:
        """The bus was closed."""
        self._fail(error)

    def _noted(self, presence: Presence, error: BusError | None) -> None:
        """A server does not take the call."""
        is_new = all(presence.interface != known.interface for known, _ in self._misfits)
        if is_new and len(self._misfits) < _MISFITS_SHOWN:
            self._misfits = [*self._misfits, (presence, error)]

    def _becomes_stream(self) -> None:
        """The operation is a stream, which can be iterated from now on."""
        if self._its_stream() is None:
            self._stream = Stream(self._exchange, self, self._operation.timeout_s)
            self._done()

    def _fail(self, error: Exception) -> None:
        if (stream := self._its_stream()) is not None:
            stream.end(error)
        else:
            self._error = error
            self._done()

    def _its_stream(self) -> Stream | None:
        return self._handed_out() if self._handed_out is not None else self._stream

    def _done(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._mail.put(None)
            if self._callbacks:
                self._run_callbacks()

    def _run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.pop()(self)

    def _explained(self, given_up: GivenUp) -> Exception:
        subject, name = self._operation.subject, self._operation.name
        if given_up.why == "misfit" or (self._misfits and given_up.server is None):
            return self._misfit()
        if given_up.why == "denied":
            return NotAllowed(
                given_up.detail,
                action="call",
                subject=f"{subject}/{name}",
                principal=given_up.detail.partition(" ")[0],
                policy=given_up.policy,
            )
        if given_up.why == "cancelled":
            text = f"{name} of {subject!r} was cancelled"
            return CallCancelled(text, subject=subject, operation=name)
        if given_up.server is None:
            if given_up.detail == "died":
                what = "its server has died, and no other took over"
                return self._may_have_run(what, store=given_up.store)
            return no_server(subject, name, self._operation.timeout_s, given_up.detail)
        node = given_up.server[0]
        if given_up.why == "died":
            return self._may_have_run(f"its server {node} has died", node, given_up.store)
        what = f"no reply from {node} in {self._operation.timeout_s} s"
        return self._may_have_run(what, node, given_up.store)

    def _may_have_run(self, what: str, node: str = "", store: str = "") -> CallError:
        subject, name = self._operation.subject, self._operation.name
        call_id = f"{self.id}@{store}" if store else ""
        advice = f"; call again with exactly_once={call_id!r}" if call_id else ""
        return CallMayHaveRun(
            f"{name} of {subject!r}: {what}; the call may have run{advice}",
            subject=subject,
            operation=name,
            node=node,
            call_id=call_id,
        )

    def _misfit(self) -> Exception:
        """Why no server takes the call."""
        for _, error in self._misfits:
            if error is not None and (len(self._misfits) == 1 or not isinstance(error, BadCall)):
                return error
        signatures = tuple(
            operation.signature
            for presence, _ in self._misfits
            for operation in read_interface(presence.interface).operations
            if len(self._misfits) == 1 or operation.name == self._operation.name
        )
        subject, name = self._operation.subject, self._operation.name
        if len(self._misfits) == 1:
            text = f"{subject!r} has no operation {name!r}; it has {', '.join(signatures)}"
        else:
            shown = " and ".join(signatures) or "no such operation"
            text = f"no server of {subject!r} takes this call of {name}; they have {shown}"
        return BadCall(text, signatures=signatures)


def _unsendable(
    operation: ServiceOperation, arguments: dict[str, Any], error: BadValue
) -> BadValue:
    """The error that names the argument that cannot be sent."""
    for name, value in arguments.items():
        try:
            write({name: value})
        except BadValue as own:
            problem = str(own).removeprefix(f"dict[{name!r}]")
            problem = problem if problem[:1] in (":", "[", ".") else f": {problem}"
            text = f"{operation.name}: {name}{problem}; it is {operation.signature}"
            return BadValue(text, path=own.path)
    return BadValue(f"{operation.name}: all arguments together: {error}", path=error.path)


def no_server(subject: str, operation: str, timeout_s: float, detail: str) -> NoServer:
    """The error that says that nobody has taken a call."""
    if detail == "busy":
        text = f"all servers of {subject!r} were busy for {timeout_s} s; {operation} has not run"
    else:
        text = f"nobody served {subject!r} within {timeout_s} s"
        text += f"; {operation} has not run" * bool(operation)
    return NoServer(text, subject=subject, operation=operation)


class Stream:
    """The items of a stream as they come; iterate it, also with `async for`.

    No more than 64 items are under way or wait here: then the operation is held. `close` stops it.
    """

    def __init__(self, exchange: Exchange, call: PendingCall, timeout_s: float) -> None:
        self._exchange = exchange
        self._call = call
        self._timeout_s = timeout_s
        self._items: Mailbox[bytes | None] = Mailbox()  # None: there are no more
        self._lock = Lock()  # nothing is added after the end
        self._taken = 0
        self._error: Exception | None = None
        self._is_ended = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        try:
            item = self._items.get(timeout=self._timeout_s)
        except Empty:
            item = self._late()
        if item is None:
            self._finish()
            raise StopIteration
        return self._value(item)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        from asyncio import timeout

        try:
            async with timeout(self._timeout_s):
                item = await self._items.take()
        except TimeoutError:
            item = self._late()
        if item is None:
            self._finish()
            raise StopAsyncIteration
        return self._value(item)

    def close(self) -> None:
        """Stop it: the operation ends at the server, and so does the iteration."""
        if not self._is_ended:
            self._is_ended = True
            with suppress(Empty):
                while True:
                    self._items.get_nowait()
            self._items.put(None)
            self._exchange.cancel(self._call.key)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _late(self) -> bytes | None:
        """Nothing came in time: give the stream up, unless something has come just now."""
        self._exchange.cancel(self._call.key, "late")
        self.end(None)  # if that has not told it
        return self._items.get()

    def _finish(self) -> None:
        """Raise the error at the end, once."""
        self._items.put(None)  # for others that iterate
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _value(self, item: bytes) -> Any:
        """The value of an item that was taken, which makes room for more."""
        self._taken += 1
        if not self._is_ended:
            self._exchange.taken(self._call.key, self._taken)
        return read(item).get("value")

    def add(self, bodies: list[bytes]) -> None:
        """There are more items."""
        with self._lock:
            if not self._is_ended:
                for body in bodies:
                    self._items.put(body)

    def end(self, error: Exception | None) -> None:
        """There are no more items."""
        with self._lock:
            if not self._is_ended:
                self._error = error
                self._is_ended = True
                self._items.put(None)
