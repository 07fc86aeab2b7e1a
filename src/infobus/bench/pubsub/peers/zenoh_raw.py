"""Raw zenoh-python: TCP on loopback, nothing dropped, objects decoded in the callback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import zenoh

from infobus.bench.common.engines import free_port
from infobus.bench.pubsub.payload import PeerQuote
from infobus.bench.pubsub.peers import Note, PublishAll, RoundTrip


class ZenohPeer:
    """Peers that link to the publisher directly; Zenoh needs no server."""

    quote = PeerQuote

    @contextmanager
    def server(self) -> Iterator[str]:
        """Nothing to start; yields the endpoint at which the publisher will listen."""
        yield f"tcp/127.0.0.1:{free_port()}"

    @contextmanager
    def publisher(self, address: str, subjects: Sequence[str]) -> Iterator[PublishAll]:
        """One declared publisher per subject, which blocks rather than drops."""
        with _session("listen", address) as session:
            puts = [_declare(session, subject).put for subject in subjects]
            encode = msgspec.msgpack.Encoder().encode

            def publish_all(quotes: Sequence[Any]) -> None:
                count = len(puts)
                for index, quote in enumerate(quotes):
                    puts[index % count](encode(quote))

            yield publish_all

    @contextmanager
    def consumer(self, address: str, subjects: Sequence[str] | None, note: Note) -> Iterator[None]:
        """Default callbacks, which decode; one subscriber per subject, or one for all."""
        decode = msgspec.msgpack.Decoder(PeerQuote).decode

        def on_sample(sample: zenoh.Sample) -> None:
            note(decode(sample.payload.to_bytes()).bid)

        with _session("connect", address) as session:
            keys = ["bench/**"] if subjects is None else [_key(subject) for subject in subjects]
            _subscribers = [session.declare_subscriber(key, on_sample) for key in keys]
            yield

    @contextmanager
    def pinger(self, address: str) -> Iterator[RoundTrip]:
        """Takes pongs from a queue, which the callback's thread fills."""
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(PeerQuote).decode
        answers: SimpleQueue[int] = SimpleQueue()

        def on_pong(sample: zenoh.Sample) -> None:
            answers.put(decode(sample.payload.to_bytes()).bid)

        with _session("listen", address) as session:
            # Held by name: a subscriber that becomes garbage falls silent.
            _subscriber = session.declare_subscriber("bench/pong", on_pong)
            put = _declare(session, "bench.ping").put

            def round_trip(quote: Any, timeout_s: float) -> int | None:
                put(encode(quote))
                try:
                    return answers.get(timeout=timeout_s)
                except Empty:
                    return None

            yield round_trip

    @contextmanager
    def ponger(self, address: str) -> Iterator[None]:
        """Answers from inside the callback."""
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(PeerQuote).decode
        with _session("connect", address) as session:
            put = _declare(session, "bench.pong").put

            def on_ping(sample: zenoh.Sample) -> None:
                put(encode(decode(sample.payload.to_bytes())))

            _subscriber = session.declare_subscriber("bench/ping", on_ping)
            yield


def _session(role: str, address: str) -> zenoh.Session:
    """A session that listens at `address` or connects to it, with infobus's lease."""
    config = zenoh.Config()
    settings = {
        "mode": "peer",
        "listen/endpoints": [address] if role == "listen" else [],
        "connect/endpoints": [address] if role == "connect" else [],
        "connect/exit_on_failure": False,
        "connect/timeout_ms": 10_000,
        "connect/retry": {"period_init_ms": 20, "period_max_ms": 100},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/link/tx/lease": 1000,
        "transport/link/tx/keep_alive": 4,
    }
    for path, value in settings.items():
        config.insert_json5(path, json.dumps(value))
    return zenoh.open(config)


def _declare(session: zenoh.Session, subject: str) -> zenoh.Publisher:
    return session.declare_publisher(
        _key(subject), congestion_control=zenoh.CongestionControl.BLOCK
    )


def _key(subject: str) -> str:
    return subject.replace(".", "/")
