"""Time as a value that a node is given: the machine's, or a simulation's."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct


class Clock(Struct, frozen=True):
    """Two functions: `now_s` never goes back; `wall_s` is what other hosts and files mean."""

    now_s: Callable[[], float]
    wall_s: Callable[[], float]


SYSTEM_CLOCK = Clock(time.monotonic, time.time)
