"""What services need of the node they live in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

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
    now_s: Callable[[], float]
    """The time that never goes back."""

    def alive(self) -> Collection[str]:
        """The peers that can be seen."""

    def carry_out(
        self, effects: Sequence[Any], do: Callable[[Any], None], may_wait: bool
    ) -> Sequence[Any]:
        """Do what a machine says, in order; what only services know is handed to `do`.

        Frames leave from the calling thread, which waits, bounded, for a slow link, or else by
        another one. What the node says to itself is returned, to be taken in.
        """

    def learn(self, descriptors: list[bytes]) -> None:
        """Take in descriptors of types."""

    def refuse(self, error: BadFrame) -> None:
        """Count and note a frame that cannot be read."""

    def reply_store(self) -> ReplyStore | None:
        """Where replies are kept; None if that cannot be had."""
