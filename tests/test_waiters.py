"""What waits for a change gets it in time, and an interrupt leaves no lock behind."""

import signal
import threading

import pytest

from infobus.waiters import Changed

pytestmark = pytest.mark.world


@pytest.fixture
def lock():
    return threading.Lock()


@pytest.fixture
def changed(lock):
    return Changed(lock)


def test_it_returns_at_once_if_it_is_so(changed):
    assert changed.wait_for(lambda: True, None)


def test_it_gives_up_in_time(changed, lock):
    assert not changed.wait_for(lambda: False, 0.01)
    assert not lock.locked()


def test_all_who_wait_look_again_when_they_are_notified(changed, lock):
    come, found = [], []

    def wait():
        found.append(changed.wait_for(lambda: come, 60))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with lock:
        changed.notify_all()  # nothing has come yet: they go on waiting
    with lock:
        come.append(1)
        changed.notify_all()
    for thread in threads:
        thread.join(60)
    assert found == [True, True, True]


def test_an_interrupt_leaves_the_lock_free_wherever_it_strikes(changed, lock):
    def strike(signum, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for turn in range(500):  # `threading.Condition` fails one in fifty
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.001 + turn % 20 * 37e-6)
                while True:
                    changed.wait_for(lambda: False, 1e-6)
            assert lock.acquire(timeout=60)
            lock.release()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
