"""Where operations run: on threads of their own, or, if they are `async`, on one event loop.

Nothing of a service runs on the engine's threads, and a slow operation delays only itself.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from infobus.errors import BadCall, BadFrame, BadValue, BusError
from infobus.headers import decode as decode_headers
from infobus.objects import codec
from infobus.objects.data import bad_value
from infobus.objects.kinds import ANY, Misfit
from infobus.protocols.frames import invocation as wire
from infobus.protocols.invocation.offers import Id
from infobus.services.arguments import PLAIN, read, write
from infobus.services.exchange import Exchange
from infobus.services.failures import write_error, write_raised
from infobus.services.interface import Interface, ServiceOperation
from infobus.services.service import CURRENT, CurrentCall, method_of
from infobus.services.threads import Loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

log = logging.getLogger("infobus")

_CALLERS_COUNT_MAX = 10_000


class _Running(Struct, eq=False):
    """One call while it runs."""

    call: CurrentCall
    room: threading.Event | None = None  # of a stream
    task: Any = None  # an `asyncio.Task`
    async_room: Any = None  # an `asyncio.Event`


class Host:
    """Runs the calls of one service object, which may be replaced while it does."""

    def __init__(self, exchange: Exchange, loop: Loop) -> None:
        self._exchange = exchange
        self._loop = loop
        self._running: dict[Id, _Running] = {}
        self._told: dict[str, set[int]] = {}  # caller -> types it has the descriptors of
        self._methods: dict[str, tuple[ServiceOperation, Callable[..., Any], bool]] = {}

    def serve(self, service: object, interface: Interface) -> None:
        """Serve this object from now on; what runs is finished by the one before."""
        methods = {}
        for operation in interface.operations:
            method = method_of(service, operation.name)
            is_async = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
            methods[operation.name] = (operation, method, is_async)
        self._methods = methods

    def is_idempotent(self, operation: str) -> bool:
        """Whether an operation may run twice."""
        found = self._methods.get(operation)
        return found is not None and found[0].is_idempotent

    def is_async(self, operation: str) -> bool:
        """Whether an operation runs on the event loop."""
        found = self._methods.get(operation)
        return found is not None and found[2]

    def begin(self, id: Id, call: wire.Call) -> Callable[[], None] | None:
        """Run a call; does not wait, but may return what is left for a thread to do."""
        found = self._methods.get(call.operation)
        if found is None:
            signatures = tuple(operation.signature for operation, _, _ in self._methods.values())
            text = f"there is no operation {call.operation!r}; there are {', '.join(signatures)}"
            return lambda: self._refuse(id, call, BadCall(text, signatures=signatures))
        operation, method, is_async = found
        name = call.once or f"{id[0]}/{call.lot}"
        current = CurrentCall(name, id[0], call.operation)
        if (principal_of := self._exchange.principal_of) is not None:
            current.principal = principal_of(id[0])
        if call.headers:
            try:
                current.headers = decode_headers(call.headers)
            except BadFrame as error:
                return partial(self._refuse, id, call, error)
        running = self._running[id] = _Running(current)
        if operation.is_stream:
            running.room = threading.Event()
        if is_async:
            loop = self._loop.get()
            loop.call_soon_threadsafe(self._begin_async, loop, id, call, operation, method, running)
            return None
        return partial(self._run, id, call, operation, method, running)

    def stop(self, id: Id) -> None:
        """Nobody waits for a call any more."""
        running = self._running.get(id)
        if running is not None:
            running.call.stop()
            self.go_on(id)
            task = running.task
            if task is not None:
                self._loop.get().call_soon_threadsafe(task.cancel)

    def go_on(self, id: Id) -> None:
        """The caller of a stream has room for more items."""
        running = self._running.get(id)
        if running is not None and running.room is not None:
            running.room.set()
            if running.async_room is not None:
                self._loop.get().call_soon_threadsafe(running.async_room.set)

    # On a thread.

    def _run(
        self,
        id: Id,
        call: wire.Call,
        operation: ServiceOperation,
        method: Callable[..., Any],
        running: _Running,
    ) -> None:
        token = CURRENT.set(running.call)
        try:
            try:
                arguments = operation.checked(read(call.arguments))
            except (BadCall, BadFrame) as error:  # its own, not the operation's
                self._refuse(id, call, error)
                return
            result = method(**arguments)
            if result.__class__ not in PLAIN and inspect.isawaitable(result):
                loop = self._loop.get()
                done = self._awaited(result, id, call, operation)
                loop.call_soon_threadsafe(self._keep_task, loop, id, done, running)
                return
            if operation.is_stream:
                self._pump(iter(result), id, call, operation, running)
                result = None
            self._return(id, call, operation, result)
        except BaseException as error:
            self._fail(id, call, error)
        finally:
            CURRENT.reset(token)

    def _pump(
        self,
        items: Iterator[Any],
        id: Id,
        call: wire.Call,
        operation: ServiceOperation,
        running: _Running,
    ) -> None:
        room = running.room
        assert room is not None
        for item in items:
            room.clear()
            if not self._produce(id, call, operation, item):
                room.wait()
            if running.call.is_cancelled:
                close = getattr(items, "close", None)
                if close is not None:
                    close()
                return

    # On the event loop.

    def _begin_async(
        self,
        loop: AbstractEventLoop,
        id: Id,
        call: wire.Call,
        operation: ServiceOperation,
        method: Callable[..., Any],
        running: _Running,
    ) -> None:
        token = CURRENT.set(running.call)
        try:
            try:
                arguments = operation.checked(read(call.arguments))
            except (BadCall, BadFrame) as error:  # its own, not the operation's
                self._refuse(id, call, error)
                return
            result = method(**arguments)
            if operation.is_stream:
                done = self._pump_async(aiter(result), id, call, operation, running)
            else:
                done = self._awaited(result, id, call, operation)
            self._keep_task(loop, id, done, running)
        except BaseException as error:
            self._fail(id, call, error)
        finally:
            CURRENT.reset(token)

    def _keep_task(self, loop: AbstractEventLoop, id: Id, done: Any, running: _Running) -> None:
        running.task = loop.create_task(done)
        if running.call.is_cancelled:
            running.task.cancel()

    async def _awaited(
        self, result: Awaitable[Any], id: Id, call: wire.Call, operation: ServiceOperation
    ) -> None:
        try:
            self._return(id, call, operation, await result)
        except GeneratorExit:  # the loop has ended
            raise
        except BaseException as error:  # being cancelled is an answer, too
            self._fail(id, call, error)

    async def _pump_async(
        self,
        items: AsyncIterator[Any],
        id: Id,
        call: wire.Call,
        operation: ServiceOperation,
        running: _Running,
    ) -> None:
        import asyncio

        running.async_room = asyncio.Event()
        try:
            async for item in items:
                running.async_room.clear()
                if not self._produce(id, call, operation, item):
                    await running.async_room.wait()
            self._return(id, call, operation, None)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(id, call, error)

    # Either way.

    def _produce(self, id: Id, call: wire.Call, operation: ServiceOperation, item: Any) -> bool:
        body, types = _encoded(operation, item)
        return self._exchange.produced(id, body, self._descriptors(id[0], types) if types else [])

    def _return(self, id: Id, call: wire.Call, operation: ServiceOperation, result: Any) -> None:
        if operation.is_stream:
            answer = wire.Reply("-", id[1], b"\x80")
        else:
            body, types = _encoded(operation, result)
            answer = wire.Reply("-", id[1], body)
            if types:
                answer.descriptors = self._descriptors_for(call, types)
        self._finish(id, call, answer)

    def _refuse(self, id: Id, call: wire.Call, error: BusError) -> None:
        """The caller has made a mistake."""
        body = write_error(error, with_traceback=self._exchange.node.test)
        self._finish(id, call, wire.Failed("-", id[1], body))

    def _fail(self, id: Id, call: wire.Call, error: BaseException) -> None:
        """The operation has raised something: its caller may not say so to anyone."""
        if not _is_cancelled(error):
            text = "operation %s, called by %s, raised %s"
            log.warning(text, call.operation, id[0], type(error).__name__, exc_info=error)
        body, types = write_raised(error, with_traceback=self._exchange.node.test)
        answer = wire.Failed("-", id[1], body)
        if types:
            answer.descriptors = self._descriptors_for(call, types)
        self._finish(id, call, answer)

    def _finish(self, id: Id, call: wire.Call, answer: wire.Reply | wire.Failed) -> None:
        self._running.pop(id, None)
        if call.once:
            self._keep(call, answer)
        self._exchange.finished(id, answer)

    def _keep(self, call: wire.Call, answer: wire.Reply | wire.Failed) -> None:
        """Put the answer of a call that must run once on disk before anyone hears of it."""
        from infobus.services.exactly_once import written

        store = self._exchange.node.reply_store()
        try:
            if store is not None:
                store.keep(call.once, written(answer))
        except BusError as error:
            log.error("the reply to call %s cannot be kept: %s", call.once, error)

    def _descriptors_for(self, call: wire.Call, types: tuple[int, ...]) -> list[bytes]:
        """The descriptors to send with an answer: all of them if others may get it, too."""
        return codec.descriptors(types) if call.once else self._descriptors(call.sender, types)

    def _descriptors(self, caller: str, types: tuple[int, ...]) -> list[bytes]:
        """The descriptors that a caller lacks."""
        if len(self._told) > _CALLERS_COUNT_MAX:
            self._told.clear()
        told = self._told.setdefault(caller, set())
        new = [type_ for type_ in types if type_ not in told]
        told.update(new)
        return codec.descriptors(new) if new else []


def _encoded(operation: ServiceOperation, result: Any) -> tuple[bytes, tuple[int, ...]]:
    kind = operation.result
    if kind is not ANY and result.__class__ is not kind.exact:
        try:
            result = kind.check(result)
        except Misfit as misfit:
            raise bad_value(misfit, f"the result of {operation.name}") from None
    try:
        return write({"value": result})
    except BadValue as error:
        raise BadValue(f"the result of {operation.name} cannot be sent: {error}") from None


def _is_cancelled(error: BaseException) -> bool:
    import asyncio

    return isinstance(error, asyncio.CancelledError)
