"""NATS JetStream with a stream in files: the peer of guaranteed delivery.

Its server acknowledges what it has written, and syncs it later (after two minutes, by default),
unless it is told to sync always.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nats

from infobus.bench.guaranteed_loads import (
    BATCH_COUNT,
    BATCHES,
    BODY,
    ONE,
    THREAD_COUNT,
    THREADS,
    TakeTurn,
    Turn,
)
from infobus.bench.peers.nats_core import Nats

_TIMEOUT_S = 30.0


@contextmanager
def jetstream_loads(folder: Path, sync: str) -> Iterator[dict[str, TakeTurn]]:
    """A server on the disk of `folder`, with `sync` as its `sync_interval`, and one client."""
    settings = f'jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}\n'
    with Nats().server(settings) as address, asyncio.Runner() as runner:
        client = runner.run(nats.connect(address, allow_reconnect=False))
        stream = client.jetstream(timeout=_TIMEOUT_S)

        async def keep() -> None:
            await stream.publish("orders.new", BODY)

        async def keep_many() -> None:
            sent = [await stream.publish_async("orders.new", BODY) for _ in range(BATCH_COUNT)]
            await asyncio.gather(*sent)

        def load(keep: Keep, *, task_count: int = 1, events_each: int = 1) -> TakeTurn:
            return lambda s: runner.run(_take_turn(s, keep, task_count, events_each))

        runner.run(stream.add_stream(name="orders", subjects=["orders.>"], storage="file"))
        runner.run(keep())
        yield {
            ONE: load(keep),
            THREADS: load(keep, task_count=THREAD_COUNT),
            BATCHES: load(keep_many, events_each=BATCH_COUNT),
        }
        runner.run(client.close())


Keep = Callable[[], Awaitable[None]]


async def _take_turn(seconds: float, keep: Keep, task_count: int, events_each: int) -> Turn:
    """As `guaranteed_loads.take_turn`, with tasks in place of threads."""
    waits_s: list[float] = []
    start_s = time.perf_counter()

    async def work() -> None:
        now_s = time.perf_counter()
        while now_s - start_s < seconds or not waits_s:
            await keep()
            before_s, now_s = now_s, time.perf_counter()
            waits_s.append(now_s - before_s)

    await asyncio.gather(*(work() for _ in range(task_count)))
    return Turn(len(waits_s) * events_each, time.perf_counter() - start_s, waits_s)
