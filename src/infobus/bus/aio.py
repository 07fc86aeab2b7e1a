"""Awaitable twins of the bus's methods that can wait."""

from __future__ import annotations

import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from queue import Empty
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from msgspec import Struct

from infobus.errors import BusClosed, BusError, UsageError

if TYPE_CHECKING:
    from asyncio import Task
    from typing import Unpack

    from infobus.bus.bus import Bus
    from infobus.bus.deliver.event import Event
    from infobus.bus.deliver.subscription import Subscription
    from infobus.bus.durable.options import DurableOptions, SubscribeOptions
    from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
    from infobus.bus.membership.primary import Primary
    from infobus.bus.membership.view import MembersView
    from infobus.bus.publish.publisher import Quality
    from infobus.bus.tags.tags import Tag, Tags
    from infobus.objects import Type
    from infobus.protocols.frames.tags import TagUser
    from infobus.services import Found, Offered, ServiceClient
    from infobus.services.sessions import Session
    from infobus.stores.sqlite.group_commit import GroupCommit


log = logging.getLogger("infobus")

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", "Subscription", "DurableSubscription", "Subscription | DurableSubscription")
_C = TypeVar(
    "_C", "Subscription", "DurableSubscription", "Subscription | DurableSubscription", "Bus"
)


async def _in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    import asyncio  # takes half as long to import as the rest of the package

    return await asyncio.to_thread(function, *args, **kwargs)


async def _subscription(function: Callable[..., _C], *args: Any, **options: Any) -> _C:
    made: list[_C] = []
    is_wanted = True

    def subscribe() -> _C:
        made.append(function(*args, **options))
        if not is_wanted:
            made[0].close()
        return made[0]

    try:
        return await _in_thread(subscribe)
    except BaseException:
        # Cancelled. The thread goes on, but nobody would take anything out of what it makes.
        is_wanted = False
        for subscription in made:
            subscription.close()
        raise


class AioConnection:
    """What `infobus.aio.connect` returns: await it, or use it by `async with`."""

    def __init__(self, join: Callable[[], Bus]) -> None:
        self._join = join
        self._bus: AioBus | None = None

    def __await__(self) -> Generator[Any, Any, AioBus]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AioBus:
        bus = await _subscription(self._join)
        self._bus = bus.aio
        return self._bus

    async def __aexit__(self, *exception: object) -> None:
        if self._bus is not None:
            await self._bus.close()


def connect(bus: str | None = None, **settings: Any) -> AioConnection:
    """Join a bus from an event loop: `async with infobus.aio.connect() as bus: ...`.

    The settings are those of `infobus.connect`. You get what `Bus.aio` is; its `sync` is the bus.
    """
    from infobus.bus.connect import connect

    return AioConnection(partial(connect, bus, **settings))


class _Kept(Struct):
    """An event that a task wants kept, and why it was not."""

    event: tuple[str, Any]
    options: dict[str, Any]
    error: Exception | None = None


def _keep(bus: Bus, works: Sequence[_Kept]) -> None:
    """Publish guaranteed events of several tasks, those with the same options together."""
    for options, alike in groupby(works, attrgetter("options")):
        batch = [*alike]
        try:
            bus.publish_many([one.event for one in batch], guaranteed=True, **options)
        except UsageError as error:
            if len(batch) == 1:
                batch[0].error = error
            else:
                for one in batch:  # nothing was kept, so each is told apart
                    _keep(bus, [one])
        except Exception as error:
            for one in batch:
                one.error = error


class AioBus:
    """`bus.aio`: the same methods, for use in an event loop. The promises are the same."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._commits: GroupCommit[_Kept] | None = None
        self._handlers: dict[Task[None], Subscription | DurableSubscription] = {}
        self._is_closing = False

    @property
    def sync(self) -> Bus:
        """The same node, for threads."""
        return self._bus

    async def __aenter__(self) -> AioBus:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def publish(
        self,
        subject: str,
        obj: Any,
        *,
        quality: Quality = "reliable",
        guaranteed: bool = False,
        **options: Any,
    ) -> None:
        """Publish without ever blocking the event loop; see `Bus.publish`.

        Guaranteed events that several tasks await at the same time share one sync of the disk.
        """
        if guaranteed:
            kept = _Kept((subject, obj), options)
            await (self._commits or self._load_commits()).submit(kept)
            if kept.error is not None:
                raise kept.error
        elif options or not self._bus.publish_nowait(subject, obj, quality):
            await _in_thread(self._bus.publish, subject, obj, quality=quality, **options)

    async def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        quality: Quality = "reliable",
        **options: Any,
    ) -> None:
        """See `Bus.publish_many`."""
        await _in_thread(self._bus.publish_many, events, quality=quality, **options)

    def _load_commits(self) -> GroupCommit[_Kept]:
        from infobus.stores.sqlite.group_commit import GroupCommit  # late: most keep nothing

        self._commits = GroupCommit(f"the bus {self._bus.name!r}", partial(_keep, self._bus))
        return self._commits

    @overload
    async def subscribe(
        self,
        pattern: str,
        callback: Callable[[DurableEvent], object] | None = None,
        *,
        durable: str,
        **options: Unpack[DurableOptions],
    ) -> DurableSubscription: ...

    @overload
    async def subscribe(
        self,
        pattern: str,
        callback: Callable[[Event], object] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription: ...

    async def subscribe(
        self, pattern: str, callback: Callable[[Any], object] | None = None, **options: Any
    ) -> Subscription | DurableSubscription:
        """See `Bus.subscribe`; the result is async iterable.

        `callback` may be a coroutine function (`async def`): it is awaited with each event, in a
        task of this event loop, one event at a time.
        """
        return await self._subscribed(self._bus.subscribe, pattern, callback, options)

    async def subscribe_many(
        self,
        patterns: Iterable[str],
        callback: Callable[[Event], object] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """See `Bus.subscribe_many`, and `subscribe`."""
        return await self._subscribed(self._bus.subscribe_many, patterns, callback, options)

    async def _subscribed(
        self,
        subscribe: Callable[..., _S],
        what: Any,
        callback: Callable[[Any], Any] | None,
        options: Mapping[str, Any],
    ) -> _S:
        from inspect import iscoroutinefunction

        if not iscoroutinefunction(callback):
            given = () if callback is None else (callback,)
            return await _subscription(subscribe, what, *given, **options)
        subscription = await _subscription(subscribe, what, **options)
        self._begin_handler(subscription, callback, options.get("on_error"))
        return subscription

    async def receive(
        self, subscription: Subscription | DurableSubscription, timeout_s: float | None = None
    ) -> Any:
        """The next event of a subscription; see `Subscription.receive`.

        Raises:
            TimeoutError: Nothing came in time; nothing was taken.
            BusClosed: The subscription is closed, and everything in it was taken.
        """
        import asyncio

        try:
            async with asyncio.timeout(timeout_s):
                return await anext(subscription)
        except StopAsyncIteration:
            raise BusClosed(f"{subscription!r} is closed") from None

    async def receive_many(
        self,
        subscription: Subscription | DurableSubscription,
        count_max: int = 1000,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """The next events; see `Subscription.receive_many`."""
        events = [await self.receive(subscription, timeout_s)]
        with suppress(Empty):
            while len(events) < count_max and (event := subscription.take_nowait()) is not None:
                events.append(event)
        return events

    @property
    def tags(self) -> AioTags:
        """See `Bus.tags`."""
        return AioTags(self._bus.tags)

    async def serve(self, subject: str, service: object, **options: Any) -> Offered:
        """See `Bus.serve`. Operations that are `async` run on a loop of their own."""
        return await _in_thread(self._bus.serve, subject, service, **options)

    async def replace(self, subject: str, service: object, **options: Any) -> Offered:
        """See `Bus.replace`."""
        return await _in_thread(self._bus.replace, subject, service, **options)

    def service(self, subject: str, **options: Any) -> ServiceClient:
        """See `Bus.service`; what its methods return is awaited."""
        return self._bus.service(subject, is_async=True, **options)

    async def open_session(self, subject: str, **options: Any) -> Session:
        """See `Bus.open_session`."""
        return await _in_thread(self._bus.open_session, subject, **options)

    async def who_is_out_there(self, pattern: str, *args: Any, **options: Any) -> list[Found]:
        """See `Bus.who_is_out_there`."""
        return await _in_thread(self._bus.who_is_out_there, pattern, *args, **options)

    async def flush(self) -> None:
        """See `Bus.flush`."""
        await _in_thread(self._bus.flush)

    async def types(self, timeout_s: float | None = None) -> list[Type]:
        """See `Bus.types`."""
        return await _in_thread(self._bus.types, timeout_s)

    async def close(self, timeout_s: float | None = None, *, drain_s: float | None = None) -> None:
        """See `Bus.close`; coroutines that handle events are waited for as callbacks are."""
        await self._end_handlers(drain_s)
        await _in_thread(self._bus.close, timeout_s, drain_s=drain_s)

    async def drain(self, timeout_s: float = 30.0) -> None:
        """See `Bus.drain`."""
        await self.close(drain_s=timeout_s)

    async def _end_handlers(self, drain_s: float | None) -> None:
        import asyncio

        self._is_closing = drain_s is None  # what waits is left alone
        for subscription in self._handlers.values():
            subscription.close()
        running = set(self._handlers) - {asyncio.current_task()}
        if running:
            wait_s = self._bus.patience.handlers_s if drain_s is None else drain_s
            _, late = await asyncio.wait(running, timeout=wait_s)
            for task in late:
                log.warning("%s still runs after %s s and is cancelled", task.get_name(), wait_s)
                task.cancel()

    async def _handle(
        self,
        subscription: Subscription | DurableSubscription,
        callback: Callable[[Any], Awaitable[object]],
        on_error: Callable[[BusError], object] | None,
    ) -> None:
        """Await `callback` with each event, one at a time, until the subscription ends."""
        while not self._is_closing:
            try:
                event = await anext(subscription)
            except StopAsyncIteration:
                return
            except BusError as error:
                if on_error is None:
                    log.error("%s", error)
                else:
                    on_error(error)
                continue
            try:
                await callback(event)
            except Exception:
                log.exception("the callback for %s raised; delivery continues", event.subject)
                if hasattr(event, "nack"):
                    event.nack()
        if settle := getattr(subscription, "settle_taken", None):
            settle()

    def _begin_handler(
        self,
        subscription: Subscription | DurableSubscription,
        callback: Callable[[Any], Awaitable[object]],
        on_error: Callable[[BusError], object] | None,
    ) -> None:
        import asyncio

        name = f"the callback {getattr(callback, '__qualname__', callback)!s}"
        work = self._handle(subscription, callback, on_error)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._handlers[task] = subscription
        task.add_done_callback(lambda done: self._handlers.pop(done, None))

    @property
    def members(self) -> AioMembers:
        """See `Bus.members`: `await bus.aio.members()`, `await bus.aio.members.stable()`."""
        return AioMembers(self._bus)

    async def primary(self, service: str, *, rank: int = 0) -> Primary:
        """See `Bus.primary`; `async for is_primary in role.changes()` follows it."""
        return await _in_thread(self._bus.primary, service, rank=rank)


class AioMembers:
    """The awaitable twin of `Bus.members`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def __call__(self, timeout_s: float = 1.0) -> MembersView:
        """See `Bus.members`."""
        return await _in_thread(self._bus.members, timeout_s)

    async def stable(self, timeout_s: float = 2.0) -> MembersView:
        """Wait until the view is stable, and return it; see `Bus.members`."""
        return await _in_thread(self._bus.members.stable, timeout_s)

    async def decide(self, operation: bytes, **options: Any) -> bytes:
        """Have the members decide an operation; returns its result."""
        return await _in_thread(self._bus.members.decide, operation, **options)


class AioTags:
    """`bus.aio.tags`: the same methods as `bus.tags`, for use in an event loop."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags

    async def create(self, name: str, **options: Any) -> Tag:
        """See `Tags.create`."""
        return await _in_thread(self._tags.create, name, **options)

    async def change(self, name: str, **options: Any) -> Tag:
        """See `Tags.change`."""
        return await _in_thread(self._tags.change, name, **options)

    async def delete(self, name: str, **options: Any) -> None:
        """See `Tags.delete`."""
        await _in_thread(self._tags.delete, name, **options)

    async def get(self, name: str, **options: Any) -> Tag | None:
        """See `Tags.get`."""
        return await _in_thread(self._tags.get, name, **options)

    async def of(self, subject: str, **options: Any) -> Tag | None:
        """See `Tags.of`."""
        return await _in_thread(self._tags.of, subject, **options)

    async def publishers(self, name: str, **options: Any) -> list[TagUser]:
        """See `Tags.publishers`."""
        return await _in_thread(self._tags.publishers, name, **options)

    async def subscribers(self, name: str, **options: Any) -> list[TagUser]:
        """See `Tags.subscribers`."""
        return await _in_thread(self._tags.subscribers, name, **options)

    async def __aiter__(self) -> AsyncIterator[Tag]:
        """All tags, by name."""
        for tag in await _in_thread(list, self._tags):
            yield tag
