"""Request and reply on each engine, done as its own documentation recommends.

Every engine carries the same in both directions: a map with one text in MessagePack, encoded and
decoded on both sides. Server and client are processes of their own, on loopback.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Protocol

import msgspec

from infobus.bench.common.engines import GRPC, INFOBUS, NATS, ZENOH, free_port
from infobus.bench.common.nats_server import nats_server
from infobus.bench.common.processes import Connected

ENGINES = (INFOBUS, ZENOH, NATS, GRPC)
AT_A_TIME = 64
TEXT = "x" * 100
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(dict[str, str]).decode


class CallPeer(Protocol):
    """The interface that the benchmark needs from an engine."""

    def address(self) -> AbstractContextManager[str]:
        """Starts whatever must run beside the programs; yields the address that they get."""

    def server(self, address: str) -> AbstractContextManager[None]:
        """Answers calls."""

    def client(self, address: str) -> AbstractContextManager[TakeTurn]:
        """Makes calls."""


TakeTurn = Callable[[float, int], list[float]]
"""Makes calls for so many seconds, so many at a time; returns how long each took."""


def _call_one_by_one(seconds: float, call: Callable[[], object]) -> list[float]:
    waits_s: list[float] = []
    start_s = now_s = time.perf_counter()
    while now_s - start_s < seconds:
        call()
        before_s, now_s = now_s, time.perf_counter()
        waits_s.append(now_s - before_s)
    return waits_s


def _call_many(
    seconds: float, count: int, start: Callable[[], Any], finish: Callable[[Any], object]
) -> list[float]:
    """Keep `count` calls under way, and wait for the oldest one."""
    waits_s: list[float] = []
    start_s = time.perf_counter()
    under_way: deque[tuple[float, Any]] = deque()
    while time.perf_counter() - start_s < seconds:
        while len(under_way) < count:
            under_way.append((time.perf_counter(), start()))
        began_s, call = under_way.popleft()
        finish(call)
        waits_s.append(time.perf_counter() - began_s)
    for _, call in under_way:
        finish(call)
    return waits_s


class InfobusCalls:
    """A service on the bus."""

    @contextmanager
    def address(self) -> Iterator[str]:
        """Nothing to start; yields the name of a bus."""
        yield f"bench-{time.time_ns():x}"

    @contextmanager
    def server(self, address: str) -> Iterator[None]:
        """Serves `echo`, and `gather`, which waits for 10,000 others."""
        import infobus

        with infobus.connect(address) as bus:
            bus.serve("bench.echo", _service(), concurrency=100_000)
            yield

    @contextmanager
    def client(self, address: str) -> Iterator[TakeTurn]:
        """Calls a method of the service."""
        import infobus

        with infobus.connect(address) as bus:
            echo = bus.service("bench.echo", timeout_s=60.0).echo
            echo(TEXT)

            def take_turn(seconds: float, count: int) -> list[float]:
                if count == 1:
                    return _call_one_by_one(seconds, lambda: echo(TEXT))
                return _call_many(
                    seconds, count, lambda: echo.start(TEXT), lambda call: call.result()
                )

            yield take_turn


def hold_many(address: str, count: int) -> tuple[int, float]:
    """Hold so many calls open at once; returns how many came back, and how long that took."""
    import infobus

    with infobus.connect(address) as bus:
        gather = bus.service("bench.echo", timeout_s=120.0).gather
        start_s = time.perf_counter()
        calls = [gather.start(count) for _ in range(count)]
        returned = sum(call.result() == count for call in calls)
        return returned, time.perf_counter() - start_s


def _service() -> object:
    from infobus.services import Service

    class Echo(Service):
        """Returns what it receives."""

        def __init__(self) -> None:
            self._waiting = 0
            self._all_came: asyncio.Event | None = None

        def echo(self, text: str) -> str:
            """Return the same text."""
            return text

        async def gather(self, count: int) -> int:
            """Wait until `count` calls have arrived."""
            if self._all_came is None:
                self._all_came = asyncio.Event()
            self._waiting += 1
            if self._waiting == count:
                self._all_came.set()
            await self._all_came.wait()
            return count

    return Echo()


class ZenohCalls:
    """A queryable, and `get`."""

    @contextmanager
    def address(self) -> Iterator[str]:
        """Nothing to start; yields the endpoint at which the server will listen."""
        yield f"tcp/127.0.0.1:{free_port()}"

    @contextmanager
    def server(self, address: str) -> Iterator[None]:
        """Replies in the callback."""
        with _zenoh_session("listen", address) as session:

            def reply(query: Any) -> None:
                with query:
                    text = _decode(query.payload.to_bytes())["text"]
                    query.reply("bench/echo", _encode({"value": text}))

            session.declare_queryable("bench/echo", reply)
            yield

    @contextmanager
    def client(self, address: str) -> Iterator[TakeTurn]:
        """Takes replies from the default channel, which is the fastest way."""
        with _zenoh_session("connect", address) as session:

            def start() -> Any:
                return session.get("bench/echo", payload=_encode({"text": TEXT}), timeout=60.0)

            def finish(replies: Any) -> str:
                return next(_decode(reply.ok.payload.to_bytes())["value"] for reply in replies)

            _until_it_works(lambda: finish(start()))

            def take_turn(seconds: float, count: int) -> list[float]:
                if count == 1:
                    return _call_one_by_one(seconds, lambda: finish(start()))
                return _call_many(seconds, count, start, finish)

            yield take_turn


def _until_it_works(call: Callable[[], object]) -> None:
    for _ in range(100):
        try:
            call()
        except StopIteration:  # the queryable is not known yet
            time.sleep(0.05)
        else:
            return
    call()


@contextmanager
def _zenoh_session(role: str, address: str) -> Iterator[Any]:
    import zenoh

    config = zenoh.Config()
    config.insert_json5(f"{role}/endpoints", json.dumps([address]))
    if role == "connect":
        config.insert_json5("listen/endpoints", "[]")
    config.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(config) as session:
        yield session


class NatsCalls:
    """nats-py, `request` and `respond`, through nats-server."""

    @contextmanager
    def address(self) -> Iterator[str]:
        """Starts nats-server."""
        with nats_server() as url:
            yield url

    @contextmanager
    def server(self, address: str) -> Iterator[None]:
        """Answers on an event loop of its own thread."""
        import nats

        ready, end = threading.Event(), threading.Event()

        async def answer(message: Any) -> None:
            await message.respond(_encode({"value": _decode(message.data)["text"]}))

        async def run() -> None:
            client = await nats.connect(address)
            await client.subscribe("bench.echo", cb=answer)
            await client.flush()
            ready.set()
            while not end.is_set():
                await asyncio.sleep(0.05)
            await client.close()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        ready.wait(10)
        try:
            yield
        finally:
            end.set()
            thread.join()

    @contextmanager
    def client(self, address: str) -> Iterator[TakeTurn]:
        """Runs each turn inside the event loop."""
        import nats

        with asyncio.Runner() as runner:
            client = runner.run(_coroutine(nats.connect(address)))

            async def call() -> str:
                reply = await client.request("bench.echo", _encode({"text": TEXT}), timeout=60)
                return _decode(reply.data)["value"]

            async def take_turn(seconds: float, count: int) -> list[float]:
                waits_s: list[float] = []
                start_s = time.perf_counter()

                async def work() -> None:
                    now_s = time.perf_counter()
                    while now_s - start_s < seconds:
                        await call()
                        before_s, now_s = now_s, time.perf_counter()
                        waits_s.append(now_s - before_s)

                await asyncio.gather(*(work() for _ in range(count)))
                return waits_s

            runner.run(call())
            yield lambda seconds, count: runner.run(take_turn(seconds, count))
            runner.run(client.close())


async def _coroutine(awaitable: Coroutine[Any, Any, Any]) -> Any:
    return await awaitable


class GrpcCalls:
    """grpcio: a unary method on a pool of threads, with MessagePack in place of protobuf."""

    @contextmanager
    def address(self) -> Iterator[str]:
        """Nothing to start; yields where the server will listen."""
        yield f"127.0.0.1:{free_port()}"

    @contextmanager
    def server(self, address: str) -> Iterator[None]:
        """A handler that echoes."""
        from concurrent.futures import ThreadPoolExecutor

        import grpc

        handler = grpc.unary_unary_rpc_method_handler(
            lambda request, context: {"value": request["text"]},
            request_deserializer=_decode,
            response_serializer=_encode,
        )
        server = grpc.server(ThreadPoolExecutor(AT_A_TIME))
        handlers = grpc.method_handlers_generic_handler("bench", {"echo": handler})
        server.add_generic_rpc_handlers((handlers,))
        server.add_insecure_port(address)
        server.start()
        try:
            yield
        finally:
            server.stop(None)

    @contextmanager
    def client(self, address: str) -> Iterator[TakeTurn]:
        """Makes blocking calls for one at a time, and futures for many."""
        import grpc

        with grpc.insecure_channel(address) as channel:
            echo = channel.unary_unary(
                "/bench/echo", request_serializer=_encode, response_deserializer=_decode
            )
            grpc.channel_ready_future(channel).result(10)

            def take_turn(seconds: float, count: int) -> list[float]:
                if count == 1:
                    return _call_one_by_one(seconds, lambda: echo({"text": TEXT})["value"])
                return _call_many(
                    seconds, count, lambda: echo.future({"text": TEXT}), lambda f: f.result()
                )

            yield take_turn


def load(engine: str) -> CallPeer:
    """The adapter of an engine."""
    peers: dict[str, type[Any]] = {
        INFOBUS: InfobusCalls,
        ZENOH: ZenohCalls,
        NATS: NatsCalls,
        GRPC: GrpcCalls,
    }
    peer: CallPeer = peers[engine]()
    return peer


def serve(pipe: Connection, engine: str, address: str) -> None:
    """The process that answers."""
    with load(engine).server(address):
        pipe.send(Connected())
        pipe.recv()


def call(pipe: Connection, engine: str, address: str) -> None:
    """The process that calls. It takes turns as ordered, and answers how long each call took."""
    with load(engine).client(address) as take_turn:
        pipe.send(Connected())
        while order := pipe.recv():
            pipe.send(take_turn(*order))


def hold(pipe: Connection, engine: str, address: str) -> None:
    """The process that has very many calls outstanding."""
    while count := pipe.recv():
        pipe.send(hold_many(address, count))
