"""Finding others and being found: `who_is_out_there`, the feed of presences, and `i_am`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from queue import Empty
from typing import Any, Literal, Self

from msgspec.structs import replace

from infobus.errors import BadFrame
from infobus.objects import codec
from infobus.objects.members import Members
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.discovery import Participant, attributes_of
from infobus.services.exchange import Exchange
from infobus.services.interface import Interface, read_interface
from infobus.subjects import matches
from infobus.waiters import Mailbox

What = Literal["arrived", "changed", "departed"]


@dataclass(frozen=True)
class Found:
    """Somebody who is out there, and what it says about itself."""

    node: str
    subject: str
    role: str
    load: int
    """Calls that run or wait, when it last said so."""
    since: float
    """When it began, by its own clock, in seconds since 1970."""
    info: dict[str, Any] = field(default_factory=dict)
    """What else it says: `version` and `tags`, and whatever its application adds."""
    presence: Presence = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, node: str, presence: Presence) -> Found:
        """What a participant says."""
        said = attributes_of(presence)
        for own in ("subject", "role", "load", "rank", "since", "application"):
            del said[own]
        about = (presence.subject, presence.role, presence.load, presence.since)
        return cls(node, *about, said, presence=presence)

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from all others."""
        return self.node, self.presence.id

    @property
    def application(self) -> str:
        """The name of its program (`connect(name=...)`), empty if it has none."""
        return self.presence.application

    @property
    def version(self) -> str:
        """The version it says it has."""
        return str(self.info.get("version", ""))

    @property
    def tags(self) -> list[str]:
        """The tags it says it has."""
        tags = self.info.get("tags")
        return [str(tag) for tag in tags] if isinstance(tags, list) else []

    @property
    def interface(self) -> Interface:
        """Of a server: what it can be asked to do; empty for others."""
        try:
            return read_interface(self.presence.interface)
        except BadFrame:
            return Interface("", Members())


@dataclass(frozen=True)
class PresenceChange:
    """Somebody has `arrived`, `changed` or `departed`."""

    what: What
    found: Found


class Watch:
    """A live feed of who comes and goes; it begins with those who are there.

    Iterate it, also with `async for`, or take one change with `next`.
    """

    def __init__(self, exchange: Exchange, pattern: str, role: str) -> None:
        self._exchange = exchange
        self._pattern = pattern
        self._role = role
        self._changes: Mailbox[PresenceChange | None] = Mailbox()
        self._is_closed = False
        self._request = exchange.watch(pattern, role, self._note)

    def _note(self, what: Any, participant: Participant) -> None:
        presence = participant.presence
        if self._role in ("", presence.role) and matches(self._pattern, presence.subject):
            self._changes.put(PresenceChange(what, Found.of(participant.node, presence)))

    def next(self, timeout_s: float | None = None) -> PresenceChange | None:
        """The next change; None if there was none in time, or the feed is closed."""
        try:
            return self._passed_on(self._changes.get(timeout=timeout_s))
        except Empty:
            return None

    def __iter__(self) -> Iterator[PresenceChange]:
        while (change := self.next()) is not None:
            yield change

    def __aiter__(self) -> AsyncIterator[PresenceChange]:
        return self

    async def __anext__(self) -> PresenceChange:
        change = self._passed_on(await self._changes.take())
        if change is None:
            raise StopAsyncIteration
        return change

    def _passed_on(self, change: PresenceChange | None) -> PresenceChange | None:
        if change is None:
            self._changes.put(None)  # for others that wait
        return change

    def close(self) -> None:
        """End the feed."""
        if not self._is_closed:
            self._is_closed = True
            self._exchange.watches.remove(self._note)
            self._exchange.close_question(self._request)
            self._changes.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class IAmHere:
    """A participant that others find by `who_is_out_there`. Made by `Bus.i_am`."""

    def __init__(
        self, exchange: Exchange, subject: str, role: str, info: Mapping[str, Any]
    ) -> None:
        self.subject = subject
        self.role = role
        self._exchange = exchange
        self._info = dict(info)
        encoded = codec.encode(self._info)[1]
        self._presence = exchange.announce(Presence(1, 0, subject, role, time.time(), encoded))

    def update(self, **info: Any) -> None:
        """Change what those who ask are told about it."""
        self._info |= info
        self._presence = replace(self._presence, info=codec.encode(self._info)[1])
        self._exchange.change(self._presence)

    def close(self) -> None:
        """Be there no longer."""
        self._exchange.withdraw(self._presence.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
