"""Those who wait at the same time share a commit, and a failed one fails for all of them."""

import asyncio
import errno
import itertools
import threading

import pytest

from infobus.errors import BusClosed, StoreError
from infobus.stores.sqlite import group_commit
from infobus.stores.sqlite.group_commit import GroupCommit


class Disk:
    """Holds each commit until it is let through."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.commits = []
        self.threads = []
        self.error = None

    def commit(self, works):
        self.threads.append(threading.current_thread())
        self.begun.release()
        assert self.may_end.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        self.commits.append([*works])


class Publisher(threading.Thread):
    def __init__(self, group, work):
        super().__init__(daemon=True)
        self.group, self.work, self.error = group, work, None
        self.start()

    def run(self):
        try:
            self.group.run(self.work)
        except BaseException as error:
            self.error = error


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def group(disk):
    return GroupCommit("here", disk.commit, idle_s=0.001)


@pytest.fixture
def patience_s():
    return 60.0


@pytest.fixture
def patient_group(disk, patience_s, monkeypatch):
    """A group whose rounds wait so long for somebody to come."""
    ticks = itertools.count(0.0, patience_s)  # each commit takes as long, by this clock
    monkeypatch.setattr(group_commit.time, "perf_counter", ticks.__next__)
    return GroupCommit("here", disk.commit, patience_s_max=patience_s)


def wait_for_waiting(group, count):
    while len(group._gathering.works) < count:
        threading.Event().wait(0.001)


def publishers_behind_one(group, disk, works):
    """One publisher is committing, the others wait behind it."""
    first = Publisher(group, 0)
    assert disk.begun.acquire(timeout=60)
    others = []
    for count, work in enumerate(works, 1):
        others.append(Publisher(group, work))
        wait_for_waiting(group, count)
    return [first, *others]


def assert_next_is_served(group, disk, first):
    """Another that comes behind the first is committed after it, and nobody else is."""
    another = Publisher(group, 2)
    wait_for_waiting(group, 1)
    disk.may_end.release(2)
    for one in (first, another):
        one.join(60)
    assert disk.commits == [[0], [2]]


def test_one_alone_commits_at_once_on_its_own_thread(group, disk):
    disk.may_end.release(2)
    group.run(1)
    group.run(2)
    assert disk.commits == [[1], [2]]
    assert disk.threads == [threading.current_thread()] * 2


def test_those_that_wait_share_the_next_commit(group, disk):
    publishers = publishers_behind_one(group, disk, [1, 2, 3])
    disk.may_end.release(2)
    for one in publishers:
        one.join(60)
    assert disk.commits == [[0], [1, 2, 3]]


def test_a_failure_is_told_to_all_that_shared_it_and_to_no_one_else(group, disk):
    publishers = publishers_behind_one(group, disk, [1, 2])
    disk.may_end.release()
    assert disk.begun.acquire(timeout=60)
    disk.error = StoreError("no", path="here")
    disk.may_end.release()
    for one in publishers:
        one.join(60)
    assert [one.error for one in publishers] == [None, disk.error, disk.error]
    disk.error = None
    disk.may_end.release()
    group.run(4)
    assert disk.commits == [[0], [4]]


def test_one_that_is_interrupted_leaves_those_behind_it_served(group, disk):
    publishers = publishers_behind_one(group, disk, [1, 2])
    disk.error = KeyboardInterrupt()
    disk.may_end.release()
    assert disk.begun.acquire(timeout=60)
    disk.error = None
    disk.may_end.release()
    for one in publishers:
        one.join(60)
    assert isinstance(publishers[0].error, KeyboardInterrupt)
    assert disk.commits == [[1, 2]]


def test_after_the_last_one_everybody_is_turned_away(group, disk):
    disk.may_end.release()
    group.run(1, is_last=True)
    with pytest.raises(BusClosed):
        group.run(2)
    assert disk.commits == [[1]]


def interrupt_waiting(monkeypatch):
    """The next thread that wakes is hit by Ctrl-C."""
    wait, hits = group_commit._Gate.wait, []

    def interrupted(gate):
        signal = wait(gate)
        if not hits:
            hits.append(signal)
            raise KeyboardInterrupt
        return signal

    monkeypatch.setattr(group_commit._Gate, "wait", interrupted)
    return hits


def test_one_that_gave_up_while_the_commit_was_under_way_keeps_nobody_asleep(
    group, disk, monkeypatch
):
    hits = interrupt_waiting(monkeypatch)
    publishers = publishers_behind_one(group, disk, [1, 2, 3, 4, 5, 6])
    disk.may_end.release(2)
    for one in publishers:
        one.join(60)
        assert not one.is_alive()
    assert len(hits) == 1
    assert disk.commits == [[0], [1, 2, 3, 4, 5, 6]]
    disk.may_end.release(3)
    for one in [Publisher(group, 7), Publisher(group, 8), Publisher(group, 9)]:
        one.join(60)
    assert sorted(work for commit in disk.commits[2:] for work in commit) == [7, 8, 9]


def test_one_that_gave_up_before_its_turn_is_not_committed(group, disk, monkeypatch):
    def wait(gate):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(group_commit._Gate, "wait", wait)
        first = Publisher(group, 0)
        assert disk.begun.acquire(timeout=60)
        second = Publisher(group, 1)
        second.join(60)
    assert isinstance(second.error, KeyboardInterrupt)
    while group._thread is not None:  # it has nothing to do any more
        threading.Event().wait(0.001)
    assert_next_is_served(group, disk, first)


def test_those_of_the_last_round_are_waited_for(patient_group, disk):
    group = patient_group
    publishers = publishers_behind_one(group, disk, [1, 2, 3])
    disk.may_end.release(3)
    for one in publishers:
        one.join(60)
    returned = [Publisher(group, 4), Publisher(group, 5)]
    wait_for_waiting(group, 2)
    group.run(6)
    for one in returned:
        one.join(60)
    assert [sorted(commit) for commit in disk.commits] == [[0], [1, 2, 3], [4, 5, 6]]


def test_those_that_waited_behind_the_last_round_are_waited_for(patient_group, disk):
    """Else some would always wait for the commit of the others."""
    group = patient_group
    publishers = publishers_behind_one(group, disk, [1, 2])
    disk.may_end.release()
    assert disk.begun.acquire(timeout=60)  # of 1 and 2
    publishers.append(Publisher(group, 3))
    wait_for_waiting(group, 1)
    disk.may_end.release()
    for one in publishers[:3]:
        one.join(60)
    returned = [Publisher(group, 4), Publisher(group, 5)]
    assert disk.begun.acquire(timeout=60)
    disk.may_end.release()
    for one in [*publishers, *returned]:
        one.join(60)
    assert [sorted(commit) for commit in disk.commits] == [[0], [1, 2], [3, 4, 5]]


@pytest.mark.parametrize("patience_s", [0.1])
def test_nobody_is_waited_for_in_vain_more_than_once(patient_group, disk):
    group = patient_group
    publishers = publishers_behind_one(group, disk, [1, 2, 3])
    disk.may_end.release(4)
    for one in publishers:
        one.join(60)
    group.run(4)
    group.run(5)
    assert disk.commits[2:] == [[4], [5]]
    assert disk.threads[-1] is threading.current_thread()


def test_the_thread_ends_when_there_is_nothing_to_do_and_comes_again(group, disk):
    for _ in range(2):
        publishers = publishers_behind_one(group, disk, [1])
        disk.may_end.release(2)
        for one in publishers:
            one.join(60)
        thread = disk.threads[-1]
        thread.join(60)
        assert not thread.is_alive()
        assert disk.begun.acquire(timeout=60)
    assert disk.commits == [[0], [1]] * 2


def test_many_that_come_back_again_and_again_are_all_served(group, disk):
    disk.may_end.release(24 * 50)

    def publish(name):
        for count in range(50):
            group.run((name, count))

    threads = [threading.Thread(target=publish, args=(name,), daemon=True) for name in range(24)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    kept = [work for commit in disk.commits for work in commit]
    assert sorted(kept) == [(name, count) for name in range(24) for count in range(50)]


@pytest.mark.parametrize(
    ("where", "what", "error"),
    [
        (group_commit.os, "pipe", OSError(errno.EMFILE, "Too many open files")),
        (group_commit.threading.Thread, "start", RuntimeError("can't start new thread")),
    ],
)
def test_one_that_cannot_wait_is_turned_away_and_the_others_are_served(
    group, disk, monkeypatch, where, what, error
):
    def fail(*_):
        raise error

    first = Publisher(group, 0)
    assert disk.begun.acquire(timeout=60)
    with monkeypatch.context() as patched:
        patched.setattr(where, what, fail)
        with pytest.raises(StoreError, match="nothing was accepted now"):
            group.run(1)
    assert_next_is_served(group, disk, first)


class TestTasks:
    def test_those_of_one_turn_of_the_loop_share_a_commit_of_the_groups_own_thread(
        self, group, disk
    ):
        disk.may_end.release(10)

        async def main():
            await asyncio.gather(*(group.submit(number) for number in range(5)))

        asyncio.run(main())
        first, *others = disk.commits  # the thread may have begun when the first one came
        assert [*first, *(number for one in others for number in one)] == [0, 1, 2, 3, 4]
        assert len(others) <= 1
        assert threading.current_thread() not in disk.threads

    def test_they_come_back_together(self, patient_group, disk):
        group = patient_group
        disk.may_end.release(10)

        async def publish(number):
            for turn in range(3):
                await group.submit((turn, number))

        async def main():
            await asyncio.gather(*(publish(number) for number in range(4)))

        asyncio.run(main())
        assert [len(commit) for commit in disk.commits] == [4, 4, 4]

    def test_threads_and_tasks_share_a_commit(self, group, disk):
        async def main():
            first = Publisher(group, 0)
            assert disk.begun.acquire(timeout=60)
            task = group.submit(1)
            second = Publisher(group, 2)
            wait_for_waiting(group, 2)
            disk.may_end.release(2)
            await asyncio.wait_for(task, 60)
            for one in (first, second):
                one.join(60)

        asyncio.run(main())
        assert disk.commits == [[0], [1, 2]]

    def test_a_failure_is_told_to_threads_and_tasks(self, group, disk):
        async def main():
            first = Publisher(group, 0)
            assert disk.begun.acquire(timeout=60)
            disk.may_end.release()
            first.join(60)
            disk.error = StoreError("no", path="here")
            disk.may_end.release()
            with pytest.raises(StoreError, match="no"):
                await asyncio.wait_for(group.submit(1), 60)

        asyncio.run(main())

    def test_one_that_is_cancelled_is_committed_and_keeps_nobody_waiting(self, group, disk):
        disk.may_end.release(10)

        async def main():
            one, other = group.submit(1), group.submit(2)
            one.cancel()
            await asyncio.wait_for(other, 60)

        asyncio.run(main())
        assert disk.commits == [[1, 2]]

    def test_an_event_loop_that_is_gone_keeps_nobody_waiting(self, group, disk):
        first = Publisher(group, 0)
        assert disk.begun.acquire(timeout=60)

        async def leave():
            group.submit(1)

        asyncio.run(leave())
        another = Publisher(group, 2)
        wait_for_waiting(group, 2)
        disk.may_end.release(2)
        for one in (first, another):
            one.join(60)
            assert not one.is_alive()

    def test_after_the_last_one_they_are_turned_away(self, group, disk):
        disk.may_end.release()
        group.run(1, is_last=True)

        async def main():
            with pytest.raises(BusClosed):
                await group.submit(2)

        asyncio.run(main())
