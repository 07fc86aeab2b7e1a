"""How fast a ledger takes events, against what the disk allows: one commit of SQLite, no more.

The kinds of load take short turns, over and over, so that a disk that is slow for a while is
slow for all of them; in another order each time, because a turn leaves the disk with work to do.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from infobus.stores.ledger import Ledger
from infobus.stores.records import Record

THREAD_COUNT = 16
BATCH_COUNT = 100
TURN_S = 0.25


class LedgerRates(msgspec.Struct, frozen=True, kw_only=True):
    """Events kept per second, the median of all turns."""

    raw: float
    """Commits of one row by SQLite alone, each synced."""
    one: float
    """One thread that awaits each event."""
    threads: float
    """Sixteen threads that await each event."""
    batches: float
    """One thread that awaits each batch of a hundred."""

    def ratios(self) -> dict[str, float]:
        """Return each rate as a multiple of the raw one."""
        rates: dict[str, float] = msgspec.structs.asdict(self)
        return {name: rate / self.raw for name, rate in rates.items() if name != "raw"}


def measure_ledger(folder: Path, *, rounds: int = 8, body_bytes: int = 200) -> LedgerRates:
    """Measure on the disk of `folder`, which is made and is left with what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    record = Record("orders.new", time.time(), 7, bytes(body_bytes))
    with Ledger.open(folder / "ledgers") as ledger, closing(_raw(folder / "raw.db")) as raw:

        def commit_raw() -> int:
            raw.execute("INSERT INTO rows (body) VALUES (?)", (record.body,))
            return 1

        def commit_one() -> int:
            ledger.append([record])
            return 1

        def commit_batch() -> int:
            ledger.append([record] * BATCH_COUNT)
            return BATCH_COUNT

        loads: dict[str, tuple[int, Callable[[], int]]] = {
            "raw": (1, commit_raw),
            "one": (1, commit_one),
            "threads": (THREAD_COUNT, commit_one),
            "batches": (1, commit_batch),
        }
        rates: dict[str, list[float]] = {name: [] for name in loads}
        chance = Random(1)
        for _ in range(rounds):
            for name in chance.sample([*loads], len(loads)):
                rates[name].append(_rate(*loads[name]))
    return LedgerRates(**{name: median(turns) for name, turns in rates.items()})


def _raw(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, body BLOB)")
    return connection


def _rate(thread_count: int, load: Callable[[], int]) -> float:
    counts = [0] * thread_count
    start_s = time.perf_counter()

    def work(index: int) -> None:
        while time.perf_counter() - start_s < TURN_S:
            counts[index] += load()

    if thread_count == 1:
        work(0)
    else:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(thread_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(counts) / (time.perf_counter() - start_s)
