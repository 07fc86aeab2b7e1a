"""Quality of service in numbers: classes and their order, watermarks, upgrades, and rates.

Classes are global and have a strict order (paper 002, section 4.2). `queues` holds everything that
queues by class; `admission` decides who may reserve how much.
"""

from __future__ import annotations

import math
import re

from msgspec import Struct

from infobus.errors import UsageError

RESERVED = "_reserved"
"""What routers add behind the classes of their own bus: what travels by reservations there."""

_CLASSES_COUNT_MAX = 16
_NAME = re.compile(r"[a-z0-9_-]+")

#: Waits shorter than this are rounding errors.
_INSTANT_S = 1e-9


class Classes(Struct, frozen=True):
    """The priority classes of a bus, highest first; all its nodes have the same.

    >>> DEFAULT_CLASSES.rank("business"), DEFAULT_CLASSES.default
    (1, 'regular')

    Raises:
        UsageError: Not 1 to 16 different names made of `a-z`, `0-9`, `_` and `-`.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        count = len(self.given)
        if not 1 <= count <= _CLASSES_COUNT_MAX:
            raise UsageError(f"a bus has 1 to {_CLASSES_COUNT_MAX} priority classes, not {count}")
        for name in self.names:
            if not _NAME.fullmatch(name):
                raise UsageError(f"priority class {name!r}: use only a-z, 0-9, _ and -")
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"priority classes {', '.join(self.names)}: a name comes twice")

    @property
    def given(self) -> tuple[str, ...]:
        """Those that users know."""
        return self.names[:-1] if self.names[-1:] == (RESERVED,) else self.names

    @property
    def default(self) -> str:
        """The class of events that name none: `regular` if it exists, else the lowest."""
        return "regular" if "regular" in self.names else self.given[-1]

    @property
    def raised_rank(self) -> int:
        """The rank that a starving class is raised to.

        The highest class stays strict, because an upgrade must not delay a call to 911: others
        are raised to just below it. Of two classes, the lower can only be raised to the higher.
        """
        return 1 if len(self.given) > 2 else 0

    def rank(self, name: str) -> int:
        """Return how many classes are above `name`: 0 is the highest.

        Raises:
            UsageError: There is no such class.
        """
        try:
            return self.names.index(name)
        except ValueError:
            known = ", ".join(self.names)
            raise UsageError(f"no priority class {name!r}: this bus has {known}") from None


DEFAULT_CLASSES = Classes(("emergency", "business", "regular"))


class Marks(Struct, frozen=True):
    """Watermarks: a class stops accepting above `high`, until it is down to `low` again.

    Raises:
        UsageError: Not `0 <= low <= high`, with `high` at least 1.
    """

    high: int
    low: int

    def __post_init__(self) -> None:
        if not (0 <= self.low <= self.high and self.high >= 1):
            raise UsageError(
                f"watermarks high={self.high}, low={self.low}: expected 0 <= low <= high, 1 <= high"
            )


class Upgrade(Struct, frozen=True):
    """When a starving class is raised, and for how long.

    A class starves when it has stopped accepting and no event of it was taken for `after_s`. The
    events that wait in it are then raised for `period_s` (see `Classes.raised_rank`), and fall back
    after that.

    Raises:
        UsageError: A time is not positive.
    """

    after_s: float = 1.0
    period_s: float = 1.0

    def __post_init__(self) -> None:
        if not (self.after_s > 0 and self.period_s > 0):
            raise UsageError(
                f"upgrade after_s={self.after_s}, period_s={self.period_s}: both must be above 0"
            )


class Limits(Struct, frozen=True):
    """What one client may send; None is without limit. Above it that client waits, and no other.

    Raises:
        UsageError: A number is not positive.
    """

    events_per_s: float | None = None
    bytes_per_s: float | None = None
    queue_count_max: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_positive(name, getattr(self, name))


class Rate:
    """A steady rate with short bursts: a token bucket for events, one for bytes.

    An amount larger than a burst passes when the bucket is full, and the next one waits until the
    excess is made up for. So in the long run the rate holds for sizes of any kind.

    >>> rate = Rate(events_per_s=10)
    >>> rate.take(0.0, 1, 100)
    >>> round(rate.allow(0.0, 1, 100), 3), rate.allow(0.1, 1, 100)
    (0.1, 0.0)

    Raises:
        UsageError: A number is not positive.
    """

    __slots__ = ("_buckets", "burst_s", "bytes_per_s", "events_per_s")

    def __init__(
        self,
        events_per_s: float | None = None,
        bytes_per_s: float | None = None,
        burst_s: float = 0.1,
    ) -> None:
        check_positive("events_per_s", events_per_s)
        check_positive("bytes_per_s", bytes_per_s)
        check_positive("burst_s", burst_s)
        self.events_per_s = events_per_s
        self.bytes_per_s = bytes_per_s
        self.burst_s = burst_s
        self._buckets = (_Bucket(events_per_s, burst_s), _Bucket(bytes_per_s, burst_s))

    def allow(self, now_s: float, count: int, size: int) -> float:
        """Seconds until `count` events of `size` bytes together may go; 0.0 is now."""
        events, sizes = self._buckets
        return max(events.wait_s(now_s, count), sizes.wait_s(now_s, size))

    def take(self, now_s: float, count: int, size: int) -> None:
        """Account for events that were sent."""
        events, sizes = self._buckets
        events.take(now_s, count)
        sizes.take(now_s, size)

    def spend_as(self, other: Rate) -> None:
        """Go on where another rate, which this one replaces, has come to."""
        for mine, theirs in zip(self._buckets, other._buckets, strict=True):
            mine.full_at_s = theirs.full_at_s


class _Bucket:
    """One token bucket, stored as the time at which it will be full."""

    __slots__ = ("burst_s", "full_at_s", "per_s")

    def __init__(self, per_s: float | None, burst_s: float) -> None:
        self.per_s = math.inf if per_s is None else per_s
        self.burst_s = burst_s
        self.full_at_s = -math.inf

    def wait_s(self, now_s: float, amount: float) -> float:
        # A full bucket is enough for anything; a smaller amount need not wait until it is full.
        spare_s = max(0.0, self.burst_s - amount / self.per_s)
        wait_s = self.full_at_s - spare_s - now_s
        return wait_s if wait_s > _INSTANT_S else 0.0

    def take(self, now_s: float, amount: float) -> None:
        self.full_at_s = max(self.full_at_s, now_s) + amount / self.per_s


def check_positive(name: str, value: float | None, of: str = "") -> None:
    """Raise `UsageError` unless `value` is a number above 0 (of seconds, say), or None.

    >>> check_positive("max_age", "soon", " of seconds")
    Traceback (most recent call last):
    infobus.errors.UsageError: max_age='soon': expected a number of seconds above 0
    """
    if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
        raise UsageError(f"{name}={value!r}: expected a number{of} above 0")
