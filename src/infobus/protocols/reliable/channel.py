"""Reliable delivery over any engine: each event once and in order, or a reported loss.

A *route* is one sender's numbered stream on one lane. Its `Sender` keeps what it has sent
until every receiver has confirmed it, and stops at a bounded window; so whatever a live
receiver misses can be sent again. Its `Receiver` delivers in order, asks the sender for what
is missing (a hole before a frame that came, or a tail that a heartbeat told of), and after a
bounded number of tries gives a hole up aloud, because a subscriber must never have to guess
what it missed (paper 004, sections 3.1 to 3.3).

A receiver may be *absent* for a while. It keeps its place, and nobody waits for it: frames that
only absent receivers lack leave the window, and are retained beside it, as many again. What
does not fit there either is a hole of known numbers when it is back.

Time comes in as `now_s`; work goes out as values: no clock, socket or log in here.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from msgspec import Struct, field

#: No window applies when nobody listens.
NO_LIMIT = 2**63
#: One question is answered with about so much; the receiver asks on once that has come. A whole
#: window at once would be sent several times over to a receiver that is merely slow.
ANSWER_BYTES_MAX = 8 * 1024 * 1024


class NumberedRun(Protocol):
    """Consecutive events, of which only the number matters here."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


class Deliver(Struct, frozen=True):
    """Hand these events, numbered from `first`, to the subscriptions."""

    first: int
    items: NumberedRun


class AskAgain(Struct, frozen=True):
    """Ask the sender for events `first` to `last`."""

    first: int
    last: int


class ReportLoss(Struct, frozen=True):
    """Events `first` to `last` are gone; `last` is None if nobody can say how many."""

    first: int
    last: int | None


Effect = Deliver | AskAgain | ReportLoss


class Progress(Struct):
    """What a sender knows of one receiver."""

    next: int  # everything before it is confirmed
    since_s: float  # when it last moved, or said that it is held
    joined: int = 0  # version of its rows under which it did
    waited_for: bool = True  # False: it stalled, and the window no longer waits for it
    window: int = NO_LIMIT  # how many unconfirmed events it takes
    moved_s: float = 0.0  # when it last confirmed something
    has_taken: bool = False  # it has confirmed something since it joined, or stalled
    absent: bool = False  # it cannot be seen just now
    kept: bool = False  # what it lacks is retained: it is absent, or has not caught up since


class Sender(Struct, kw_only=True):
    """The sending half of a route.

    Two threads may share a sender without a lock as long as one at a time calls `sent` (the
    publisher) and one at a time everything else (the node): `next` and `sent_bytes` are
    written by the first only, all other fields by the second only.
    """

    window_count_max: int
    window_bytes_max: int
    stall_s: float
    hold_s: float = 60.0
    next: int = 1
    sent_bytes: int = 0
    freed_bytes: int = 0
    limit: int = NO_LIMIT
    full_since_s: float | None = None
    receivers: dict[str, Progress] = field(default_factory=dict)
    buffer: deque[tuple[int, int, bytes]] = field(default_factory=deque)  # first, end, frame
    retained: deque[tuple[int, int, bytes]] = field(default_factory=deque)  # those before it
    retained_bytes: int = 0
    keeps: bool = False  # some receiver is `kept`

    def has_room(self) -> bool:
        """Whether another frame fits the window."""
        return self.next < self.limit and self.sent_bytes - self.freed_bytes < self.window_bytes_max

    def sent(self, frame: bytes, count: int) -> None:
        """Note a frame that takes the next `count` numbers; an empty one, if they are lost."""
        end = self.next + count
        self.buffer.append((self.next, end, frame))
        self.sent_bytes += len(frame)
        self.next = end

    def join(
        self, node: str, now_s: float, window: int = 0, version: int = 0, absent: bool = False
    ) -> int:
        """Count `node` among the receivers; its first number is returned.

        `window` is how many unconfirmed events it takes, if it said so, and `version` that of
        the rows by which it joins.
        """
        progress = self.receivers.get(node)
        if progress is None:
            progress = Progress(self.next, now_s, version, window=window or NO_LIMIT, moved_s=now_s)
            self.receivers[node] = progress
            self._settle()
            if absent:
                self.away(node)
        return progress.next

    def away(self, node: str) -> None:
        """`node` cannot be seen: keep its place, and do not wait for it."""
        progress = self.receivers.get(node)
        if progress is not None:
            progress.absent = progress.kept = self.keeps = True
            progress.waited_for = False
            self._settle()

    def back(self, node: str, now_s: float) -> None:
        """`node` can be seen again: wait for it if everything that it lacks is still here."""
        progress = self.receivers.get(node)
        if progress is not None and progress.absent:
            progress.absent = progress.has_taken = False
            progress.since_s = progress.moved_s = now_s
            self._settle()  # first, or more than a window might be waited for
            progress.waited_for = progress.next >= self._kept_from()
            self._settle()

    def leave(self, node: str) -> None:
        """Wait for `node` no more."""
        if self.receivers.pop(node, None) is not None:
            self._settle()

    def on_ack(self, node: str, next_number: int, held: bool, now_s: float) -> None:
        """`node` has everything before `next_number`."""
        progress = self.receivers.get(node)
        if progress is None:
            return
        next_number = min(next_number, self.next)  # nobody can have what was not sent
        if next_number > progress.next:
            progress.next, progress.since_s, progress.moved_s = next_number, now_s, now_s
            progress.has_taken = progress.waited_for
            if not (progress.waited_for or progress.absent):
                progress.waited_for = next_number >= self._kept_from()
                if progress.waited_for and self.keeps:
                    progress.kept = True  # its place may be among what is retained
            self._settle()
        elif held or next_number == self.next:
            progress.since_s = now_s

    def on_ask(self, first: int, last: int) -> tuple[list[bytes], tuple[int, int] | None]:
        """The kept frames that hold events from `first` on, and the part before them that is gone.

        They reach to `last`, or as far as one answer may, or to the next part that is gone.
        """
        last = min(last, self.next - 1)
        if last < first:
            return [], None
        frames: list[bytes] = []
        size = 0
        kept = tuple(self.retained) + tuple(self.buffer)  # copied: the publisher goes on appending
        gone_to = kept[0][0] - 1 if kept else last
        for start, end, frame in kept:
            if start > last or size >= ANSWER_BYTES_MAX:
                break
            if first < end and frame:
                frames.append(frame)
                size += len(frame)
            elif first < end and frames:
                break
            elif first < end:
                gone_to = end - 1
        return frames, (first, min(last, gone_to)) if first <= gone_to else None

    def on_tick(self, now_s: float) -> list[str]:
        """Stop waiting for receivers that stall a full window; they are returned.

        They still get every frame. What they miss beyond the buffer is a loss they report. One
        that says that it is held has longer, but not for ever: anyone can say so.
        """
        stalled: list[str] = []
        if self.has_room():
            self.full_since_s = None
        elif self.full_since_s is None:
            self.full_since_s = now_s
        else:
            full_since_s = self.full_since_s
            stalled = [node for node in self.lagging() if self._stalls(node, full_since_s, now_s)]
        for node in stalled:
            one = self.receivers[node]
            one.waited_for = one.has_taken = one.kept = False
        if self.keeps:
            for one in self.receivers.values():
                is_here = not (one.absent or one.waited_for)
                one.kept = one.kept and not (is_here and now_s - one.since_s >= self.stall_s)
        self._settle()
        return stalled

    def _stalls(self, node: str, full_since_s: float, now_s: float) -> bool:
        one = self.receivers[node]
        hold_s = self.hold_s if one.has_taken else self.stall_s
        return (
            now_s - max(one.since_s, full_since_s) >= self.stall_s
            or now_s - max(one.moved_s, full_since_s) >= hold_s
        )

    def lagging(self) -> list[str]:
        """The receivers that hold the window back."""
        floor = self._floor()
        return sorted(
            node
            for node, progress in self.receivers.items()
            if progress.waited_for and progress.next == floor < self.next
        )

    def is_confirmed(self) -> bool:
        """Whether every receiver that is waited for has everything."""
        return self._floor() >= self.next

    def is_quiet(self) -> bool:
        """Whether every receiver has everything, also those that are not waited for."""
        return all(progress.next >= self.next for progress in self.receivers.values())

    def _floor(self) -> int:
        waited_for = [p.next for p in self.receivers.values() if p.waited_for]
        return min(waited_for) if waited_for else self.next

    def _kept_from(self) -> int:
        """The first number that can be sent again."""
        for kept in (self.retained, self.buffer):
            if kept:
                return kept[0][0]
        return self.next

    def _settle(self) -> None:
        floor = self._floor()
        buffer = self.buffer
        if self.keeps:
            self._retain(floor)
        while buffer and buffer[0][1] <= floor:
            self.freed_bytes += len(buffer.popleft()[2])
        if not buffer:
            self.full_since_s = None  # an empty window is not looked at until it fills again
        limits = [p.next + p.window for p in self.receivers.values() if p.waited_for]
        self.limit = min(floor + self.window_count_max, *limits) if limits else NO_LIMIT

    def _retain(self, floor: int) -> None:
        """Let frames that only absent receivers lack leave the window, and go with the others.

        The limit cannot take anything from a receiver that is waited for: while one has its place
        in here, nothing leaves the window, so nothing is added.
        """
        buffer, retained = self.buffer, self.retained
        while buffer and buffer[0][1] <= floor:
            frame = buffer.popleft()
            self.freed_bytes += len(frame[2])
            self.retained_bytes += len(frame[2])
            retained.append(frame)
        end = retained[-1][1] if retained else floor
        kept = [one for one in self.receivers.values() if one.kept]
        for one in kept:
            one.kept = one.absent or one.next < end
        needed_from = min((one.next for one in kept if one.kept), default=NO_LIMIT)
        while retained and (
            retained[0][1] <= needed_from
            or end - retained[0][0] > self.window_count_max
            or self.retained_bytes > self.window_bytes_max
        ):
            self.retained_bytes -= len(retained.popleft()[2])
        self.keeps = any(one.kept for one in kept)


class Receiver(Struct, kw_only=True):
    """The receiving half of a route. `next` is None until the sender has told the baseline."""

    next: int | None = None
    tries_max: int = 8
    ask_every_s: float = 0.1  # doubles with each try that brought nothing, up to 1 s
    tail_patience_s: float = 0.2
    held_count_max: int = 65_536
    paused: bool = False  # the node has no room: take nothing, ask for nothing
    held: dict[int, NumberedRun] = field(default_factory=dict)
    held_count: int = 0
    end: int = 0  # one past the highest number known to exist
    asked_to: int = 0  # one past the highest number asked for
    next_when_asked: int | None = None
    tries: int = 0
    ask_at_s: float | None = None
    began: int = 0  # the baseline
    acked: int = 0
    acked_s: float = float("-inf")  # when events were last confirmed, as of the tick before
    unacked_bytes: int = 0
    last_s: float | None = None  # the time of the event before `next`, if it is remembered

    def accept(self, first: int, count: int) -> bool:
        """The steady state, one comparison: take a frame that is just the next one."""
        if first != self.next or self.held or self.paused:
            return False
        self.next = first + count
        return True

    def on_data(self, first: int, items: NumberedRun, now_s: float) -> list[Effect]:
        """Take a frame, whatever its place in the stream."""
        end = first + len(items)
        self.end = max(self.end, end)
        if self.paused:
            return []
        if self.next is None:
            self._hold(first, items)
            return []
        if end <= self.next:
            return []
        if first > self.next:
            self._hold(first, items)
            return self._mind_the_hole(now_s)
        effects: list[Effect] = [Deliver(self.next, items[self.next - first :])]
        self.next = end
        return effects + self._advanced(now_s)

    def on_baseline(self, number: int, now_s: float) -> list[Effect]:
        """The sender has told where this receiver starts; what came before is not its own."""
        assert self.next is None
        self.next = self.acked = self.began = number
        self.end = max(self.end, number)
        return self._advanced(now_s)

    def on_end(self, number: int, now_s: float) -> list[Effect]:
        """The sender's next number is `number`: what is missing before it was sent already."""
        self.end = max(self.end, number)
        return [] if self.next is None else self._mind_the_hole(now_s)

    def on_gone(self, last: int, now_s: float) -> list[Effect]:
        """The sender no longer keeps anything up to `last`."""
        effects: list[Effect] = []
        if self.next is None:
            return effects
        last = min(last, self.end - 1)  # what was never heard of was not asked for either
        while self.next <= last:
            effects += self._give_up(min(self._hole_end(), last + 1), now_s)
        return effects

    def on_tick(self, now_s: float) -> list[Effect]:
        """Ask again for what is overdue, or give it up."""
        if self.ask_at_s is None or now_s < self.ask_at_s or self.next is None or self.paused:
            return []
        if self.next >= self.end:
            self._forget_asks()
            return []
        if self.next != self.next_when_asked:
            # Events are arriving: give the rest of them time before asking again.
            self.next_when_asked, self.tries, self.ask_at_s = self.next, 0, now_s + self.ask_every_s
            return []
        if self.tries >= self.tries_max:
            return self._give_up(self._hole_end(), now_s)
        self.asked_to = self._hole_end()
        return [self._ask(self.next, now_s)]

    def on_sender_lost(self, now_s: float) -> list[Effect]:
        """The sender will not come back: report the hole, deliver what came after it."""
        effects: list[Effect] = []
        while self.next is not None and self.next < self.end:
            effects += self._give_up(self._hole_end(), now_s)
        return effects

    def on_pause(self, paused: bool, now_s: float) -> list[Effect]:
        """While paused nothing is taken in; afterwards it is asked for again."""
        self.paused = paused
        if paused or self.next is None:
            return []
        self._forget_asks()
        if not self.has_hole():
            return []
        self.asked_to = self._hole_end()
        return [self._ask(self.next, now_s)]

    def has_taken(self) -> bool:
        """Whether anything came since it began."""
        return self.next is not None and self.next > self.began

    def has_hole(self) -> bool:
        """Whether an event is known to exist that has not come."""
        return self.next is not None and self.next < self.end

    def _hold(self, first: int, items: NumberedRun) -> None:
        # What does not fit is let go, and asked for again once the stream has reached it.
        if first not in self.held and self.held_count + len(items) <= self.held_count_max:
            self.held[first] = items
            self.held_count += len(items)

    def _unhold(self, first: int) -> NumberedRun:
        items = self.held.pop(first)
        self.held_count -= len(items)
        return items

    def _advanced(self, now_s: float) -> list[Effect]:
        """`next` has moved: deliver what waited for that, then look for the next hole."""
        assert self.next is not None
        self.last_s = None
        effects: list[Effect] = []
        while self.held:
            first = self.next if self.next in self.held else min(self.held)
            if first > self.next:
                break
            items = self._unhold(first)
            if first + len(items) > self.next:
                effects.append(Deliver(self.next, items[self.next - first :]))
                self.next = first + len(items)
        return effects + self._mind_the_hole(now_s)

    def _hole_end(self) -> int:
        return min(self.held) if self.held else self.end

    def _mind_the_hole(self, now_s: float) -> list[Effect]:
        assert self.next is not None
        if self.next >= self.end:
            self._forget_asks()
            return []
        hole_end = self._hole_end()
        if hole_end <= self.asked_to:
            return []
        if not self.held:
            # Told of by a heartbeat, which may have overtaken the events themselves.
            if self.ask_at_s is None:
                self.ask_at_s, self.next_when_asked = now_s + self.tail_patience_s, self.next
            return []
        first, self.asked_to, self.tries = max(self.next, self.asked_to), hole_end, 0
        return [self._ask(first, now_s)]

    def _ask(self, first: int, now_s: float) -> AskAgain:
        self.ask_at_s = now_s + min(1.0, self.ask_every_s * 2**self.tries)
        self.next_when_asked = self.next
        self.tries += 1
        return AskAgain(first, self.asked_to - 1)

    def _give_up(self, up_to: int, now_s: float) -> list[Effect]:
        assert self.next is not None and up_to > self.next
        effects: list[Effect] = [ReportLoss(self.next, up_to - 1)]
        self.next = up_to
        self.end = max(self.end, up_to)
        self._forget_asks()
        return effects + self._advanced(now_s)

    def _forget_asks(self) -> None:
        self.ask_at_s, self.tries, self.asked_to = None, 0, 0
