"""What a routed engine needs from above: threads, which a simulation replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Job = Callable[[], None]


class LinkWorker(Protocol):
    """Does jobs one after the other."""

    def do(self, job: Job, after_s: float = 0.0) -> None:
        """Hand a job over; returns at once."""

    def stop(self, timeout_s: float = 0.0) -> None:
        """Take no more jobs; those in turn are done, waited for up to `timeout_s`."""


class LinkThreads(Protocol):
    """A way to start threads."""

    def worker(self, name: str) -> LinkWorker:
        """Start a worker."""

    def every(self, period_s: float, job: Job, name: str) -> Callable[[], None]:
        """Do `job` again and again; the result ends that."""
