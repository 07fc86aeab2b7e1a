"""The city of paper 002, section 10: its classes, limits, reports and promises.

Nothing here uses a bus: reports come in, numbers and verdicts go out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from infobus import DataObject
from infobus.protocols.reliable.peer import DEFAULT_UPGRADE

REGIONS = ("north", "south")
CLASSES = {"emergency": "emergency", "business": "business", "library": "regular"}
"""The city's names for its events, and the priority class of each."""

RATES = {"emergency": 5.0, "business": 300.0, "library": 200.0}
"""Events per second that each region supplies, unless backpressure slows it down."""

SERVICE_S = 0.01
"""Time a control room needs per event: it serves 100 a second, a fifth of the supply."""

SECONDS = 30.0
"""A run this long shows the paper's age limit; shorter runs scale the limit down."""

HAND_OVER_S = 0.25
"""How long a busy machine may take to hand an event from the queue to its handler."""


@dataclass(frozen=True, slots=True)
class CityLimits:
    """The paper's limits: emergencies within three seconds, no business event older than ten."""

    scale: float = 1.0

    @classmethod
    def within(cls, seconds: float | None) -> CityLimits:
        """Limits that a run of `seconds` can reach.

        >>> CityLimits.within(None).business_s, CityLimits.within(6.0).business_s
        (10.0, 2.0)
        """
        return cls(1.0 if seconds is None else min(1.0, seconds / SECONDS))

    @property
    def emergency_s(self) -> float:
        """An emergency must arrive within this time; it is short enough without scaling."""
        return 3.0

    @property
    def business_s(self) -> float:
        """Business events older than this are discarded."""
        return 10.0 * self.scale

    @property
    def library_s(self) -> float:
        """Above its watermark, a starving library makes progress at least this often."""
        return DEFAULT_UPGRADE.after_s + DEFAULT_UPGRADE.period_s

    @property
    def queue_count_max(self) -> int:
        """Twice as many events as are served before business events become too old."""
        return int(2 * self.business_s / SERVICE_S)


class Arrival(DataObject):
    """A delivered event: when it arrived, and how many seconds it took."""

    name: str
    at: float
    took: float


class CityReport(DataObject):
    """A program's report: counts since its start, arrivals since its last report."""

    sent: dict[str, int]
    expired: dict[str, int]
    arrivals: list[Arrival]
    starving_since: float | None = None  # when the library reached its watermark


@dataclass(slots=True)
class ClassTally:
    """The counts of one class, over all regions."""

    sent: int = 0
    expired: int = 0
    delivered: int = 0
    worst_s: float = 0.0

    @property
    def waiting(self) -> int:
        """How many events were sent and have neither arrived nor expired."""
        return self.sent - self.delivered - self.expired


@dataclass
class City:
    """Everything that the programs have reported."""

    limits: CityLimits
    reports: dict[str, CityReport] = field(default_factory=dict)  # the latest of each program
    arrivals: list[Arrival] = field(default_factory=list)
    longest_pause_s: float = 0.0  # of a library that starved
    _library_at: dict[str, float] = field(default_factory=dict)  # the latest, while starving

    def take(self, program: str, report: CityReport) -> None:
        """Take in a report."""
        self.arrivals += report.arrivals
        self.reports[program] = report
        since_s = report.starving_since
        for arrival in report.arrivals:
            if arrival.name == "library" and since_s is not None and arrival.at > since_s:
                pause_s = arrival.at - self._library_at.get(program, since_s)
                self.longest_pause_s = max(self.longest_pause_s, pause_s)
                self._library_at[program] = arrival.at

    def tallies(self) -> dict[str, ClassTally]:
        """The counts of each class."""
        tallies = {name: ClassTally() for name in CLASSES}
        for report in self.reports.values():
            for name, tally in tallies.items():
                tally.sent += report.sent.get(name, 0)
                tally.expired += report.expired.get(name, 0)
        for arrival in self.arrivals:
            tally = tallies[arrival.name]
            tally.delivered += 1
            tally.worst_s = max(tally.worst_s, arrival.took)
        return tallies

    @property
    def is_starving(self) -> bool:
        """Whether the library of some region has reached its watermark."""
        return any(report.starving_since is not None for report in self.reports.values())

    def promises(self) -> list[Promise]:
        """What the paper requires, and whether it held."""
        limits, tallies = self.limits, self.tallies()
        emergency, business, library = (tallies[name] for name in CLASSES)
        return [
            Promise(
                f"every emergency delivered within {limits.emergency_s:.3g} s",
                emergency.delivered > 0
                and emergency.waiting == 0
                and emergency.worst_s <= limits.emergency_s,
                f"{emergency.delivered} of {emergency.sent}, the slowest in "
                f"{emergency.worst_s:.3f} s",
            ),
            Promise(
                f"business events older than {limits.business_s:.3g} s discarded",
                business.delivered > 0
                and business.expired > 0
                and business.worst_s <= limits.business_s + HAND_OVER_S,
                f"{business.expired} were, the oldest delivered after {business.worst_s:.3f} s",
            ),
            Promise(
                f"a starving library moves at least every {limits.library_s:g} s",
                self.is_starving
                and library.delivered > 0
                and 0 < self.longest_pause_s <= limits.library_s,
                f"{library.delivered} delivered, the longest pause {self.longest_pause_s:.3f} s",
            ),
        ]


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that the paper requires."""

    what: str
    held: bool
    why: str


def rates_of(arrivals: Iterable[Arrival], name: str, now_s: float, count: int) -> list[int]:
    """How many arrived in each of the last `count` half seconds, the latest last.

    >>> rates_of([Arrival(name="library", at=9.9, took=1.0)], "library", 10.0, 2)
    [0, 1]
    """
    rates = [0] * count
    for arrival in arrivals:
        place = count - 1 - int((now_s - arrival.at) * 2)
        if arrival.name == name and 0 <= place < count:
            rates[place] += 1
    return rates
