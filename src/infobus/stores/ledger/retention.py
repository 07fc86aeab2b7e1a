"""A clock for retention that a wall clock set ahead cannot speed up."""

from __future__ import annotations

KEEP_S = 7 * 24 * 3600.0
KEEP_BYTES = 1024 * 1024 * 1024
"""Settled events are kept for so long and up to so much, for consumers unheard of."""


class PatientClock:
    """The wall clock, limited to the time that has really passed since it was first read.

    If the wall clock is set ahead, nothing becomes old, even if it is never set back: events then
    stay for longer. If it is set back, this clock follows.

    >>> clock = PatientClock(wall_s=1000.0, now_s=5.0)
    >>> clock.read(wall_s=1010.0, now_s=15.0), clock.read(wall_s=99_999.0, now_s=16.0)
    (1010.0, 1011.0)
    """

    def __init__(self, *, wall_s: float, now_s: float) -> None:
        self._ahead_s = wall_s - now_s

    def read(self, *, wall_s: float, now_s: float) -> float:
        """Return the time by which retention judges age."""
        return min(wall_s, now_s + self._ahead_s)
