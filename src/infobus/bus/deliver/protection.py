"""Protected subjects: the policy of the bus says how events of some subjects must be protected.

A publisher whose home has the key raises an event to that level; another one is refused. Receivers
leave out what is below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from infobus.bus.deliver.event_keys import why_forged
from infobus.errors import QosRefused, UsageError
from infobus.headers import readable
from infobus.objects.sealed import SEALED_PART
from infobus.protocols.frames.items import Item
from infobus.security.event_keys import EventKey, PublicEventKey
from infobus.security.event_marks import SEALED, SIGNED, signature_in
from infobus.security.policy import Protection
from infobus.stores.event_keys import EventKeyFolder

_SUBJECTS_COUNT_MAX = 100_000


class Level(Struct, frozen=True):
    """What events of a subject must have."""

    signers: tuple[PublicEventKey, ...] | None
    """The keys of which one must have signed it, as far as this home knows them; None: nobody."""
    pairs: tuple[EventKey, ...] = ()
    """Those with which this home can sign."""
    receivers: tuple[PublicEventKey, ...] | None = None
    """For whom it must be sealed; None: it need not be."""
    unknown: str = ""
    """A key that is asked for, and that this home does not know."""

    def check_publisher(self, subject: str) -> None:
        """Raise `QosRefused` if this home cannot raise events to the level."""
        what = ""
        if self.signers is not None and not self.pairs:
            what = "be signed, and this home has no pair of keys that counts"
        elif self.receivers is not None and self.unknown:
            what = f"be sealed for {self.unknown!r}, a key that this home does not know"
        elif self.receivers == ():
            what = "be sealed, and the policy does not say for which keys"
        if what:
            raise QosRefused(
                f"{subject}: the policy asks that its events {what}: infobus keys event"
            )

    def lacks(self, headers: Mapping[str, object]) -> bool:
        """Whether a publisher has to raise an event with these headers."""
        is_signed = self.signers is None or SIGNED in headers
        return not (is_signed and (self.receivers is None or SEALED in headers))

    def check_raised(self, subject: str, headers: Mapping[str, object]) -> None:
        """Raise `QosRefused` if an event was signed by a key that does not count."""
        told = signature_in(headers)
        if self.signers is not None and (told is None or told.key not in self.ids):
            names = ", ".join(one.name for one in self.signers) or "none"
            raise QosRefused(
                f"{subject}: the policy asks for another signature; known here: {names}"
            )

    @property
    def ids(self) -> frozenset[bytes]:
        """The ids of the keys of which one must have signed an event."""
        return frozenset(one.id for one in self.signers or ())

    def is_met_by(self, item: Item, bus: str) -> bool:
        """Whether an event that has come is protected as it must be; its signature is checked."""
        headers = readable(item.headers)
        if self.receivers is not None and not (
            SEALED in headers and SEALED_PART.encode() in item.body
        ):
            return False
        if self.signers is None:
            return True
        told = signature_in(headers)
        found = (one for one in self.signers if told is not None and one.id == told.key)
        return any(told is not None and not why_forged(one, told, item, bus) for one in found)


class Protections:
    """The levels of all subjects, by one policy, as this home can keep them."""

    def __init__(self, asked: Callable[[str], Sequence[Protection]], bus: str, home: Path) -> None:
        self.bus = bus
        self._asked = asked
        self._folder = EventKeyFolder(home)
        self._known: dict[str, Level | None] = {}

    def of(self, subject: str) -> Level | None:
        """What the events of a subject must have; None if nothing."""
        try:
            return self._known[subject]
        except KeyError:
            pass
        if len(self._known) >= _SUBJECTS_COUNT_MAX:
            self._known.clear()
        found = self._known[subject] = self._level(self._asked(subject))
        return found

    def _level(self, asked: Sequence[Protection]) -> Level | None:
        if not asked:
            return None
        signers: tuple[PublicEventKey, ...] | None = None
        receivers: list[str] | None = None
        pairs: tuple[EventKey, ...] = ()
        for one in asked:
            if "sealed" in one.level:
                receivers = [*(receivers or ()), *one.keys]
            if "signed" in one.level:
                named = one.keys if one.level == "signed" and one.keys else self._folder.names()
                signers = (*(signers or ()), *self._public(named))
                pairs = (*pairs, *self._pairs(named))
        if receivers is None:
            return Level(signers, pairs)
        known = tuple(self._public(receivers))
        names = {one.name for one in known}
        unknown = next((name for name in receivers if name not in names), "")
        return Level(signers, pairs, known, unknown)

    def _public(self, names: Iterable[str]) -> Iterable[PublicEventKey]:
        for name in names:
            try:
                yield self._folder.public(name)
            except UsageError:
                continue

    def _pairs(self, names: Iterable[str]) -> Iterable[EventKey]:
        kinds = self._folder.names()
        return (self._folder.pair(name) for name in names if kinds.get(name))
