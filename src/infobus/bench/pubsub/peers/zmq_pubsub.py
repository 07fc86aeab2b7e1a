"""pyzmq: PUB and SUB over TCP on loopback, queues without a limit, so nothing is dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq

from infobus.bench.common.engines import free_port
from infobus.bench.pubsub.payload import PeerQuote
from infobus.bench.pubsub.peers import Note, PublishAll, RoundTrip


class ZmqPeer:
    """One PUB socket per publishing process; the address names the publisher's and the ponger's."""

    quote = PeerQuote

    @contextmanager
    def server(self) -> Iterator[str]:
        """Nothing to start; yields an endpoint for either direction."""
        yield f"tcp://127.0.0.1:{free_port()} tcp://127.0.0.1:{free_port()}"

    @contextmanager
    def publisher(self, address: str, subjects: Sequence[str]) -> Iterator[PublishAll]:
        """Topic and payload as the two parts of a message."""
        encode = msgspec.msgpack.Encoder().encode
        topics = [subject.encode() for subject in subjects]
        with zmq.Context() as context, _publishing(context, address.split()[0]) as socket:

            def publish_all(quotes: Sequence[Any]) -> None:
                send, count = socket.send_multipart, len(topics)
                for index, quote in enumerate(quotes):
                    send((topics[index % count], encode(quote)))

            yield publish_all

    @contextmanager
    def consumer(self, address: str, subjects: Sequence[str] | None, note: Note) -> Iterator[None]:
        """Topics are prefixes, so one topic covers all subjects."""
        decode = msgspec.msgpack.Decoder(PeerQuote).decode
        with _receiving(
            address.split()[0],
            ["bench."] if subjects is None else subjects,
            lambda payload: note(decode(payload).bid),
        ):
            yield

    @contextmanager
    def pinger(self, address: str) -> Iterator[RoundTrip]:
        """Both sockets are used on the caller's thread."""
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(PeerQuote).decode
        out, back = address.split()
        with (
            zmq.Context() as context,
            _publishing(context, out) as sender,
            _subscribed(context, back, ["bench.pong"]) as receiver,
        ):

            def round_trip(quote: Any, timeout_s: float) -> int | None:
                sender.send_multipart((b"bench.ping", encode(quote)))
                if not receiver.poll(int(timeout_s * 1000)):
                    return None
                return decode(receiver.recv_multipart()[1]).bid

            yield round_trip

    @contextmanager
    def ponger(self, address: str) -> Iterator[None]:
        """Answers from the receiving thread."""
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(PeerQuote).decode
        out, back = address.split()
        with zmq.Context() as context, _publishing(context, back) as sender:

            def answer(payload: bytes) -> None:
                sender.send_multipart((b"bench.pong", encode(decode(payload))))

            with _receiving(out, ["bench.ping"], answer):
                yield


def _publishing(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUB)
    socket.set_hwm(0)
    socket.linger = 0
    socket.bind(address)
    return socket


def _subscribed(
    context: zmq.Context[zmq.Socket[bytes]], address: str, topics: Sequence[str]
) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.SUB)
    socket.set_hwm(0)
    socket.linger = 0
    for topic in topics:
        socket.subscribe(topic)
    socket.connect(address)
    return socket


@contextmanager
def _receiving(
    address: str, topics: Sequence[str], on_payload: Callable[[bytes], None]
) -> Iterator[None]:
    """Call `on_payload` for each message, on a thread of its own."""
    stopping = threading.Event()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def loop() -> None:
        with _subscribed(context, address, topics) as socket:
            while not stopping.is_set():
                # Polled only when nothing waits, so that a busy loop pays for no poll.
                try:
                    on_payload(socket.recv_multipart(zmq.NOBLOCK)[1])
                except zmq.Again:
                    socket.poll(50)

    thread = threading.Thread(target=loop, name="bench-zmq")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        context.term()
