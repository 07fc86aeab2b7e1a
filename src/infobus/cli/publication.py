"""Publishing for people: report what nobody wanted, because it was not sent."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from infobus import Bus
from infobus.cli.terminal import warn

RETRY_S = 0.02


class PatientPublisher:
    """Publishes, waits a while for subscribers, and counts what nobody wanted."""

    def __init__(self, bus: Bus, wait_s: float = 0.0, **options: Any) -> None:
        """`options` are those of `Bus.publish`."""
        self.unwanted: Counter[str] = Counter()
        self._options = options
        self._bus = bus
        self._until_s = time.monotonic() + wait_s

    def publish(self, subject: str, obj: Any, **options: Any) -> None:
        """Publish `obj`; while time is left, try again until somebody subscribes.

        `options` win over those that the publisher was made with.
        """
        while self._is_quenched(subject, obj, self._options | options):
            if time.monotonic() >= self._until_s:
                self.unwanted[subject] += 1
                return
            time.sleep(RETRY_S)

    def _is_quenched(self, subject: str, obj: Any, options: dict[str, Any]) -> bool:
        quenched = self._bus.stats().quenched
        self._bus.publish(subject, obj, **options)
        # A guaranteed event is on disk, for consumers that may come later.
        return self._bus.stats().quenched > quenched and not options.get("guaranteed")

    def tell_unwanted(self) -> None:
        """Report on standard error what was not sent."""
        for subject, count in self.unwanted.items():
            what = "it was" if count == 1 else f"{count} events were"
            warn(f"nobody subscribes to {subject}, so {what} not sent (quenched)")
