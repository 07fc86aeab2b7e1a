"""nats-py with nats-server: core NATS, callback subscriptions, limits too high to be met."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from infobus.bench.common.nats_server import UNLIMITED, nats_server
from infobus.bench.pubsub.payload import PeerQuote
from infobus.bench.pubsub.peers import Note, PublishAll, RoundTrip


class NatsPeer:
    """Clients of one server, which is started on a free loopback port."""

    quote = PeerQuote

    @contextmanager
    def server(self) -> Iterator[str]:
        """Starts nats-server; yields its URL."""
        with nats_server() as address:
            yield address

    @contextmanager
    def publisher(self, address: str, subjects: Sequence[str]) -> Iterator[PublishAll]:
        """One message per object, flushed at the end."""
        encode = msgspec.msgpack.Encoder().encode
        with asyncio.Runner() as runner:
            client = runner.run(_connect(address))

            async def publish(quotes: Sequence[Any]) -> None:
                count = len(subjects)
                for index, quote in enumerate(quotes):
                    await client.publish(subjects[index % count], encode(quote))
                await client.flush(timeout=60)

            yield lambda quotes: runner.run(publish(quotes))
            runner.run(client.close())

    @contextmanager
    def consumer(self, address: str, subjects: Sequence[str] | None, note: Note) -> Iterator[None]:
        """Callback subscriptions on an event loop of their own thread."""
        decode = msgspec.msgpack.Decoder(PeerQuote).decode

        async def on_message(message: Msg) -> None:
            note(decode(message.data).bid)

        async def start() -> Client:
            client = await _connect(address)
            for subject in ["bench.>"] if subjects is None else subjects:
                await _subscribe(client, subject, on_message)
            await client.flush(timeout=60)
            return client

        with _running(start):
            yield

    @contextmanager
    def pinger(self, address: str) -> Iterator[RoundTrip]:
        """The event loop runs only while a round trip is under way."""
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(PeerQuote).decode
        answers: asyncio.Queue[int] = asyncio.Queue()

        async def on_pong(message: Msg) -> None:
            answers.put_nowait(decode(message.data).bid)

        with asyncio.Runner() as runner:
            client = runner.run(_connect(address))
            runner.run(_subscribe(client, "bench.pong", on_pong))

            async def trip(quote: Any, timeout_s: float) -> int | None:
                await client.publish("bench.ping", encode(quote))
                with suppress(asyncio.TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        return await answers.get()
                return None

            yield lambda quote, timeout_s: runner.run(trip(quote, timeout_s))
            runner.run(client.close())

    @contextmanager
    def ponger(self, address: str) -> Iterator[None]:
        """Answers from inside the callback."""
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(PeerQuote).decode

        async def start() -> Client:
            client = await _connect(address)

            async def on_ping(message: Msg) -> None:
                await client.publish("bench.pong", encode(decode(message.data)))

            await _subscribe(client, "bench.ping", on_ping)
            return client

        with _running(start):
            yield


async def _connect(address: str) -> Client:
    return await nats.connect(address, allow_reconnect=False)


async def _subscribe(
    client: Client, subject: str, on_message: Callable[[Msg], Awaitable[None]]
) -> None:
    await client.subscribe(
        subject,
        cb=on_message,
        pending_msgs_limit=UNLIMITED,
        pending_bytes_limit=UNLIMITED,
    )


@contextmanager
def _running(start: Callable[[], Awaitable[Client]]) -> Iterator[None]:
    """A client whose event loop runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="bench-nats")
    thread.start()

    async def open_client() -> Client:
        return await start()

    try:
        client = asyncio.run_coroutine_threadsafe(open_client(), loop).result()
        yield
        asyncio.run_coroutine_threadsafe(client.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
