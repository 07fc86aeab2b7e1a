"""Publishing for people: what nobody wanted is said, because it was not sent."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from infobus import Bus
from infobus.cli.lines import printable

RETRY_S = 0.02


class Publisher:
    """Publishes, and remembers what nobody wanted."""

    def __init__(
        self,
        bus: Bus,
        wait_s: float = 0.0,
        *,
        guaranteed: bool = False,
        priority: str | None = None,
        max_age: float | None = None,
    ) -> None:
        self.unwanted: Counter[str] = Counter()
        self._is_kept = guaranteed  # for consumers that may come later
        self._options: dict[str, Any] = {
            "guaranteed": guaranteed,
            "priority": priority,
            "max_age": max_age,
        }
        self._bus = bus
        self._until_s = time.monotonic() + wait_s

    def publish(self, subject: str, obj: Any) -> None:
        """Publish `obj`, waiting for a subscriber as long as there is time."""
        while self._is_quenched(subject, obj):
            if time.monotonic() >= self._until_s:
                self.unwanted[subject] += 1
                return
            time.sleep(RETRY_S)

    def _is_quenched(self, subject: str, obj: Any) -> bool:
        quenched = self._bus.stats().quenched
        self._bus.publish(subject, obj, **self._options)
        return self._bus.stats().quenched > quenched and not self._is_kept

    def tell_unwanted(self) -> None:
        """Say on standard error what was not sent."""
        for subject, count in self.unwanted.items():
            what = "it was" if count == 1 else f"{count} events were"
            warn(f"nobody subscribes to {subject}, so {what} not sent (quenched)")


def warn(message: str) -> None:
    """Say something on standard error."""
    print(printable(message), file=sys.stderr)
