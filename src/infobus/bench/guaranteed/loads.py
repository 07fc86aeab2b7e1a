"""The engines that keep events (a file, SQLite alone, a ledger, the bus) and their loads.

A load is a way to have events kept: by one thread that waits for each event, by sixteen threads or
tasks of an event loop that do so, or by one thread that waits for each batch of a hundred. A turn
is a stretch of time spent on one load.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import infobus
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.record import Record

THREAD_COUNT = 16
BATCH_COUNT = 100
BODY = bytes(200)

ONE = "one by one"
THREADS = f"{THREAD_COUNT} threads"
TASKS = f"{THREAD_COUNT} tasks"
BATCHES = f"batches of {BATCH_COUNT}"
LOADS = (ONE, THREADS, TASKS, BATCHES)


class Turn(NamedTuple):
    """The result of a turn: how many events were kept, in which time, and every single wait."""

    event_count: int
    seconds: float
    waits_s: list[float]


TakeTurn = Callable[[float], Turn]
"""Spends so many seconds on a load."""

Keep = Callable[[], object]
"""Keeps one event or batch; when it returns, the event is on disk."""

KeepLater = Callable[[], Awaitable[None]]
"""Keeps one event or batch; once awaited, the event is on disk."""


@contextmanager
def disk_loads(folder: Path) -> Iterator[dict[str, TakeTurn]]:
    """A file to which the bytes are appended and synced: what the disk allows."""
    file = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append() -> None:
        os.write(file, BODY)
        os.fdatasync(file)

    try:
        yield {ONE: lambda s: take_turn(s, append)}
    finally:
        os.close(file)


@contextmanager
def sqlite_loads(folder: Path) -> Iterator[dict[str, TakeTurn]]:
    """Commits of SQLite alone, each synced."""
    with closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB)")
        insert = "INSERT INTO rows (body) VALUES (?)"

        def commit_many() -> None:
            connection.execute("BEGIN")
            connection.executemany(insert, [(BODY,)] * BATCH_COUNT)
            connection.execute("COMMIT")

        yield {
            ONE: lambda s: take_turn(s, lambda: connection.execute(insert, (BODY,))),
            BATCHES: lambda s: take_turn(s, commit_many, events_each=BATCH_COUNT),
        }


@contextmanager
def ledger_loads(folder: Path) -> Iterator[dict[str, TakeTurn]]:
    """A ledger without a bus around it."""
    record = Record("orders.new", time.time(), 7, BODY)
    with Ledger.open(folder / "ledgers") as ledger:
        yield _loads(lambda: ledger.append([record]), lambda: ledger.append([record] * BATCH_COUNT))


@contextmanager
def bus_loads(folder: Path) -> Iterator[dict[str, TakeTurn]]:
    """A node that publishes guaranteed events."""
    event = {"body": BODY}
    many = [("orders.new", event)] * BATCH_COUNT
    with (
        infobus.connect(f"bench-{uuid.uuid4().hex}", home=folder / "home") as bus,
        asyncio.Runner() as runner,
    ):
        bus.publish("orders.new", event, guaranteed=True)
        tasks = task_load(runner, lambda: bus.aio.publish("orders.new", event, guaranteed=True))
        yield {TASKS: tasks} | _loads(
            lambda: bus.publish("orders.new", event, guaranteed=True),
            lambda: bus.publish_many(many, guaranteed=True),
        )


def _loads(keep: Keep, keep_many: Keep) -> dict[str, TakeTurn]:
    return {
        ONE: lambda s: take_turn(s, keep),
        THREADS: lambda s: take_turn(s, keep, thread_count=THREAD_COUNT),
        BATCHES: lambda s: take_turn(s, keep_many, events_each=BATCH_COUNT),
    }


def take_turn(seconds: float, keep: Keep, *, thread_count: int = 1, events_each: int = 1) -> Turn:
    """Keep events for so many seconds, with one thread or several."""
    waits_s: list[list[float]] = [[] for _ in range(thread_count)]
    start_s = time.perf_counter()

    def work(own_waits_s: list[float]) -> None:
        now_s = time.perf_counter()
        while now_s - start_s < seconds or not own_waits_s:
            keep()
            before_s, now_s = now_s, time.perf_counter()
            own_waits_s.append(now_s - before_s)

    if thread_count == 1:
        work(waits_s[0])
    else:
        threads = [threading.Thread(target=work, args=(own,)) for own in waits_s]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    took_s = time.perf_counter() - start_s
    all_waits_s = [wait_s for own in waits_s for wait_s in own]
    return Turn(len(all_waits_s) * events_each, took_s, all_waits_s)


def task_load(
    runner: asyncio.Runner,
    keep: KeepLater,
    *,
    task_count: int = THREAD_COUNT,
    events_each: int = 1,
) -> TakeTurn:
    """Like `take_turn`, with tasks in place of threads."""

    async def take_turn(seconds: float) -> Turn:
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

    return lambda seconds: runner.run(take_turn(seconds))
