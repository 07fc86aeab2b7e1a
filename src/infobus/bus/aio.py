"""Awaitable twins of the bus's methods that can wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from infobus.bus.bus import Bus
    from infobus.bus.publishing import Quality
    from infobus.bus.subscription import Subscription
    from infobus.objects import Type


_P = ParamSpec("_P")
_R = TypeVar("_R")


async def _in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    import asyncio  # takes half as long to import as the rest of the package

    return await asyncio.to_thread(function, *args, **kwargs)


async def _subscription(
    function: Callable[..., Subscription], *args: Any, **options: Any
) -> Subscription:
    made: list[Subscription] = []
    is_wanted = True

    def subscribe() -> Subscription:
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


class AioBus:
    """`bus.aio`: the same methods, for use in an event loop. The promises are the same."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(
        self, subject: str, obj: Any, *, quality: Quality = "reliable", **options: bool
    ) -> None:
        """Publish without ever blocking the event loop; see `Bus.publish`."""
        if options or not self._bus.publish_nowait(subject, obj, quality):
            await _in_thread(self._bus.publish, subject, obj, quality=quality, **options)

    async def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        quality: Quality = "reliable",
        **options: bool,
    ) -> None:
        """See `Bus.publish_many`."""
        await _in_thread(self._bus.publish_many, events, quality=quality, **options)

    async def subscribe(self, pattern: str, *args: Any, **options: Any) -> Subscription:
        """See `Bus.subscribe`; the result is async iterable."""
        return await _subscription(self._bus.subscribe, pattern, *args, **options)

    async def subscribe_many(
        self, patterns: Iterable[str], *args: Any, **options: Any
    ) -> Subscription:
        """See `Bus.subscribe_many`."""
        return await _subscription(self._bus.subscribe_many, patterns, *args, **options)

    async def flush(self) -> None:
        """See `Bus.flush`."""
        await _in_thread(self._bus.flush)

    async def types(self, timeout_s: float = 1.0) -> list[Type]:
        """See `Bus.types`."""
        return await _in_thread(self._bus.types, timeout_s)

    async def close(self, timeout_s: float = 2.0) -> None:
        """See `Bus.close`."""
        await _in_thread(self._bus.close, timeout_s)
