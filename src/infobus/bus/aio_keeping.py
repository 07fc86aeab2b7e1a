"""Guaranteed events of an event loop: tasks that await at the same time share one commit.

One task leads for all: it takes what the others have brought and has it kept on a thread, while
the next events gather. A thread for each event would cost more than the disk does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from infobus.errors import UsageError

PublishMany = Callable[..., None]


class _Awaited(NamedTuple):
    event: tuple[str, Any]
    options: dict[str, Any]
    future: asyncio.Future[None]


class Gathering:
    """What the tasks of one event loop want to have kept. Not for use by threads."""

    def __init__(self, publish_many: PublishMany) -> None:
        self._publish_many = publish_many
        self._awaited: list[_Awaited] = []
        self._leader: asyncio.Task[None] | None = None

    async def publish(self, subject: str, obj: Any, options: dict[str, Any]) -> None:
        """Return when the event is on disk."""
        loop = asyncio.get_running_loop()
        mine = _Awaited((subject, obj), options, loop.create_future())
        self._awaited.append(mine)
        if self._leader is None:
            self._leader = loop.create_task(self._lead())
        await mine.future

    async def _lead(self) -> None:
        batch: list[_Awaited] = []
        try:
            while self._awaited:
                _, alike = next(groupby(self._awaited, attrgetter("options")))
                batch = [*alike]
                del self._awaited[: len(batch)]
                await self._keep(batch)
        finally:  # the event loop ends if there is anything left
            for one in (*batch, *self._awaited):
                one.future.cancel()
            self._awaited, self._leader = [], None

    async def _keep(self, batch: list[_Awaited]) -> None:
        events, options = [one.event for one in batch], batch[0].options
        try:
            await asyncio.to_thread(self._publish_many, events, guaranteed=True, **options)
        except UsageError as error:
            if len(batch) == 1:
                _tell(batch, error)
            else:  # one of them is wrong; nothing was kept, so each is told apart
                for one in batch:
                    await self._keep([one])
        except Exception as error:
            _tell(batch, error)
        else:
            _tell(batch, None)


def _tell(batch: list[_Awaited], error: Exception | None) -> None:
    for one in batch:
        if not one.future.done():  # else its task was cancelled
            one.future.set_result(None) if error is None else one.future.set_exception(error)
