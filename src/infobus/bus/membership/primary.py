"""Being the primary of a service, or standing by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from infobus.protocols.frames.membership import Candidate
from infobus.waiters import Changed

if TYPE_CHECKING:
    from infobus.bus.membership.facade import Membership


class Primary:
    """This program's offer to be the primary of a service, until it is closed."""

    def __init__(
        self, membership: Membership, changed: Changed, id: str, service: str, rank: int
    ) -> None:
        self.service = service
        self._membership = membership
        self._changed = changed
        self._candidate = Candidate(id, service, rank)
        self._is_closed = False
        membership.claim(self._candidate, True)

    @property
    def is_primary(self) -> bool:
        """Whether this program is the primary now: never true in two programs at one time.

        It is true only while the view is stable. Ask right before you act as the primary: what
        takes long may end after somebody else has become it.
        """
        return not self._is_closed and self._membership.is_primary(self._candidate.id)

    def changes(self) -> PrimaryChanges:
        """Iterate, also with `async for`, over what `is_primary` becomes, from what it is now."""
        return PrimaryChanges(self, self._changed)

    @property
    def is_closed(self) -> bool:
        """Whether the offer was withdrawn."""
        return self._is_closed

    def close(self) -> None:
        """Be no candidate any more; somebody else may be the primary soon. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._membership.claim(self._candidate, False)

    def __enter__(self) -> Primary:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PrimaryChanges:
    """What `is_primary` becomes; ends when the offer is withdrawn or the bus is closed."""

    def __init__(self, role: Primary, changed: Changed) -> None:
        self._role = role
        self._changed = changed
        self._last: bool | None = None

    def _is_new(self) -> bool:
        return self._role.is_closed or self._role.is_primary != self._last

    def _next(self) -> bool | None:
        if self._role.is_closed:
            return None
        self._last = self._role.is_primary
        return self._last

    def __iter__(self) -> Iterator[bool]:
        while self._changed.wait_for(self._is_new, None):
            if (now := self._next()) is None:
                return
            yield now

    async def __aiter__(self) -> AsyncIterator[bool]:
        while True:
            await self._changed.until(self._is_new)
            if (now := self._next()) is None:
                return
            yield now
