"""Awaitable twins of the bus's methods that can wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from msgspec import Struct

from infobus.errors import UsageError

if TYPE_CHECKING:
    from infobus.bus.bus import Bus
    from infobus.bus.deliver.event import Event
    from infobus.bus.deliver.subscription import Subscription
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


_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", "Subscription", "DurableSubscription", "Subscription | DurableSubscription")


async def _in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    import asyncio  # takes half as long to import as the rest of the package

    return await asyncio.to_thread(function, *args, **kwargs)


async def _subscription(function: Callable[..., _S], *args: Any, **options: Any) -> _S:
    made: list[_S] = []
    is_wanted = True

    def subscribe() -> _S:
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
        **options: Any,
    ) -> DurableSubscription: ...

    @overload
    async def subscribe(
        self, pattern: str, callback: Callable[[Event], object] | None = None, **options: Any
    ) -> Subscription: ...

    async def subscribe(
        self, pattern: str, *args: Any, **options: Any
    ) -> Subscription | DurableSubscription:
        """See `Bus.subscribe`; the result is async iterable."""
        return await _subscription(self._bus.subscribe, pattern, *args, **options)

    async def subscribe_many(
        self, patterns: Iterable[str], *args: Any, **options: Any
    ) -> Subscription:
        """See `Bus.subscribe_many`."""
        return await _subscription(self._bus.subscribe_many, patterns, *args, **options)

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

    async def close(self, timeout_s: float | None = None) -> None:
        """See `Bus.close`."""
        await _in_thread(self._bus.close, timeout_s)

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
