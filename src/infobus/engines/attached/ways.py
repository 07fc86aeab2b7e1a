"""Decides which way a node takes to the bus: through a daemon, through the next one, or directly.

A way that is lost has `patience.return_s` to come back. The next one is opened meanwhile, so that
no time is lost if it does not. The node changes to a better way when that has been there for
`patience.move_s`, and up to twice as long by chance, so that the programs of a host do not all
move at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infobus.patience import DEFAULT_PATIENCE, Patience

AGAIN_S = 1.0
"""When no way can be opened, the pause before all are tried again."""


@dataclass(frozen=True)
class Way:
    """The endpoints of one daemon, or of several that may stand in for each other."""

    endpoints: tuple[str, ...] = ()

    @property
    def is_attached(self) -> bool:
        """Whether it leads through a daemon."""
        return bool(self.endpoints)


EMBEDDED = Way()
"""The way of a node that is linked with others itself; it is never lost."""


@dataclass(frozen=True)
class Open:
    """Open `way`, and say `opened` or `failed`."""

    way: Way


@dataclass(frozen=True)
class Move:
    """Move to `way`, which is open; the way before it is not needed any more."""

    way: Way


@dataclass(frozen=True)
class Drop:
    """Close `way`, which is open: the present one came back."""

    way: Way


Effect = Open | Move | Drop


@dataclass
class WayChoice:
    """Where one node is, and where it is going; `chance`, from 0 to 1, is drawn for each node."""

    current: Way
    chance: float
    patience: Patience = DEFAULT_PATIENCE
    offers: tuple[Way, ...] = (EMBEDDED,)
    opening: Way | None = None
    spare: Way | None = None
    lost_since_s: float | None = None
    held_since_s: dict[Way, float] = field(default_factory=dict)
    failed_at_s: dict[Way, float] = field(default_factory=dict)

    def note_offers(self, offers: tuple[Way, ...], now_s: float) -> None:
        """These ways there are now, best first; `EMBEDDED` is always the last."""
        self.offers = (*(one for one in offers if one.is_attached), EMBEDDED)
        self.held_since_s = {one: self.held_since_s.get(one, now_s) for one in self.offers}

    def on_link(self, is_linked: bool, now_s: float) -> list[Effect]:
        """The present way is linked, or it is not."""
        if is_linked:
            self.lost_since_s = None
        elif self.lost_since_s is None:
            self.lost_since_s = now_s
            self.failed_at_s = {}  # what failed before may be there now
        return self.on_tick(now_s)

    def on_opened(self, way: Way, now_s: float) -> list[Effect]:
        """It is open, as was asked for."""
        self.opening, self.spare = None, way
        return self.on_tick(now_s)

    def on_failed(self, way: Way, now_s: float) -> list[Effect]:
        """It could not be opened."""
        self.opening = None
        self.failed_at_s[way] = now_s
        return self.on_tick(now_s)

    def on_not_moved(self, current: Way, now_s: float) -> None:
        """The move failed, and the node is at `current` still."""
        self.failed_at_s[self.current] = now_s
        self.current = current

    def on_tick(self, now_s: float) -> list[Effect]:
        """Time has passed."""
        if self.spare is not None:
            return self._use_spare(self.spare, now_s)
        if self.opening is not None:
            return []
        wanted = self._wanted(now_s)
        if wanted is None:
            return []
        self.opening = wanted
        return [Open(wanted)]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be done until something changes."""
        is_busy = self.opening is not None or self.spare is not None
        return not is_busy and self.lost_since_s is None and not self._better()

    def _use_spare(self, spare: Way, now_s: float) -> list[Effect]:
        if self.lost_since_s is None and spare not in self._better():
            self.spare = None
            return [Drop(spare)]
        if self.lost_since_s is not None and now_s - self.lost_since_s < self.patience.return_s:
            return []
        self.current, self.spare, self.lost_since_s = spare, None, None
        self.failed_at_s = {}
        return [Move(spare)]

    def _wanted(self, now_s: float) -> Way | None:
        if self.lost_since_s is not None:
            found = [one for one in self.offers if one != self.current]
            return self._first(found, AGAIN_S, now_s)
        patience_s = self.patience.move_s * (1 + self.chance)
        held = [one for one in self._better() if now_s - self.held_since_s[one] >= patience_s]
        return self._first(held, patience_s, now_s)

    def _first(self, ways: list[Way], again_s: float, now_s: float) -> Way | None:
        """The first that has not failed within `again_s`."""
        for way in ways:
            failed_at_s = self.failed_at_s.get(way)
            if failed_at_s is None or now_s - failed_at_s >= again_s:
                return way
        return None

    def _better(self) -> tuple[Way, ...]:
        if self.current in self.offers:
            return self.offers[: self.offers.index(self.current)]
        return self.offers[:-1]  # linked with a daemon that shows itself no more
