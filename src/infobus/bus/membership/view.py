"""A view of the members, as programs get it."""

from __future__ import annotations

from msgspec import Struct, field


class MembersView(Struct, frozen=True):
    """Who is there, by agreement: the same views with the same numbers everywhere.

    Numbers are consecutive within a group. `leader` is the most senior member. `nodes` says at
    which node of the bus each member is, as far as that is known.
    """

    number: int
    members: tuple[str, ...]
    leader: str
    stable: bool
    nodes: dict[str, str] = field(default_factory=dict)


class ExcludedView(Struct, frozen=True):
    """The next view does not continue the one of this number: views between them may be missing.

    The daemon that is asked was excluded and has joined anew, or another group has taken over.
    """

    number: int
