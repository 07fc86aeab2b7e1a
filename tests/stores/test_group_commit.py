"""Threads that wait at the same time share a commit, and a failed one fails for all of them."""

import errno
import threading

import pytest

from infobus.errors import BusClosed, StoreError
from infobus.stores import commits
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
    while len(group._gathering.works) < count:
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


def assert_next_is_served(group, disk, first):
    """Another that comes behind the first is committed after it, and nobody else is."""
    another = Publisher(group, 2)
    wait_for_waiting(group, 1)
    disk.may_end.release(2)
    for one in (first, another):
        one.join(10)
    assert disk.commits == [[0], [2]]


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
    hit, told = sorted(
        (one.error for one in publishers[1:]), key=lambda e: isinstance(e, Exception)
    )
    assert isinstance(hit, KeyboardInterrupt)
    assert isinstance(told, StoreError)
    assert not told.retry_is_safe


def test_after_the_last_one_everybody_is_turned_away(group, disk):
    disk.may_end.release()
    group.run(1, is_last=True)
    with pytest.raises(BusClosed):
        group.run(2)
    assert disk.commits == [[1]]


def interrupt_waiting(monkeypatch, signals):
    """The next thread that wakes is hit by Ctrl-C, once it was woken by one of `signals`."""
    wait, hits = commits._Gate.wait, []

    def interrupted(gate):
        signal = wait(gate)
        if signal in signals and not hits:
            hits.append(signal)
            raise KeyboardInterrupt
        return signal

    monkeypatch.setattr(commits._Gate, "wait", interrupted)
    return hits


def test_one_that_was_to_lead_and_gave_up_leaves_it_to_the_next(group, disk, monkeypatch):
    """Ctrl-C while waiting: nobody may be left waiting for a leader that is gone."""
    hits = interrupt_waiting(monkeypatch, [commits._HOST])
    publishers = publishers_behind_one(group, disk, [1, 2])
    disk.may_end.release(2)
    for one in publishers:
        one.join(10)
        assert not one.is_alive()
    assert hits == [commits._HOST]
    [gone] = [one.work for one in publishers if isinstance(one.error, KeyboardInterrupt)]
    assert disk.commits == [[0], [3 - gone]]


def test_one_that_gave_up_while_the_commit_was_under_way_keeps_nobody_asleep(
    group, disk, monkeypatch
):
    hits = interrupt_waiting(monkeypatch, [commits._DONE, commits._LAST])
    publishers = publishers_behind_one(group, disk, [1, 2, 3, 4, 5, 6])
    disk.may_end.release(2)
    for one in publishers:
        one.join(10)
        assert not one.is_alive()
    assert len(hits) == 1
    assert disk.commits == [[0], [1, 2, 3, 4, 5, 6]]
    disk.may_end.release(3)
    for one in [Publisher(group, 7), Publisher(group, 8), Publisher(group, 9)]:
        one.join(10)
    assert sorted(work for commit in disk.commits[2:] for work in commit) == [7, 8, 9]


def test_one_that_gave_up_before_its_turn_is_not_committed(group, disk, monkeypatch):
    def wait(gate):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(commits._Gate, "wait", wait)
        first = Publisher(group, 0)
        assert disk.begun.acquire(timeout=10)
        second = Publisher(group, 1)
        second.join(10)
    assert isinstance(second.error, KeyboardInterrupt)
    assert_next_is_served(group, disk, first)


def test_those_of_the_last_round_are_waited_for_and_the_last_to_come_leads(
    group, disk, monkeypatch
):
    publishers = publishers_behind_one(group, disk, [1, 2, 3])
    disk.may_end.release(3)
    for one in publishers:
        one.join(10)
    patience = threading.Event()
    monkeypatch.setattr(commits.time, "sleep", lambda _: patience.wait(10))
    returned = [Publisher(group, 4), Publisher(group, 5)]
    wait_for_waiting(group, 2)
    group.run(6)
    patience.set()
    for one in returned:
        one.join(10)
    assert [sorted(commit) for commit in disk.commits] == [[0], [1, 2, 3], [4, 5, 6]]


def test_nobody_is_waited_for_in_vain_more_than_once(group, disk, monkeypatch):
    publishers = publishers_behind_one(group, disk, [1, 2, 3])
    disk.may_end.release(4)
    for one in publishers:
        one.join(10)
    pauses = []
    monkeypatch.setattr(commits.time, "sleep", pauses.append)
    group.run(4)
    assert len(pauses) == 1
    group.run(5)
    assert len(pauses) == 1
    assert disk.commits[2:] == [[4], [5]]


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


def test_without_a_free_file_descriptor_one_is_turned_away_and_the_others_are_served(
    group, disk, monkeypatch
):
    def pipe():
        raise OSError(errno.EMFILE, "Too many open files")

    first = Publisher(group, 0)
    assert disk.begun.acquire(timeout=10)
    with monkeypatch.context() as patched:
        patched.setattr(commits.os, "pipe", pipe)
        with pytest.raises(StoreError, match="Too many open files"):
            group.run(1)
    assert_next_is_served(group, disk, first)
