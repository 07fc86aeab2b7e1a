"""The rules by which a request for quality of service is granted, raised or refused.

The manager of a group of nodes publishes a policy, and every node holds its suppliers and consumers
to it (paper 002, section 6: "deny or upgrade the request").
"""

from __future__ import annotations

from msgspec import Struct, field

from infobus.errors import UsageError
from infobus.protocols.qos.classes import Classes
from infobus.subjects import check_pattern, covers, overlaps


class Granted(Struct, frozen=True):
    """The request is granted as it was made."""

    class_: str


class RaisedClass(Struct, frozen=True):
    """The request is granted in a higher class than it asked for."""

    class_: str


class Denied(Struct, frozen=True):
    """The request is refused."""

    reason: str


Verdict = Granted | RaisedClass | Denied


class Policy(Struct, frozen=True):
    """The rules of a group.

    >>> from infobus.protocols.qos.classes import DEFAULT_CLASSES
    >>> policy = Policy(only_on={"emergency": ("city.911.>",)}, raise_to={"bank.>": "business"})
    >>> policy.judge("city.911.fire", "emergency", DEFAULT_CLASSES)
    Granted(class_='emergency')
    >>> policy.judge("city.library.>", "emergency", DEFAULT_CLASSES).reason
    "class 'emergency' is only for city.911.>"
    >>> policy.judge("bank.orders", "regular", DEFAULT_CLASSES)
    RaisedClass(class_='business')

    Args:
        deny: Subject patterns that are denied, and why.
        only_on: Classes that are only for some patterns.
        raise_to: Patterns, and the lowest class for each of them.
        events_per_s: What all nodes of the group may reserve together; None is without limit.
        bytes_per_s: The same, in bytes.

    Raises:
        UsageError: A pattern is not well formed, or a bound is negative.
    """

    deny: dict[str, str] = field(default_factory=dict)
    only_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    raise_to: dict[str, str] = field(default_factory=dict)
    events_per_s: float | None = None
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        for pattern in (*self.deny, *self.raise_to, *sum(self.only_on.values(), ())):
            check_pattern(pattern)
        for bound in (self.events_per_s, self.bytes_per_s):
            if bound is not None and not bound >= 0:
                raise UsageError(f"a policy's bound is a number that is not negative, not {bound}")

    def judge(self, pattern: str, class_: str, classes: Classes) -> Verdict:
        """Judge a supplier or consumer of `pattern` that asks for `class_`.

        A request is denied as soon as any of its subjects is denied, or reserved for others. It is
        raised only if all of its subjects are. Classes that this bus does not have raise nothing.

        Raises:
            UsageError: The request is for a class that does not exist.
        """
        rank = classes.rank(class_)
        for denied, reason in self.deny.items():
            if overlaps(denied, pattern):
                return Denied(reason)
        only = self.only_on.get(class_)
        if only is not None and not any(covers(allowed, pattern) for allowed in only):
            return Denied(f"class {class_!r} is only for {', '.join(only) or 'nobody'}")
        raised = min(
            (
                classes.rank(to)
                for wide, to in self.raise_to.items()
                if to in classes.names and covers(wide, pattern)
            ),
            default=rank,
        )
        return RaisedClass(classes.names[raised]) if raised < rank else Granted(class_)
