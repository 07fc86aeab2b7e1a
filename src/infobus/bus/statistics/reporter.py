"""Publishes what a node does, once a second, while somebody wants it.

Nothing is counted, computed or sent for this unless there is a subscription to its subject: each
tick asks the table of decisions, as any publisher does, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infobus.bus.guaranteed import Guaranteed
from infobus.bus.publish.publisher import Publisher
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.services import Services
from infobus.bus.stats import Stats
from infobus.errors import BusClosed, BusError
from infobus.subjects import STATS_SPACE

if TYPE_CHECKING:
    from infobus.bus.statistics.snapshot import ReportSources

REPORT_S = 1.0
"""How often a node tells what it does."""


class Reporter:
    """The reports of one node. It stands on the runtime's tick, and has no thread of its own."""

    def __init__(
        self,
        runtime: Runtime,
        publisher: Publisher,
        application: str,
        stats: Callable[[], Stats],
        services: Services,
        guaranteed: Guaranteed,
    ) -> None:
        self.subject = f"{STATS_SPACE}{runtime.name.rsplit('-', 2)[0]}.{runtime.name}"
        self._runtime = runtime
        self._publisher = publisher
        # Of a report, once there is one to make.
        self._parts = (
            application,
            stats,
            services.offered,
            guaranteed.open_ledgers,
            runtime.clock.wall_s(),
        )
        self._sources: ReportSources | None = None
        self._due_s = 0.0
        publisher.reserve_subject(self.subject)
        runtime.register(self, ())

    def on_tick(self) -> None:
        """Report, if it is time and anybody wants that."""
        now_s = self._runtime.clock.now_s()
        if now_s < self._due_s or self._runtime.is_closed:
            return
        try:
            if self._publisher.report(self.subject, self._report):
                self._due_s = now_s + REPORT_S
        except BusClosed:  # it is being closed
            pass
        except BusError as error:
            self._runtime.counters.complain("statistics", str(error))

    def on_frame(self, payload: bytes) -> None:
        """No frames are for it."""

    def on_peer(self, name: str, alive: bool) -> None:
        """Newcomers hear of it by asking."""

    def _report(self) -> Any:
        if self._sources is None:
            from infobus.bus.statistics.snapshot import ReportSources  # late: few ever report

            self._sources = ReportSources(self._runtime, *self._parts)
        return self._sources.report()
