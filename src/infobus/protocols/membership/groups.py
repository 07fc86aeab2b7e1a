"""Groups: their names, and which of two groups continues when they meet."""

from __future__ import annotations

import hashlib

from infobus.protocols.frames.membership import GroupLabel


def founded_group(founders: tuple[str, ...]) -> tuple[GroupLabel, tuple[str, ...]]:
    """The group that these founders begin, and its members: the same for all of them.

    >>> founded_group(("oak", "elm"))
    (GroupLabel(birth='f-a091c692161dd653', era=0, maker=''), ('elm#0', 'oak#0'))
    """
    names = sorted(set(founders))
    digest = hashlib.sha256(",".join(names).encode()).hexdigest()
    return GroupLabel(f"f-{digest[:16]}"), tuple(f"{name}#0" for name in names)


def lone_group(stamp: int, member: str) -> GroupLabel:
    """The group that one member begins; a lower stamp means that it is older.

    An incarnation begins one group at most, so no two groups have the same birth.

    >>> lone_group(7, "oak#3").birth
    'a-0000000000000007-oak#3'
    """
    return GroupLabel(f"a-{stamp:016d}-{member}")


def is_founded(group: GroupLabel) -> bool:
    """Whether founders were named for it."""
    return group.birth.startswith("f-")


def goes_on(mine: GroupLabel, size: int, other: GroupLabel, other_size: int) -> bool:
    """Whether my group goes on when it meets another one; otherwise it dissolves.

    Of the same birth: the later era, then the larger one. Else: one that was founded, then the
    larger one, then the older one.

    >>> old, young = lone_group(1, "a#0"), lone_group(2, "b#0")
    >>> goes_on(old, 2, young, 2), goes_on(old, 2, young, 3)
    (True, False)
    """
    if mine.birth == other.birth:
        return (-mine.era, -size, mine.maker) <= (-other.era, -other_size, other.maker)
    mine_key = (not is_founded(mine), -size, mine.birth)
    return mine_key <= (not is_founded(other), -other_size, other.birth)
