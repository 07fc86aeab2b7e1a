"""A mailbox: threads wait for it and tasks await it, and no entry is lost on the way."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from infobus.waiters import Changed, Mailbox


@pytest.fixture
def mail():
    return Mailbox()


def test_entries_come_in_order_for_threads_and_for_tasks(mail):
    for number in range(4):
        mail.put(number)

    async def take_two():
        return [await mail.take(), await mail.take()]

    assert [mail.get(), mail.get()] == [0, 1]
    assert asyncio.run(take_two()) == [2, 3]


def test_a_task_is_woken_by_another_thread(mail):
    async def main():
        waiting = asyncio.create_task(mail.take())
        while not mail.sleepers:
            await asyncio.sleep(0)
        threading.Thread(target=mail.put, args=("news",)).start()
        return await asyncio.wait_for(waiting, 20)

    assert asyncio.run(main()) == "news"


@pytest.mark.parametrize("is_there_already", [True, False])
def test_a_wait_that_is_cancelled_takes_nothing(mail, is_there_already):
    """Also if the entry is put before the task has heard that it is cancelled."""

    async def main():
        for number in range(200):  # some of them are just about to let others run
            waiting = asyncio.create_task(mail.take())
            if is_there_already:
                mail.put(number)
            await asyncio.sleep(0)
            if not is_there_already:
                mail.put(number)
            waiting.cancel()
            try:
                taken = await waiting
            except asyncio.CancelledError:
                taken = mail.get_nowait()
            assert taken == number
        assert not mail.sleepers

    asyncio.run(main())


def test_a_wait_that_is_cancelled_after_it_was_woken_leaves_the_entry_to_the_others(mail):
    async def main():
        first, second = (asyncio.create_task(mail.take()) for _ in range(2))
        await asyncio.sleep(0)
        mail.put("news")
        first.cancel()
        return await asyncio.wait_for(second, 20)

    assert asyncio.run(main()) == "news"


def test_a_full_mailbox_does_not_starve_the_loop(mail):
    async def main():
        for number in range(1000):
            mail.put(number)
        turns = 0

        async def count_turns():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        for _ in range(1000):
            await mail.take()
        counting.cancel()
        return turns

    assert asyncio.run(main()) > 10


def test_threads_and_loops_share_it_and_each_entry_goes_to_one(mail):
    async def take_all():
        taken = []
        while (entry := await mail.take()) is not None:
            taken.append(entry)
        return taken

    def get_all():
        return list(iter(mail.get, None))

    with ThreadPoolExecutor(4) as pool:
        takers = [pool.submit(asyncio.run, take_all()) for _ in range(2)]
        takers += [pool.submit(get_all) for _ in range(2)]
        for number in range(2000):
            mail.put(number)
        for _ in takers:
            mail.put(None)
        taken = [entry for taker in takers for entry in taker.result(60)]
    assert sorted(taken) == list(range(2000))


def test_an_event_loop_that_was_closed_harms_nobody(mail):
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(mail.take())
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False
    loop.close()
    mail.put("news")
    assert mail.get_nowait() == "news"


def test_a_task_awaits_a_change_and_looks_again_each_time():
    lock = threading.Lock()
    changed, come = Changed(lock), []

    async def main():
        waiting = asyncio.create_task(changed.until(lambda: len(come) == 2))
        for number in range(2):
            await asyncio.sleep(0)
            assert not waiting.done()
            with lock:
                come.append(number)
                changed.notify_all()
        await asyncio.wait_for(waiting, 20)

    asyncio.run(main())
