"""Where sealed frames come in: opened, checked, counted, or handed on as they were put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from infobus.errors import BadFrame, PeerError
from infobus.keys import keys_intersect
from infobus.protocols.frames.security import (
    SEALED_TAG,
    Sealed,
    decode_sealed,
    is_frame,
    sender_of,
)
from infobus.protocols.security.seals import Seal, opened

_KEYS_COUNT_MAX = 10_000


class Opener(Protocol):
    """What an intake needs of its engine."""

    counts: Any
    on_complaint: Callable[[str, str], None]

    @property
    def seals(self) -> dict[str, tuple[Seal, ...]]:
        """By node, the seals that can be opened."""

    def on_plain(self, payload: bytes) -> None:
        """A frame has come that is not sealed."""


class SealedIntake:
    """What one declaration of a node receives. `place` tells it from the others."""

    def __init__(
        self, engine: Opener, pattern: str, place: int, on_frame: Callable[[bytes], None]
    ) -> None:
        self.place = place
        self._engine = engine
        self._pattern = pattern
        self._on_frame = on_frame
        self._keys: dict[str, bool] = {}  # whether they are in the pattern

    def take(self, payload: bytes) -> None:
        """Take in what the engine below has carried here."""
        engine = self._engine
        if payload[1:2] != SEALED_TAG:
            engine.on_plain(payload)
            return
        try:
            found = self.opened(engine.seals, decode_sealed(payload), self.place, self._is_key)
        except PeerError:
            engine.counts.unopened += 1
            return
        if found is None:
            engine.counts.repeated += 1
            return
        seal, plain = found
        if is_frame(plain) and not _is_by(seal.peer, plain):
            engine.counts.forged += 1
            engine.on_complaint(seal.peer, "sent a frame in another's name; it is ignored")
            return
        self._on_frame(plain)

    @staticmethod
    def opened(
        seals: dict[str, tuple[Seal, ...]],
        frame: Sealed,
        place: int,
        is_key: Callable[[str], bool],
    ) -> tuple[Seal, bytes] | None:
        """What a frame holds, and its seal; None if it has come before.

        Raises:
            BadFrame: It cannot be opened, or was put elsewhere.
        """
        of_sender = seals.get(frame.sender)
        if of_sender is None:
            raise BadFrame("a sealed frame of a node that has not shown who it is")
        if not is_key(frame.key):
            raise BadFrame("a sealed frame that was put elsewhere")
        return opened(frame, of_sender, place)

    def _is_key(self, key: str) -> bool:
        known = self._keys.get(key)
        if known is None:
            if len(self._keys) >= _KEYS_COUNT_MAX:
                self._keys.clear()
            known = self._keys[key] = "*" not in key and keys_intersect(self._pattern, key)
        return known


def _is_by(peer: str, frame: bytes) -> bool:
    """Whether a frame names `peer` as its sender."""
    start = 4 if frame[:1] == b"\xdc" else 2
    return frame.startswith(msgspec.msgpack.encode(peer), start) or sender_of(frame) == peer
