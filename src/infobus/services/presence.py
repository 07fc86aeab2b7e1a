"""Being out there in any role: a replica, a router, whatever others may look for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from msgspec.structs import replace

from infobus.objects import codec
from infobus.protocols.frames.invocation import Presence
from infobus.services.exchange import Exchange


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
        """Say something else about it to whoever asks."""
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
