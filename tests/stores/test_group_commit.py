"""Threads that wait at the same time share a commit, and a failed one fails for all of them."""

import threading

import pytest

from infobus.errors import BusClosed, StoreError
from infobus.stores.commits import GroupCommit


class Disk:
    """Holds each commit until it is let through."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.commits = []
        self.error = None

    def commit(self, works):
        self.begun.release()
        assert self.may_end.acquire(timeout=10)
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
    return GroupCommit("here", disk.commit)


def wait_for_waiting(group, count):
    while len(group._waiting) < count:
        threading.Event().wait(0.001)


def publishers_behind_one(group, disk, works):
    """One publisher is committing, the others wait behind it."""
    first = Publisher(group, 0)
    assert disk.begun.acquire(timeout=10)
    others = []
    for count, work in enumerate(works, 1):
        others.append(Publisher(group, work))
        wait_for_waiting(group, count)
    return [first, *others]


def test_one_alone_commits_at_once_on_its_own_thread(group, disk):
    disk.may_end.release()
    group.run(1)
    assert disk.commits == [[1]]


def test_those_that_wait_share_the_next_commit(group, disk):
    publishers = publishers_behind_one(group, disk, [1, 2, 3])
    disk.may_end.release(2)
    for one in publishers:
        one.join(10)
    assert disk.commits == [[0], [1, 2, 3]]


def test_a_failure_is_told_to_all_that_shared_it_and_to_no_one_else(group, disk):
    publishers = publishers_behind_one(group, disk, [1, 2])
    disk.may_end.release()
    assert disk.begun.acquire(timeout=10)
    disk.error = StoreError("no", path="here")
    disk.may_end.release()
    for one in publishers:
        one.join(10)
    assert [one.error for one in publishers] == [None, disk.error, disk.error]
    disk.error = None
    disk.may_end.release()
    group.run(4)
    assert disk.commits == [[0], [4]]


def test_an_interrupted_leader_leaves_the_others_with_an_error_of_their_own(group, disk):
    publishers = publishers_behind_one(group, disk, [1, 2])
    disk.may_end.release()
    assert disk.begun.acquire(timeout=10)
    disk.error = KeyboardInterrupt()
    disk.may_end.release()
    for one in publishers:
        one.join(10)
    assert isinstance(publishers[1].error, KeyboardInterrupt)
    assert isinstance(publishers[2].error, StoreError)
    assert not publishers[2].error.retry_is_safe


def test_after_the_last_one_everybody_is_turned_away(group, disk):
    disk.may_end.release()
    group.run(1, is_last=True)
    with pytest.raises(BusClosed):
        group.run(2)
    assert disk.commits == [[1]]


def test_one_that_was_to_lead_and_gave_up_leaves_it_to_the_next(group, disk):
    """Ctrl-C while waiting: nobody may be left waiting for a leader that is gone."""
    publishers = publishers_behind_one(group, disk, [1, 2])
    with group._guard:
        doomed = group._waiting[0]
    group._give_up(doomed)
    doomed.gate.release()  # and is woken by the interruption
    disk.may_end.release(2)
    for one in (publishers[0], publishers[2]):
        one.join(10)
    assert disk.commits == [[0], [2]]


@pytest.mark.parametrize("is_late", [False, True])
def test_one_that_gave_up_keeps_nobody_asleep(group, disk, is_late):
    """Ctrl-C while the commit is under way, or when the commit is done and others still sleep."""
    publishers = publishers_behind_one(group, disk, [1, 2, 3, 4, 5, 6])
    with group._guard:
        doomed = group._waiting[1]
    disk.may_end.release()
    assert disk.begun.acquire(timeout=10)
    if is_late:
        gate, doomed.gate = doomed.gate, threading.Lock()
        doomed.gate.acquire()  # its turn comes, and it does not notice
        disk.may_end.release()
        publishers[1].join(10)
        assert doomed.gate.acquire(timeout=10)
        group._give_up(doomed)
    else:
        gate = doomed.gate
        group._give_up(doomed)
        disk.may_end.release()
    for one in publishers[3:]:
        one.join(10)
        assert not one.is_alive()
    gate.release()
    publishers[2].join(10)
    assert disk.commits == [[0], [1, 2, 3, 4, 5, 6]]


def test_many_that_come_back_again_and_again_are_all_served(group, disk):
    disk.may_end.release(24 * 50)

    def publish(name):
        for count in range(50):
            group.run((name, count))

    threads = [threading.Thread(target=publish, args=(name,), daemon=True) for name in range(24)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    kept = [work for commit in disk.commits for work in commit]
    assert sorted(kept) == [(name, count) for name in range(24) for count in range(50)]
