"""The homes that a daemon looks after; only one daemon of a bus has a home at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from infobus.bus.settings import daemon_folder, shut_home
from infobus.errors import StoreError, UsageError
from infobus.stores.private import make_private_folder
from infobus.stores.sqlite.locks import FileLock


class KeptHomes:
    """The homes of one daemon, held by a lock in each of them."""

    def __init__(self, homes: Sequence[Path], bus: str) -> None:
        self.homes = tuple(dict.fromkeys(home.absolute() for home in homes))
        self._bus = bus
        self._locks: list[FileLock] = []

    def take(self, node: str) -> None:
        """Keep all of these homes, or none.

        Raises:
            UsageError: One of them is not this user's.
            StoreError: One of them is kept by another daemon, or cannot be written to.
        """
        try:
            for home in self.homes:
                self._take(home, node)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others keep them. Idempotent."""
        for lock in self._locks:
            with suppress(OSError):
                _holder_file(lock).unlink()
            lock.release()
        self._locks.clear()

    def _take(self, home: Path, node: str) -> None:
        folder = daemon_folder(home, self._bus)
        try:
            make_private_folder(folder)
            owner = home.stat().st_uid
        except OSError as error:
            why = f"home {home}: no daemon can keep it: {error.strerror or error}"
            raise StoreError(why, path=str(home)) from error
        if owner != os.getuid():
            raise UsageError(
                f"home {home} belongs to user {owner}: a daemon serves its own user, so that user "
                "must start one"
            )
        shut_home(home)
        lock = FileLock(folder / "lock")
        if not lock.acquire(patience_s=0.2):
            raise StoreError(
                f"home {home} is kept by {_holder(lock)}: two daemons must not serve the same "
                "ledgers. Stop that one, or give this one other homes",
                path=str(home),
            )
        self._locks.append(lock)
        told = json.dumps({"node": node, "pid": os.getpid(), "host": os.uname().nodename})
        with suppress(OSError):  # the lock counts; this only helps people
            _holder_file(lock).write_text(told)


def _holder_file(lock: FileLock) -> Path:
    return lock.path.with_suffix(".holder")


def _holder(lock: FileLock) -> str:
    try:
        told = json.loads(_holder_file(lock).read_text())
        return f"another daemon (process {told['pid']} on host {told['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another daemon"
