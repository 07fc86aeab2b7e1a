"""How events of a lane are gathered into frames, told without clocks and threads."""

from collections.abc import Callable
from typing import Any

import pytest

from infobus.bus.clock import Clock
from infobus.bus.publish.gather import (
    ALONE,
    BEHIND_S,
    FIRST,
    FULL,
    ITEM_BYTES,
    JOINED,
    RECEIVERS_COUNT_MAX,
    STREAM_COUNT,
    STREAM_S,
    Gathering,
    Taken,
)
from infobus.bus.publish.outlet import Batch, Flusher, Outlet
from infobus.bus.threads import Job
from infobus.errors import Backpressure
from infobus.protocols.frames import wire
from infobus.protocols.frames.wire import Item
from infobus.protocols.reliable.peer import Parted, Route, Terms


def item(number: int, time_s: float = 0.0, size: int = 1) -> Item:
    return Item("x", number, time_s, 0, b"x" * size)


class TestGathering:
    def take(
        self, gathering: Gathering, size: int = 1, now_s: float = 0.0, more: bool = False
    ) -> Taken:
        return gathering.take(item(0, now_s, size), size, more)

    def test_after_a_pause_an_event_leaves_alone(self) -> None:
        gathering = Gathering(1000)
        assert self.take(gathering, now_s=10.0) is ALONE
        assert not gathering.pending

    def test_soon_after_another_an_event_waits_and_others_join_it(self) -> None:
        gathering = Gathering(1000)
        gathering.left(1, 10.0)
        assert self.take(gathering, now_s=10.0 + BEHIND_S / 2) is FIRST
        assert self.take(gathering, now_s=99.0) is JOINED
        assert len(gathering.release(1)) == 2

    def test_a_moment_later_it_leaves_alone_again(self) -> None:
        gathering = Gathering(1000)
        gathering.left(1, 10.0)
        assert self.take(gathering, now_s=10.0 + 2 * BEHIND_S) is ALONE

    def test_a_stream_may_be_held_up_for_longer(self) -> None:
        gathering = Gathering(1000)
        gathering.left(STREAM_COUNT, 10.0)
        assert self.take(gathering, now_s=10.0 + STREAM_S / 2) is FIRST

    def test_events_that_others_follow_wait(self) -> None:
        assert self.take(Gathering(1000), now_s=10.0, more=True) is FIRST

    def test_a_batch_gathers_always(self) -> None:
        assert self.take(Gathering(1000, is_batch=True), now_s=10.0) is FIRST

    def test_a_large_event_leaves_alone_whatever_follows(self) -> None:
        assert self.take(Gathering(1000), size=1000, more=True) is ALONE

    def test_a_full_frame_has_to_leave_before_the_next_event_is_taken(self) -> None:
        gathering = Gathering(2 * (1 + ITEM_BYTES))
        taken = [self.take(gathering, more=True) for _ in range(4)]
        assert taken == [FIRST, JOINED, FULL, FULL]
        assert gathering.is_full()
        assert len(gathering.release(1)) == 2
        assert not gathering.is_full()
        assert self.take(gathering, more=True) is FIRST

    @pytest.mark.parametrize(
        ("receivers", "times"), [(0, 1), (1, 1), (3, 3), (100, RECEIVERS_COUNT_MAX)]
    )
    def test_frames_for_many_receivers_are_larger(self, receivers: int, times: int) -> None:
        gathering = Gathering(1000)
        gathering.release(receivers)
        assert gathering.bytes_max == 1000 * times

    def test_a_batch_is_as_large_as_it_was_asked_for(self) -> None:
        batch = Gathering(1000, is_batch=True)
        batch.release(100)
        assert batch.bytes_max == 1000

    def test_a_run_is_cut_into_frames_of_about_that_size(self) -> None:
        gathering = Gathering(10 * (36 + ITEM_BYTES))
        assert gathering.step(100, 3600) == 10
        assert gathering.step(3, 10**6) == 1, "a frame has at least one event"


class Jobs:
    """A worker, and threads, whose jobs are done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Job]] = []

    def worker(self, name: str) -> "Jobs":
        return self

    def every(self, period_s: float, job: Job, name: str) -> Callable[[], None]:
        raise NotImplementedError

    def do(self, job: Job, after_s: float = 0.0) -> None:
        self.waiting.append((after_s, job))

    def stop(self, timeout_s: float = 0.0) -> None:
        self.waiting.clear()

    def run(self) -> list[float]:
        """Do what waits now; after how long each was to be done."""
        waiting, self.waiting = self.waiting, []
        for _, job in waiting:
            job()
        return [after_s for after_s, _ in waiting]


class Lane:
    """An outlet on a clock that stands still, and the frames that leave it."""

    def __init__(self, batch: Batch | None = None, **terms: Any) -> None:
        self.now_s = 100.0
        self.frames: list[list[int]] = []
        self.jobs = Jobs()
        flusher = Flusher("test", batch, self.jobs, gather_bytes=1000)
        flusher.start()
        self.outlet = Outlet(
            "me",
            "x",
            Route.on(Terms(**terms), Parted()),
            put=self.put,
            describe_types=lambda types: [],
            wait_for_room=self.refuse,
            on_expired=lambda run: None,
            flusher=flusher,
            clock=Clock(lambda: self.now_s, lambda: self.now_s),
        )

    def put(self, frame: bytes) -> None:
        message = wire.decode(frame)
        assert isinstance(message, wire.Data)
        self.frames.append(list(message.items.each_number()))

    def refuse(self, outlet: Outlet) -> None:
        raise Backpressure("full", waiting_for=("somebody",))

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.outlet.send(item(number, self.now_s), 1, (), False)


class TestOutlet:
    def test_a_first_event_leaves_at_once_and_those_right_behind_it_leave_together(self) -> None:
        lane = Lane()
        lane.send(1, 2, 3)
        assert lane.frames == [[1]]
        assert lane.jobs.run() == [0.0]
        assert lane.frames == [[1], [2, 3]]

    def test_a_batch_leaves_when_its_time_is_over(self) -> None:
        lane = Lane(Batch(ms=5))
        lane.send(1, 2)
        assert lane.frames == []
        assert lane.jobs.run() == [0.005]
        assert lane.frames == [[1, 2]]

    def test_what_finds_no_room_is_tried_again_and_nothing_is_lost(self) -> None:
        lane = Lane(window_count_max=1)
        lane.outlet.route.join("slow", now_s=0.0)
        lane.send(1, 2)
        assert lane.jobs.run() == [0.0]
        assert lane.frames == [[1]]
        lane.outlet.route.leave("slow")
        assert lane.jobs.run() == [0.001]
        assert lane.frames == [[1], [2]]
        assert lane.jobs.run() == []

    def test_the_flusher_is_asked_once_however_much_is_gathered(self) -> None:
        lane = Lane(Batch(ms=300))
        lane.send(1)
        lane.outlet.flush()
        lane.send(2, 3)
        assert len(lane.jobs.waiting) == 1

    def test_what_a_publisher_could_not_flush_in_time_leaves_once_there_is_room(self) -> None:
        lane = Lane(window_count_max=1)
        lane.outlet.route.join("slow", now_s=0.0)
        lane.send(1)
        lane.outlet.send(item(2, lane.now_s), 1, (), gather=True)  # its publisher flushes it
        with pytest.raises(Backpressure):
            lane.outlet.flush()
        lane.outlet.route.leave("slow")
        lane.jobs.run()
        assert lane.frames == [[1], [2]]
