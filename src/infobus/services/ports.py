"""What an exchange of calls needs of others: its node, a store of replies, callers, and runners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from infobus.errors import BadFrame
from infobus.protocols.frames import invocation as wire
from infobus.protocols.invocation import effects as calling
from infobus.protocols.invocation.offers import Id
from infobus.protocols.invocation.rules import Key
from infobus.security.policy import Action


class ReplyStore(Protocol):
    """Keeps the replies of calls that must run exactly once, across crashes."""

    id: str
    """Servers with the same store have the same id."""

    def claim(self, call: str, owner: str, use: str) -> tuple[str, bytes]:
        """Begin a call, if nobody has: ("", b"") then. Returning means that this is on disk.

        Else who has begun it, and its answer if there is one. Raises `UsageError` if the id was
        given to a call with another `use`: of something else, or with other arguments.
        """

    def take_over(self, call: str, owner: str, new_owner: str) -> bool:
        """Begin a call once more that `owner` had begun; False if somebody else was quicker."""

    def keep(self, call: str, answer: bytes) -> None:
        """A call has its answer. Returning means that this is on disk."""

    def forget(self, calls: Collection[str], instead: bytes) -> None:
        """The callers have the answers; `instead` answers copies that are still on their way."""


class NodePort(Protocol):
    """A node as services see it."""

    name: str
    application: str
    """The name of its program, empty if it has none."""
    test: bool
    """A program under development."""
    now_s: Callable[[], float]
    """The time that never goes back."""
    answers_s: float
    """How long a caller who compares servers waits for those that do not answer."""

    def alive(self) -> Collection[str]:
        """The peers that can be seen."""

    def carry_out(
        self, effects: Sequence[Any], do: Callable[[Any], None], may_wait: bool
    ) -> Sequence[Any]:
        """Do what a machine says, in order; what only services know is handed to `do`.

        Frames leave from the calling thread, which waits, bounded, for a slow link, or else by
        another one. What the node says to itself is returned, to be taken in.
        """

    def check(self, action: Action, subject: str) -> None:
        """Raise `NotAllowed` if this node may not do that on a secured bus."""

    def accepts(self, node: str, action: Action, subject: str) -> bool:
        """Whether another node may do that on a secured bus."""

    def accepts_retiring(self, node: str, subject: str) -> bool:
        """Whether another node may have the servers of a subject here retire."""

    def refusal(self, node: str, action: Action, subject: str) -> tuple[str, int]:
        """Why another node may not do that, and the version of the policy that says so."""

    def learn(self, descriptors: list[bytes]) -> None:
        """Take in descriptors of types."""

    def is_for_us(self, message: Any) -> bool:
        """Whether a frame is for this node; if not, that is complained of."""

    def refuse(self, error: BadFrame) -> None:
        """Count and note a frame that cannot be read."""

    def reply_store(self) -> ReplyStore | None:
        """Where replies are kept; None if that cannot be had."""


class Waiter(Protocol):
    """The maker of a call. Any thread may call its methods, which do not wait."""

    def returned(self, body: bytes, server: Key) -> None:
        """It has its result."""

    def raised(self, error: bytes, server: Key) -> None:
        """It has raised an exception."""

    def yielded(self, bodies: list[bytes]) -> None:
        """It has its next items."""

    def given_up(self, given_up: calling.GivenUp) -> None:
        """It has no answer."""

    def ended(self, error: Exception) -> None:
        """The bus was closed."""


class Runner(Protocol):
    """Whatever runs the calls of an offer."""

    def run(self, id: Id, call: wire.Call) -> Callable[[], None] | None:
        """Begin; does not wait, but may return what is left for a thread to do."""

    def is_async(self, operation: str) -> bool:
        """Whether an operation runs on the event loop of the node."""

    def stop(self, id: Id) -> None:
        """Nobody waits for it any more."""

    def go_on(self, id: Id) -> None:
        """The caller of a stream has room for more items."""

    def drained(self) -> None:
        """The offer is retired, and all that it had begun is finished."""

    def asked_to_retire(self) -> None:
        """A newer server has taken over."""
