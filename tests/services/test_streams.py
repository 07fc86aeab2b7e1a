"""Streams: item after item, held while the caller is behind."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from infobus import CallCancelled, CallMayHaveRun, Service, UsageError


class Counter(Service):
    def __init__(self):
        self.produced = 0
        self.ended = threading.Event()

    def count(self, upto: int) -> Iterator[int]:
        """Count."""
        try:
            for number in range(upto):
                self.produced = number + 1
                yield number
        finally:
            self.ended.set()

    async def count_async(self, upto: int) -> AsyncIterator[int]:
        for number in range(upto):
            yield number

    def fail_after(self, items: int) -> Iterator[int]:
        yield from range(items)
        raise ValueError("no more")

    def get_stuck(self) -> Iterator[int]:
        yield 1
        self.ended.wait(20)

    def top(self) -> int:
        return self.produced

    def wrong(self) -> Iterator[int]:
        yield "one"  # type: ignore[misc]


@pytest.fixture
def counter(bus):
    counter = Counter()
    bus.serve("svc.counter", counter)
    yield counter
    counter.ended.set()


@pytest.fixture
def client(counter, other):
    return other.service("svc.counter", timeout_s=20)


@pytest.mark.parametrize("operation", ["count", "count_async"])
def test_all_items_come_in_order(client, operation):
    assert list(client[operation](1000)) == list(range(1000))


def test_an_empty_stream(client):
    assert list(client.count(0)) == []


def test_its_signature_says_so(client):
    assert client.operations["count"].signature == "count(upto: int) -> stream of int"


def test_the_operation_is_held_while_the_caller_is_behind(client, counter):
    stream = client.count(100_000)
    assert next(stream) == 0
    held = -1
    while counter.produced != held:  # until it gets no further
        held = counter.produced
        time.sleep(0.05)
    assert held < 1000
    assert next(stream) == 1
    stream.close()


def test_closing_ends_the_operation(client, counter):
    with client.count(1_000_000) as stream:
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
    assert counter.ended.wait(20)
    assert list(stream) == []


def test_a_stream_that_nobody_holds_any_more_is_closed(client, counter):
    assert next(client.count(1_000_000)) == 0
    assert counter.ended.wait(20)


def test_items_come_before_the_error(client):
    stream, items = client.fail_after(3), []
    with pytest.raises(ValueError, match="no more"):
        items.extend(stream)
    assert items == [0, 1, 2]


def test_an_item_of_another_kind_ends_it(client):
    with pytest.raises(ValueError, match="expected int, got str 'one'"):
        list(client.wrong())


def test_each_item_has_its_time(client):
    stream = client.options(timeout_s=2.5).get_stuck()  # long enough for the first one
    assert next(stream) == 1
    with pytest.raises(CallMayHaveRun, match="no reply"):
        next(stream)


def test_cancelling_the_call_ends_the_stream(client):
    call = client.get_stuck.start()
    stream = call.result()
    assert next(stream) == 1
    call.cancel()
    with pytest.raises(CallCancelled):
        next(stream)


def test_streams_are_async_iterable(counter, other):
    async def main():
        client = other.aio.service("svc.counter")
        assert [number async for number in await client.count(200)] == list(range(200))
        with pytest.raises(ValueError, match="no more"):
            [number async for number in await client.fail_after(2)]

    asyncio.run(main())


def test_the_death_of_the_server_is_noticed(client, counter, bus):
    stream = client.get_stuck()
    assert next(stream) == 1
    threading.Thread(target=bus.close, args=(0,)).start()
    with pytest.raises(CallMayHaveRun, match="has died"):
        next(stream)


class TestAsyncFor:
    """A stream of `bus.aio` can be iterated as it is returned."""

    def test_items_come_in_order(self, other, counter):
        async def main():
            client = other.aio.service("svc.counter")
            assert [item async for item in client.count(200)] == list(range(200))
            assert [item async for item in await client.count(3)] == [0, 1, 2]

        asyncio.run(main())

    def test_leaving_it_ends_the_operation(self, other, counter):
        async def main():
            async for item in other.aio.service("svc.counter").count(1_000_000):
                if item == 3:
                    break

        asyncio.run(main())
        assert counter.ended.wait(20)

    def test_an_error_at_the_end_is_raised(self, other, counter):
        async def main():
            return [item async for item in other.aio.service("svc.counter").fail_after(2)]

        with pytest.raises(ValueError, match="no more"):
            asyncio.run(main())

    def test_what_is_no_stream_says_so(self, other, counter):
        async def main():
            async for _ in other.aio.service("svc.counter").top():
                pass

        with pytest.raises(UsageError, match="top is no stream: await it instead"):
            asyncio.run(main())
