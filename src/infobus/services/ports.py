"""What services need of the node they live in."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from infobus.errors import BadFrame


class ReplyStore(Protocol):
    """Keeps the replies of calls that must run exactly once, across crashes."""

    id: str
    """Servers with the same store have the same id."""

    def claim(self, call: str, owner: str) -> tuple[str, bytes]:
        """Begin a call, if nobody has: ("", b"") then. Returning means that this is on disk.

        Else who has begun it, and its answer if there is one.
        """

    def take_over(self, call: str, owner: str, new_owner: str) -> bool:
        """Begin a call once more that `owner` had begun; False if somebody else was quicker."""

    def keep(self, call: str, answer: bytes) -> None:
        """A call has its answer. Returning means that this is on disk."""

    def forget(self, calls: Collection[str], instead: bytes) -> None:
        """The callers have the answers; `instead` answers copies that are still on their way."""


class Node(Protocol):
    """A node as services see it."""

    name: str
    test: bool
    """A program under development."""

    def alive(self) -> Collection[str]:
        """The peers that can be seen."""

    def send(self, peer: str, frame: bytes) -> None:
        """Put a frame into a peer's inbox; waits, bounded, for a slow link."""

    def post(self, peer: str, frame: bytes, bulk: bool) -> None:
        """The same, without waiting: a frame that is not `bulk` may be let go."""

    def post_to_all(self, frame: bytes) -> None:
        """Put a frame where every node hears it; it may be let go."""

    def learn(self, descriptors: list[bytes]) -> None:
        """Take in descriptors of types."""

    def refuse(self, error: BadFrame) -> None:
        """Count and note a frame that cannot be read."""

    def complain(self, source: str, what: str) -> None:
        """Note, and log once per `source`, that it did something wrong."""

    def reply_store(self) -> ReplyStore | None:
        """Where replies are kept; None if that cannot be had."""
