"""Which guaranteed events a passage has kept under each of its durable names: its eras.

A passage begins with the earliest registration that it has heard of. If it hears of an earlier one
later, it goes back: another durable name takes what was kept in between, up to where the first name
began. So everything that is owed crosses, and nothing twice. Where each name has begun in a ledger
is written down in the transaction that keeps the first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_FIRST = "first/"
_TOP = 1 << 62
"""What is written down only grows, and a beginning only falls: so it is written as what is left."""


def era_name(name: str, era: int) -> str:
    """The durable name of an era of a passage.

    >>> era_name("~router.north", 0), era_name("~router.north", 2)
    ('~router.north', '~router.north~2')
    """
    return f"{name}~{era}" if era else name


def eras_of(name: str, registered: Iterable[str]) -> list[int]:
    """The eras of a passage among durable names.

    >>> eras_of("~router.north", ["billing", "~router.north~1", "~router.north", "~router.norths"])
    [0, 1]
    """
    found = []
    for one in registered:
        base, _, number = one.rpartition("~")
        if one == name:
            found.append(0)
        elif base == name and number.isdecimal():
            found.append(int(number))
    return sorted(found)


class Spans:
    """From which number on, and how far, each era has kept each ledger."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: dict[str, dict[int, int]] = {}  # by ledger and era
        self._last: dict[str, dict[int, int]] = {}

    def load(self, reached: Mapping[str, int]) -> None:
        """Take in what earlier lives have written down."""
        for stream, number in reached.items():
            is_first = stream.startswith(_FIRST)
            name, _, ledger = stream.removeprefix(_FIRST).rpartition("/")
            for era in eras_of(self._name, [name]):
                if is_first:
                    self._begin(era, ledger, _TOP - number)
                else:
                    self._reach(era, ledger, number)

    def stream(self, era: int, ledger: str) -> str:
        """The source that events of a ledger have in an era."""
        return f"{era_name(self._name, era)}/{ledger}"

    def is_new(self, era: int, ledger: str, number: int) -> bool:
        """Whether no other era keeps that event.

        One that is later has begun somewhere, and keeps everything from there on.
        """
        for other, first in self._first.get(ledger, {}).items():
            last = _TOP if other < era else self._last[ledger].get(other, 0)
            if other != era and first <= number <= last:
                return False
        return True

    def keep(self, era: int, ledger: str, number: int) -> dict[str, int]:
        """An era is about to keep an event; what is to be written down with it."""
        self._reach(era, ledger, number)
        known = self._first.get(ledger, {}).get(era)
        if known is not None and known <= number:
            return {}
        self._begin(era, ledger, number)
        return {_FIRST + self.stream(era, ledger): _TOP - number}

    def _begin(self, era: int, ledger: str, number: int) -> None:
        firsts = self._first.setdefault(ledger, {})
        self._last.setdefault(ledger, {})
        firsts[era] = min(number, firsts.get(era, number))

    def _reach(self, era: int, ledger: str, number: int) -> None:
        lasts = self._last.setdefault(ledger, {})
        lasts[era] = max(number, lasts.get(era, 0))
