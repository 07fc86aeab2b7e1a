"""Decides when events that wait at their sender are raised, and until when.

Events wait there because their lane has no room. A lane is a queue of one class that only its
receivers empty. It starves by the same rule as a class in `queues`: nothing has left it for a while
although something waits. The waiting events are then raised for a stated period, fall back, and
must starve again. They stay on their lane, in their place, and carry the time until which they are
raised; the next queue uses it to decide what goes first.

Time comes in as `now_s`, by the clock that events are dated by.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from infobus.protocols.frames.items import Items, Qos
from infobus.protocols.qos.classes import Upgrade

_PLAIN = Qos()


class LaneUpgrade(Struct):
    """Whether the events that wait on one lane are raised.

    >>> lane = LaneUpgrade(Upgrade(after_s=1.0, period_s=1.0))
    >>> lane.held(10.0)
    >>> lane.moves(11.25)
    >>> lane.marked(Items(["a"], [1], [10.0, 11.5], [0], [b"x", b"y"]), 11.5).qos
    [Qos(max_age=0.0, class_='', raised_until=12.0, kept=False, reserved=0), None]
    """

    upgrade: Upgrade
    since_s: float | None = None  # something waits, and nothing has left
    raised_s: float = -math.inf  # what waited at that time is raised
    until_s: float = -math.inf

    def held(self, now_s: float) -> None:
        """Something waits, and there is no room for it."""
        if self.since_s is None:
            self.since_s = now_s

    def moves(self, now_s: float) -> None:
        """There is room again; what waited for long enough is raised."""
        if self.since_s is None:
            return
        # A lane that waits long is raised, falls back and starves again, in cycles.
        after_s, period_s = self.upgrade.after_s, self.upgrade.period_s
        in_cycle_s = (now_s - self.since_s) % (after_s + period_s)
        self.since_s = None
        if in_cycle_s >= after_s:
            self.raised_s = now_s - in_cycle_s + after_s
            self.until_s = self.raised_s + period_s

    def marked(self, items: Items, now_s: float) -> Items:
        """Return the events as they leave: raised ones carry until when."""
        if now_s >= self.until_s:
            self.until_s = -math.inf
            return items
        qos = [
            replace(asked or _PLAIN, raised_until=self.until_s)
            if time_s <= self.raised_s
            else asked
            for _, time_s, asked in zip(
                items.bodies, items.each_time(), items.each_qos(), strict=False
            )
        ]
        return replace(items, qos=qos[:1] if qos.count(qos[0]) == len(qos) else qos)
