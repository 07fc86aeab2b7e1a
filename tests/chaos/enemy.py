"""Frames that nobody honest sends: noise, broken ones, and whole ones of nodes that are not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from infobus.protocols.frames import wire


def frames(luck: random.Random, me: str, nodes: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Keys and frames without end. None claims to come from an honest node."""
    while True:
        ghost = f"ghost-{luck.randrange(1000)}"
        key = luck.choice(["all", "c/red", "c/blue", "c/kept", f"n/{luck.choice(nodes)}"])
        whole = luck.choice([_event, _bye, _row])(luck, luck.choice([me, ghost]))
        frame = luck.choice([_as_it_is, _flipped, _cut, _noise])(luck, whole)
        yield key, frame


def _event(luck: random.Random, sender: str) -> bytes:
    item = wire.Item("red.1", luck.randrange(2**40), 0.0, luck.randrange(2**60), b"\x81\xa1n\x01")
    return wire.encode(wire.Data(sender, "red", luck.randrange(2**40), wire.Items.of([item])))


def _bye(luck: random.Random, sender: str) -> bytes:
    return wire.encode(wire.Bye(sender, {}))


def _row(luck: random.Random, sender: str) -> bytes:
    return bytes([0x93, luck.randrange(64)]) + wire.encode(wire.Bye(sender, {}))[1:]


def _as_it_is(luck: random.Random, frame: bytes) -> bytes:
    return frame


def _flipped(luck: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    changed[luck.randrange(len(frame))] ^= 1 << luck.randrange(8)
    return bytes(changed)


def _cut(luck: random.Random, frame: bytes) -> bytes:
    return frame[: luck.randrange(len(frame))]


def _noise(luck: random.Random, frame: bytes) -> bytes:
    return luck.randbytes(luck.randrange(200))
