"""The effects that only membership asks for."""

from __future__ import annotations

from msgspec import Struct


class SaveState(Struct, frozen=True):
    """Have these values on disk before anything that follows is done; None removes one."""

    changes: dict[str, bytes | None]


class Installed(Struct, frozen=True):
    """There is a new view, or this member has come to know one by joining."""

    number: int
    members: tuple[str, ...]


class Excluded(Struct, frozen=True):
    """The others have gone on without this member since the view of this number, or later."""

    number: int


class Answered(Struct, frozen=True):
    """A request of this member was decided."""

    id: str
    result: bytes


MembershipEffect = SaveState | Installed | Excluded | Answered
