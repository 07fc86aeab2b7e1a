"""The times of membership, all counted in heartbeats, and who may begin a group."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Mode = Literal["majority", "any"]


class MembershipTerms(Struct, frozen=True, kw_only=True):
    """What the members of a group have to have in common, and their pace.

    The order of the three spans is what keeps two views from being stable at once: a member's
    lease ends before anyone promises to follow another leader, and both before it is given up.
    """

    heartbeat_s: float = 1.0
    founders: tuple[str, ...] = ()
    mode: Mode = "majority"
    alone_s: float = 1.0  # of silence, until somebody without founders begins a group

    @property
    def suspect_s(self) -> float:
        """A member that is silent for so long is given up."""
        return 2.3 * self.heartbeat_s

    @property
    def loyal_s(self) -> float:
        """For so long after hearing the leader, nobody promises to follow another one."""
        return 2.25 * self.heartbeat_s

    @property
    def lease_s(self) -> float:
        """For so long after a round that a quorum answered, its members may be stable."""
        return 2.2 * self.heartbeat_s


def name_of(member: str) -> str:
    """Return the name in a member's id.

    >>> name_of("oak#2")
    'oak'
    """
    return member.partition("#")[0]


def is_quorum(who: set[str], members: tuple[str, ...]) -> bool:
    """Whether these can decide for all: a majority, or half with the most senior member.

    >>> is_quorum({"a", "b"}, ("a", "b", "c")), is_quorum({"b"}, ("a", "b"))
    (True, False)
    >>> is_quorum({"a"}, ("a", "b")), is_quorum({"x", "y"}, ("a",))
    (True, False)
    """
    count = 2 * len(who.intersection(members))
    return count > len(members) or (count == len(members) > 0 and members[0] in who)
