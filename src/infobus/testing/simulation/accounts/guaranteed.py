"""The account of guaranteed delivery: what was accepted against what was settled or lost.

A `GuaranteedAccount` watches nodes from outside and holds them to what they promise:

* whatever is handed to an application is in the ledger, is wanted, is not past its age limit, and
  was neither settled and saved before nor is in the application's hands already;
* of a transaction the application gets everything that it wants, in order, at once;
* with `ordered`, an event comes when every earlier one that is owed is done with;
* what is saved never goes back, and never passes an event that is owed and not done with;
* a ledger never believes that a consumer is further on than it has saved;
* a loss is reported only of what the ledger really let go, and an event goes to the dead-letter
  subject only after the stated number of deliveries, or past its age limit;
* in the end everything that is owed is done with, and saved, and every ledger knows.

An event is done with when the application settled it, when it is safe at the dead-letter subject,
or when its loss was reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random

from infobus.filters import compile
from infobus.protocols.frames.transactions import GROUP
from infobus.protocols.guaranteed.consumer import DurableConsumer
from infobus.protocols.guaranteed.effects import (
    EXPIRED,
    Bury,
    ConsumerTerms,
    HandOver,
    LostForGood,
    Save,
)
from infobus.protocols.guaranteed.position import Saved
from infobus.stores.ledger.record import Record
from infobus.subjects import matches
from infobus.testing.memory_stores import MemoryLedger
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.guaranteed import DurableInterest, GuaranteedNode, events_of

_compiled = cache(compile)


@dataclass
class _Progress:
    """What is known of one consumer in one ledger."""

    owed: dict[int, None] = field(default_factory=dict)  # not done with yet, ascending
    dead: set[int] = field(default_factory=set)  # those that may go to the dead-letter subject
    saved: Saved = field(default_factory=Saved)


@dataclass
class GuaranteedAccount:
    """The witness of one simulated run. Raises `Uneven` as soon as a promise is broken."""

    random: Random
    terms: ConsumerTerms
    nack_chance: float = 0.0
    full_disk_chance: float = 0.0
    disk: Random = field(default_factory=lambda: Random(0))
    nodes: dict[str, GuaranteedNode] = field(default_factory=dict)  # those alive
    ledgers: dict[str, MemoryLedger] = field(default_factory=dict)
    accepted: dict[str, dict[int, Record]] = field(default_factory=dict)  # by ledger
    interests: dict[str, DurableInterest] = field(default_factory=dict)  # those registered
    trace: list[tuple[object, ...]] = field(default_factory=list)
    error: Exception | None = None
    accepted_count: int = 0
    delivered_count: int = 0
    again_count: int = 0
    groups_count: int = 0
    dead_count: int = 0
    lost_count: int = 0
    crashes_count: int = 0
    _registered_at: dict[str, float] = field(default_factory=dict)  # by durable name
    _accepted_at: dict[tuple[str, int], float] = field(default_factory=dict)
    _progress: dict[tuple[str, str], _Progress] = field(default_factory=dict)
    _out: dict[tuple[str, str], dict[str, set[int]]] = field(default_factory=dict)
    _last: dict[tuple[str, str, int, str], int] = field(default_factory=dict)

    def check(self) -> None:
        """Raise what went wrong within an engine's callback; check every bound."""
        if self.error is not None:
            raise self.error
        for node in self.nodes.values():
            for consumer in node.consumers.values():
                self._check_bounds(consumer)
        for (name, ledger), progress in self._progress.items():
            noted = _noted(self.ledgers[ledger], name)
            if noted > progress.saved.position >= 0:
                raise Uneven(f"{ledger} believes that {name} has settled {noted}: {progress.saved}")

    # What the nodes report.

    def opened(self, ledger: MemoryLedger) -> None:
        """Look at the ledger through its new owner."""
        self.ledgers[ledger.id] = ledger
        self.accepted.setdefault(ledger.id, {})

    def registered(self, interest: DurableInterest, registered_at: float) -> None:
        """Note what is owed to a consumer that is there for the first time."""
        if interest.name not in self.interests:
            self.interests[interest.name] = interest
            self._registered_at[interest.name] = registered_at
            for ledger, records in self.accepted.items():
                for number, record in records.items():
                    self._note_owed(interest.name, ledger, number, record)

    def committed(
        self, ledger: MemoryLedger, records: Iterable[tuple[int, Record]], wall_s: float
    ) -> None:
        """Note what is owed from now on."""
        known = self.accepted[ledger.id]
        for number, record in records:
            if number in known:
                raise Uneven(f"number {number} of {ledger.id} was given twice")
            known[number] = record
            self._accepted_at[ledger.id, number] = wall_s
            self.accepted_count += 1
            for name in self.interests:
                self._note_owed(name, ledger.id, number, record)
            for _, attributes in events_of(record):
                if "origin" in attributes:
                    self._bury(*attributes["origin"])

    def delivered(
        self,
        node: GuaranteedNode,
        consumer: DurableConsumer,
        given: HandOver,
        places: Sequence[int],
    ) -> None:
        """Check that the application may see the event now, and all that it wants of it."""
        ledger, number = given.ledger, given.entry.number
        self.trace.append((node.network.now_s, node.name, consumer.name, ledger, number))
        self.delivered_count += 1
        self.again_count += given.deliveries > 1
        what = f"{consumer.name} gets {number} of {ledger}"
        record = self.accepted[ledger].get(number)
        progress = self._of(consumer.name, ledger)
        out = self._out_at(node.name, consumer).setdefault(ledger, set())
        if record is None or (given.entry.subject, given.entry.body) != (
            record.subject,
            record.body,
        ):
            raise Uneven(f"{what}, which was never accepted so")
        wanted = self._wanted(consumer.name, record)
        if not wanted or list(places) != wanted:
            raise Uneven(f"{what}: {places} of it, but wants {wanted}")
        self.groups_count += record.type == GROUP
        # What was logged before and accepted after the registration may come, but is not owed.
        registered_at = self._registered_at[consumer.name]
        if record.time < registered_at and self._accepted_at[ledger, number] < registered_at:
            raise Uneven(f"{what}, which is older than its registration")
        if record.expires is not None and record.expires <= node.wall_s:
            raise Uneven(f"{what}, which has expired")
        if number <= progress.saved.position or number in progress.saved.above:
            raise Uneven(f"{what} again after it was settled")
        if not 0 < given.deliveries <= self.terms.deliveries_max:
            raise Uneven(f"{what} for the {given.deliveries}th time")
        if given.deliveries > 1 and progress.saved.deliveries.get(number) != given.deliveries:
            raise Uneven(f"{what} for the {given.deliveries}th time, which is not saved")
        if number in out:
            raise Uneven(f"{what} while it is in its hands")
        if consumer.ordered:
            place = (node.name, consumer.name, consumer.session, ledger)
            missing = [earlier for earlier in progress.owed if earlier < number]
            if out or missing or number < self._last.get(place, 0):
                raise Uneven(f"{what} out of order: {out} are out, {missing} not done with")
            self._last[place] = number
        out.add(number)

    def nacks(self, consumer: DurableConsumer, given: HandOver) -> bool:
        """Let the application nack what is poison, and other events now and then."""
        ledger, number = given.ledger, given.entry.number
        self._out_at(consumer.node, consumer)[ledger].remove(number)
        events = events_of(self.accepted[ledger][number])
        is_poison = any("poison" in attributes for _, attributes in events)
        if is_poison or self.random.random() < self.nack_chance:
            return True
        self._of(consumer.name, ledger).owed.pop(number, None)
        return False

    def buries(self, consumer: DurableConsumer, dead: Bury) -> bool:
        """Check that the event has to go to the dead-letter subject; there may be no room."""
        record = self.accepted[dead.ledger][dead.entry.number]
        if dead.why == EXPIRED:
            is_due = record.expires is not None
        else:
            is_due = dead.deliveries >= self.terms.deliveries_max
        if not is_due or not self._wanted(consumer.name, record):
            raise Uneven(f"{consumer.name} gives {dead} up")
        self._of(consumer.name, dead.ledger).dead.add(dead.entry.number)
        return self.random.random() >= self.full_disk_chance

    def saved(self, consumer: DurableConsumer, save: Save) -> None:
        """Check that it is progress, and true."""
        progress, saved = self._of(consumer.name, save.ledger), save.saved
        what = f"{consumer.name} saves {saved} of {save.ledger}"
        if saved.position < progress.saved.position:
            raise Uneven(f"{what}, but {progress.saved} was saved before")
        back = {n for n in progress.saved.above if n > saved.position} - saved.above
        if back:
            raise Uneven(f"{what}, but had settled {back}")
        for number in progress.owed:
            if number <= saved.position or number in saved.above:
                raise Uneven(f"{what}, but {number} is not done with")
        bound = self.terms.above_count_max + self.terms.held_count_max + 1
        if len(saved.above) > bound or len(saved.deliveries) > bound:
            raise Uneven(f"{what}: that is too much")
        progress.saved = saved

    def lost(self, consumer: DurableConsumer, lost: LostForGood) -> None:
        """Check that the loss is a real one."""
        self.lost_count += 1
        gone_up_to = self.ledgers[lost.ledger].gone_up_to
        if not 1 <= lost.first <= lost.last <= gone_up_to:
            raise Uneven(f"{consumer.name} reports {lost}, but all after {gone_up_to} is there")
        progress = self._of(consumer.name, lost.ledger)
        for number in range(lost.first, lost.last + 1):
            progress.owed.pop(number, None)

    def has_room(self) -> bool:
        """Let the disk be full now and then; what could not be saved is tried again."""
        return self.disk.random() >= self.full_disk_chance

    def crashed(self, node: GuaranteedNode) -> None:
        """Nothing of it is in anybody's hands any more."""
        self.crashes_count += 1
        self.nodes.pop(node.name, None)
        for place in [place for place in self._out if place[0] == node.name]:
            del self._out[place]

    def failed(self, error: Exception) -> None:
        """Keep the first error for `check`."""
        self.error = self.error or error

    # What the run asks.

    def stopped(self, node: str, consumer: DurableConsumer) -> None:
        """A consumer has been closed: its events come again next time."""
        self._out.pop((node, consumer.name), None)

    def debts(self) -> Iterable[str]:
        """What is still owed, in words; nothing once a healed network has settled."""
        for name in self.interests:
            for ledger, kept in self.ledgers.items():
                progress, last = self._of(name, ledger), kept.next - 1
                if progress.owed:
                    yield f"{name} has not got {list(progress.owed)} of {ledger}"
                noted = _noted(kept, name)
                # Where a consumer that is new to a ledger begins, the ledger itself remembers.
                begins_at = noted if progress.saved.position < 0 else progress.saved.position
                if begins_at < last:
                    yield f"{name} has saved {progress.saved} of {ledger}, not {last}"
                if noted < last:
                    yield f"{ledger} does not know that {name} is done"

    def _check_bounds(self, consumer: DurableConsumer) -> None:
        terms, streams = self.terms, consumer.streams.values()
        held_count = sum(len(stream.held) for stream in streams)
        held_bytes = sum(stream.held_bytes for stream in streams)
        out_count = sum(len(stream.out) for stream in streams)
        if (consumer.held_count, consumer.held_bytes) != (held_count, held_bytes):
            raise Uneven(f"{consumer.name} has miscounted what it holds")
        if held_count > terms.held_count_max + len(streams):
            raise Uneven(f"{consumer.name} holds {held_count} events")
        if out_count != consumer.out_count or out_count > terms.out_count_max:
            raise Uneven(f"{consumer.name} has {out_count} events in the application's hands")
        for stream in streams:
            parts = [*stream.fresh, *stream.retries, *stream.out, *stream.dying]
            if sorted(parts) != list(stream.held):
                raise Uneven(f"{consumer.name} holds {list(stream.held)}, but as {parts}")

    def _bury(self, ledger: str, number: int, name: str) -> None:
        progress = self._of(name, ledger)
        if number not in progress.dead:
            raise Uneven(f"{number} of {ledger} is a dead letter of {name}; nobody knows why")
        progress.owed.pop(number, None)
        self.dead_count += 1

    def _of(self, name: str, ledger: str) -> _Progress:
        return self._progress.setdefault((name, ledger), _Progress())

    def _out_at(self, node: str, consumer: DurableConsumer) -> dict[str, set[int]]:
        return self._out.setdefault((node, consumer.name), {})

    def _note_owed(self, name: str, ledger: str, number: int, record: Record) -> None:
        registered_at = self._registered_at[name]
        if record.time >= registered_at and self._wanted(name, record):
            self._of(name, ledger).owed[number] = None

    def _wanted(self, name: str, record: Record) -> list[int]:
        """The places of what the consumer wants; of an event that is no transaction, 0 or none."""
        interest = self.interests[name]
        return [
            at
            for at, (subject, attributes) in enumerate(events_of(record))
            if any(matches(pattern, subject) for pattern in interest.patterns)
            and (not interest.where or _compiled(interest.where).matches(attributes))
        ]


def _noted(ledger: MemoryLedger, name: str) -> int:
    """How far the ledger believes the consumer to be."""
    positions = ledger.positions()
    return positions[name].position if name in positions else 0
