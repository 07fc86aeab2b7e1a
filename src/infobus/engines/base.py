"""The interface between a node and the engine that carries its frames.

Keys are elements joined by `/`. If a key may be a pattern, `*` stands for one element and `**` for
any number of them. Three rules hold for every method:

* An engine never hears itself: neither its own frames, nor its own answers, nor its own
  tokens. A node that talks to itself does so without the engine.
* Callbacks run on the engine's threads, one at a time per declaration, never inside `put`.
  If one raises, the engine logs it once per kind of error, and delivers the next frame as usual.
* An engine is bound to the process that opened it. After `close`, and in a forked child, every
  method raises `BusClosed`, except `close` and `Declaration.undeclare`, which do nothing.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from infobus.errors import BusClosed

_Argument = TypeVar("_Argument")

log = logging.getLogger("infobus.engine")

DECLARATIONS_COUNT_MAX = 16
"""Channels to which a node listens one by one where each takes a thread, as with Zenoh."""


class Declaration(Protocol):
    """Something that this node has declared to the others, until it is undeclared."""

    def undeclare(self) -> None:
        """Withdraw it. Idempotent, and allowed within the declaration's own callback."""


class Links(NamedTuple):
    """The sessions that a node's own one has links to, by names that only the engine gives."""

    role: str  # `router` if it forwards for others, `client` if a router does so for it
    own: str
    others: tuple[str, ...]


class Engine(Protocol):
    """Carries frames between nodes, finds the nodes, and notices when one is gone."""

    declarations_count_max: int
    """Past so many channels a node listens to all of them instead."""

    def open(self, node: str) -> None:
        """Join the bus as `node`; returning means that the nodes on this host were met.

        Raises:
            EngineError: The engine could not be opened; the message says why.
        """

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` to every other node that declared `key`.

        Data of greater `urgency` overtakes other data that waits for a link, if the engine can do
        that.

        Frames of one node on one key arrive in the order of their puts, separately for control and
        for data of each urgency. If a receiver is behind, a data frame waits for it, at most about
        a second; then that receiver is cut off, its token disappears, and it returns as a newcomer.
        A control frame does not wait: it is dropped, and its protocol asks again.
        """

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Call `on_frame` with each frame that other nodes put on `key` (may be a pattern)."""

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declaration:
        """Answer queries on `key` with the result of `handler` for their payload."""

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask every other node that answers on `key` (may be a pattern).

        Returns the answers that arrived in time, in their order of arrival. A node that failed to
        answer is missing from the list; an empty list means that nobody answered.
        """

    def announce(self, key: str) -> Declaration:
        """Show a token on `key` for as long as this node is alive and connected.

        Two nodes must not announce the same key: watchers could not distinguish them.
        """

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Call `on_change(key, alive)` when a token of another node appears or disappears.

        Tokens that exist already are reported before this returns.
        """

    def endpoints(self) -> dict[str, str]:
        """What became of each endpoint that it was given: `listening`, `linked`, or why not."""

    def links(self) -> Links:
        """Which sessions this node's own one is linked with now."""

    def close(self) -> None:
        """Leave the bus; frames that were put before are still sent. Idempotent."""


class Guarded:
    """Calls a user's function so that no exception of it reaches the engine."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._logged: set[type[Exception]] = set()

    def report(self, error: Exception) -> None:
        """Log `error`, unless one of its kind was already logged for this declaration."""
        if type(error) not in self._logged:
            self._logged.add(type(error))
            log.error(
                "a callback on key %r raised %s; it goes on with the next frame, and further "
                "errors of this kind are not logged",
                self._key,
                type(error).__name__,
                exc_info=error,
            )

    def wrap(self, function: Callable[[_Argument], None]) -> Callable[[_Argument], None]:
        """Return `function` with its exceptions reported instead of raised."""

        def guarded(argument: _Argument) -> None:
            try:
                function(argument)
            except Exception as error:
                self.report(error)

        return guarded


class Abandonable(Protocol):
    """An engine that can be left behind in a forked child."""

    def abandon(self) -> None:
        """Become closed without touching anything that threads of the parent hold."""


_open_engines: weakref.WeakSet[Abandonable] = weakref.WeakSet()


def abandon_in_forked_child(engine: Abandonable) -> None:
    """Close `engine` in every forked child: threads and locks do not survive a fork."""
    _open_engines.add(engine)


def closed_error(*, forked: bool, opened: bool) -> BusClosed:
    """Return the error that says why an engine cannot be used."""
    if forked:
        return BusClosed(
            "this bus was connected before a fork and belongs to the parent process: connect "
            "again in the child, or start the child with the 'spawn' method"
        )
    return BusClosed("the engine is closed" if opened else "the engine is not open yet")


def _abandon_all() -> None:
    for engine in list(_open_engines):
        engine.abandon()
    _open_engines.clear()


os.register_at_fork(after_in_child=_abandon_all)
