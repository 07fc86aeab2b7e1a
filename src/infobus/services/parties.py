"""The two parties of an exchange: who made a call, and whatever runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from infobus.protocols.frames import invocation as wire
from infobus.protocols.invocation import effects as calling
from infobus.protocols.invocation.offers import Id
from infobus.protocols.invocation.rules import Key


class Waiter(Protocol):
    """Whoever made a call. Its methods are called by any thread and do not wait."""

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

    def stop(self, id: Id) -> None:
        """Nobody waits for it any more."""

    def go_on(self, id: Id) -> None:
        """The caller of a stream has room for more items."""

    def drained(self) -> None:
        """The offer is retired, and all that it had begun is finished."""

    def asked_to_retire(self) -> None:
        """A newer server has taken over."""
