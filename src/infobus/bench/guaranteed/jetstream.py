"""NATS JetStream with a stream in files: the peer of guaranteed delivery.

Its server acknowledges an event when it is written. It syncs later, by default after two minutes,
unless its `sync_interval` is `always`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats

from infobus.bench.common.nats_server import nats_server
from infobus.bench.guaranteed.loads import (
    BATCH_COUNT,
    BATCHES,
    BODY,
    ONE,
    TASKS,
    TakeTurn,
    task_load,
)

_TIMEOUT_S = 30.0


@contextmanager
def jetstream_loads(folder: Path, sync: str) -> Iterator[dict[str, TakeTurn]]:
    """A server on the disk of `folder`, with `sync` as its `sync_interval`, and one client."""
    settings = f'jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}\n'
    with nats_server(settings) as address, asyncio.Runner() as runner:
        client = runner.run(nats.connect(address, allow_reconnect=False))
        stream = client.jetstream(timeout=_TIMEOUT_S)

        async def keep() -> None:
            await stream.publish("orders.new", BODY)

        async def keep_many() -> None:
            sent = [await stream.publish_async("orders.new", BODY) for _ in range(BATCH_COUNT)]
            await asyncio.gather(*sent)

        runner.run(stream.add_stream(name="orders", subjects=["orders.>"], storage="file"))
        runner.run(keep())
        yield {
            ONE: task_load(runner, keep, task_count=1),
            TASKS: task_load(runner, keep),
            BATCHES: task_load(runner, keep_many, task_count=1, events_each=BATCH_COUNT),
        }
        runner.run(client.close())
