"""nats-py with nats-server: core NATS, callback subscriptions, limits too high to be met."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from infobus.bench.payload import Quote
from infobus.bench.peers import Note, PublishAll, RoundTrip, nats_server_path
from infobus.errors import EngineError

_UNLIMITED = 1 << 30


class Nats:
    """Clients of one server, which is started on a free loopback port."""

    quote = Quote

    @contextmanager
    def server(self, settings: str = "") -> Iterator[str]:
        """Starts nats-server, with further lines of settings; yields its URL."""
        path = nats_server_path()
        assert path is not None, "missing() is asked before any peer is loaded"
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder, "nats.conf")
            # The server cuts off a client that is 64 MB behind, unless told otherwise.
            config.write_text(f"listen: 127.0.0.1:-1\nmax_pending: {_UNLIMITED}\n{settings}")
            command = [str(path), "-c", str(config), "--ports_file_dir", folder]
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                try:
                    yield _wait_for_address(Path(folder), process)
                finally:
                    process.terminate()

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
        decode = msgspec.msgpack.Decoder(Quote).decode

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
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Quote).decode
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
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Quote).decode

        async def start() -> Client:
            client = await _connect(address)

            async def on_ping(message: Msg) -> None:
                await client.publish("bench.pong", encode(decode(message.data)))

            await _subscribe(client, "bench.ping", on_ping)
            return client

        with _running(start):
            yield


def _wait_for_address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """The address from the ports file, which the server writes once it listens."""
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and process.poll() is None:
        for ports in folder.glob("*.ports"):
            with suppress(json.JSONDecodeError, KeyError, IndexError):
                return str(json.loads(ports.read_text())["nats"][0])
        time.sleep(0.01)
    raise EngineError("nats-server did not begin to listen within 10 s")


async def _connect(address: str) -> Client:
    return await nats.connect(address, allow_reconnect=False)


async def _subscribe(
    client: Client, subject: str, on_message: Callable[[Msg], Awaitable[None]]
) -> None:
    await client.subscribe(
        subject,
        cb=on_message,
        pending_msgs_limit=_UNLIMITED,
        pending_bytes_limit=_UNLIMITED,
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
