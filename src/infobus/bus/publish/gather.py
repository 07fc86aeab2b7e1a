"""Gathering: which events of a lane wait for others, and when they leave together.

Every frame costs every receiver about as much as a hundred events in it. So an event that comes
while others are on their way waits for them, and one that comes after a pause leaves at once.
Time comes in with the events, and as `now_s`: no clock, lock or thread in here.
"""

from __future__ import annotations

from enum import Enum, auto

from infobus.protocols.frames.wire import Item

BEHIND_S = 25e-6
"""An event that comes so soon after another has left waits for the flusher, with others."""
STREAM_COUNT, STREAM_S = 16, 5e-3
"""So does one that comes that soon after so many: a stream goes on that was held up a moment."""

RECEIVERS_COUNT_MAX = 8
"""A frame may be so many times as large for so many receivers: each has to read every frame."""
ITEM_BYTES = 64  # of an event's envelope, about, when it is received


class Taken(Enum):
    """What becomes of an event."""

    JOINED = auto()  # it waits with others, which are seen to already
    FIRST = auto()  # it waits, and somebody has to see to it that it leaves
    ALONE = auto()  # it leaves now
    FULL = auto()  # those that wait have to leave first; ask again then


JOINED, FIRST, ALONE, FULL = Taken


class Gathering:
    """What waits on one lane; about `frame_bytes` leave together."""

    __slots__ = (
        "behind_until_s",
        "bytes_max",
        "frame_bytes",
        "is_batch",
        "pending",
        "room_bytes",
    )

    def __init__(self, frame_bytes: int, is_batch: bool = False) -> None:
        self.frame_bytes = frame_bytes
        self.is_batch = is_batch  # gather always, and exactly so much: the user has asked for it
        self.pending: list[Item] = []
        self.room_bytes = 0  # beside those that wait; none while nothing does
        self.bytes_max = frame_bytes
        self.behind_until_s = 0.0  # events before that wait for others

    def take(self, item: Item, size: int, more: bool) -> Taken:
        """Take in an event that was just made, of `size` bytes, unless it leaves alone.

        `more` says that others follow it, and that their publisher sees to it that they leave.
        """
        if self.room_bytes > 0:
            self.pending.append(item)
            self.room_bytes -= size + ITEM_BYTES
            return JOINED
        if self.pending:
            return FULL
        waits = more or self.is_batch or item.time < self.behind_until_s
        if not waits or size >= self.bytes_max:
            return ALONE
        self.pending.append(item)
        self.room_bytes = self.bytes_max - size - ITEM_BYTES
        return FIRST

    def is_full(self) -> bool:
        """Whether the next event would have to wait for a frame to leave."""
        return bool(self.pending) and self.room_bytes <= 0

    def release(self, receivers_count: int) -> list[Item]:
        """Everything that waits, to leave now for so many receivers."""
        pending, self.pending, self.room_bytes = self.pending, [], 0
        if not self.is_batch:
            self.bytes_max = self.frame_bytes * min(receivers_count or 1, RECEIVERS_COUNT_MAX)
        return pending

    def left(self, count: int, now_s: float) -> None:
        """So many events have left together, just now."""
        self.behind_until_s = now_s + (STREAM_S if count >= STREAM_COUNT else BEHIND_S)

    def step(self, count: int, size: int) -> int:
        """How many of `count` events, of `size` bytes in all, leave in one frame."""
        return max(1, self.bytes_max * count // (size + count * ITEM_BYTES))
