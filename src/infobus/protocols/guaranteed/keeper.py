"""Where durable names are in use, and how far they have come: for a whole site.

The position of a durable consumer is on the disk of its home. A `NameKeeper` is told of it, too, as
often as it is saved. So a name can move to another home, and nothing that was settled comes again;
and who wants to use a name that is in use is told so at once.

* It is told by `Durable` who uses a name, and by `NameProgress` how far that use has come. It
  answers each new use with `SiteName`.
* A name belongs to who used it first, until that node says that it no longer does, or can no longer
  be seen. If two begin at nearly the same time, the one whose node's name is smaller has it, so all
  keepers of a site decide alike.
* Lives of one home follow each other, as each holds the lock of the home's file. So the later one
  has the name, whether or not the earlier one can still be seen.
* A position never goes back. Only who holds the name can change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.guaranteed import (
    LEDGERS_TOLD_COUNT_MAX,
    Durable,
    GuaranteedMessage,
    NamePlace,
    NameProgress,
    SiteKeeper,
    SiteName,
)

NAMES_COUNT_MAX = 10_000
PLACES_COUNT_MAX = 10_000
"""Ledgers of one name whose positions are kept; the one told longest ago makes room."""
_CONTEST_S = 0.3  # uses that begin within this time began at once, for all that keepers can tell


class SavePlaces(Struct, frozen=True):
    """Write the places of a durable name to disk, replacing those before; none: forget it."""

    name: str
    places: dict[str, NamePlace]


KeeperEffects = list[ToPeer[GuaranteedMessage] | SavePlaces]


@dataclass(slots=True)
class _Name:
    places: dict[str, NamePlace]
    holder: str = ""
    session: int = 0
    registered_at: float = 0.0
    since_s: float = 0.0
    is_changed: bool = False


@dataclass(kw_only=True)
class NameKeeper:
    """The keeping half; `saved` is what was on disk, by name and ledger."""

    node: str
    saved: Mapping[str, Mapping[str, NamePlace]]
    names: dict[str, _Name] = field(default_factory=dict)
    names_count_max: int = NAMES_COUNT_MAX
    places_count_max: int = PLACES_COUNT_MAX

    def __post_init__(self) -> None:
        self.names |= {name: _Name(dict(places)) for name, places in self.saved.items()}

    def take(self, message: GuaranteedMessage, now_s: float) -> KeeperEffects:
        """Process a message; those that are for others are ignored."""
        match message:
            case Durable():
                return self._on_durable(message, now_s)
            case NameProgress():
                self._on_progress(message)
        return []

    def peer_up(self, node: str, now_s: float) -> KeeperEffects:
        """A node can be seen: it is to know that there is a keeper."""
        return [ToPeer(node, SiteKeeper(self.node))]

    def peer_down(self, node: str, now_s: float) -> KeeperEffects:
        """A node can no longer be seen: the names that it used are free."""
        for name in self.names.values():
            if name.holder == node:
                name.holder = ""
        return []

    def tick(self, now_s: float) -> KeeperEffects:
        """Save what has changed."""
        effects: KeeperEffects = []
        for name, kept in self.names.items():
            if kept.is_changed:
                kept.is_changed = False
                effects.append(SavePlaces(name, dict(kept.places)))
        return effects

    def _on_durable(self, told: Durable, now_s: float) -> KeeperEffects:
        kept = self.names.get(told.name)
        if not told.patterns:
            if kept is not None and (kept.holder, kept.session) == (told.sender, told.session):
                kept.holder = ""
            return []
        effects: KeeperEffects = []
        if kept is None:
            if len(self.names) >= self.names_count_max:
                idle = (name for name, one in self.names.items() if not one.holder)
                if (oldest := next(idle, None)) is None:
                    return []
                del self.names[oldest]
                effects.append(SavePlaces(oldest, {}))
            kept = _Name({})
        if kept.holder == told.sender and told.session <= kept.session:
            return []  # as it says every few seconds
        loser = ""
        if kept.holder and kept.holder != told.sender:
            if told.is_of_home(kept.registered_at):
                has_it = told.session > kept.session
            else:
                has_it = now_s - kept.since_s < _CONTEST_S and told.sender < kept.holder
            if not has_it:
                return [self._answer(told.sender, told.name, told.session, kept.holder)]
            loser = kept.holder
        if loser:
            effects.append(self._answer(loser, told.name, kept.session, told.sender))
        self.names.pop(told.name, None)
        self.names[told.name] = kept  # the one used last is the last
        kept.holder, kept.session, kept.since_s = told.sender, told.session, now_s
        kept.registered_at = told.registered_at
        return [*effects, self._answer(told.sender, told.name, told.session)]

    def _on_progress(self, told: NameProgress) -> None:
        kept = self.names.get(told.name)
        if kept is None or (kept.holder, kept.session) != (told.sender, told.session):
            return
        for ledger, new in told.places.items():
            old = kept.places.pop(ledger, None)
            kept.places[ledger] = new if old is None or new.position >= old.position else old
            kept.is_changed |= new != old
        while len(kept.places) > self.places_count_max:
            del kept.places[next(iter(kept.places))]

    def _answer(
        self, node: str, name: str, session: int, holder: str = ""
    ) -> ToPeer[GuaranteedMessage]:
        places = {} if holder else dict(self.names[name].places)
        latest = dict([*places.items()][-LEDGERS_TOLD_COUNT_MAX:])
        return ToPeer(node, SiteName(self.node, name, session, holder, latest))
