"""Rules followed live: a memory for each rule and key, and what still waits for the watermark.

Spark starts a process of its own only to ask a `Follower` what it keeps, so this module leaves
alone what is slow to load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from infobus.errors import UsageError
from infobus.pipeline.jobs.correlate_rules import AnyRule, Found, Hit, Memory, Template, follow
from infobus.subjects import check_subject

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

FOUND = (
    "_subject string, rule string, key string, first_us long, last_us long, count long, "
    "value double, events array<string>"
)
"""The columns of findings."""
_FoundRow = Row(*(column.split()[0] for column in FOUND.split(", ")))


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is looked for, and how what is found is published.

    Attributes:
        rules: Them.
        subject: What a finding is published under; `{rule}` and `{key}` may stand in it.
        late_s: So much may a live event be late behind the latest one.
        journal: The folder from which types are known to `isa`.
    """

    rules: list[AnyRule]
    subject: str = "derived.{rule}"
    late_s: float = 10.0
    journal: str | None = None

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"rules need names that differ, and at least one: {names}")
        if not self.late_s >= 0:
            raise UsageError(f"late_s={self.late_s}: must not be below 0")
        if not Template(self.subject).names <= {"rule", "key"}:
            raise UsageError(f"subject {self.subject!r}: only {{rule}} and {{key}} stand in braces")
        check_subject(_subject(self.subject, "x", "x"))


encode = msgspec.msgpack.Encoder().encode
_decode_hits = msgspec.msgpack.Decoder(list[Hit]).decode


def hits_in(packed: Iterable[bytes]) -> list[Hit]:
    """The hits that `encode` has packed together."""
    return [hit for some in packed for hit in _decode_hits(some)]


def row_of(options: Options, rule: AnyRule, key: str, found: Found) -> tuple[Any, ...]:
    """A finding, by the columns `FOUND`."""
    subject = _subject(options.subject, rule.name, key)
    times = (found.first_us, found.last_us)
    return (subject, rule.name, key, *times, found.count, found.value, list(found.ids))


def _subject(template: str, rule: str, key: str) -> str:
    """The subject of a finding; whatever a key holds, it is one element there."""
    subject = Template(template).filled({"rule": rule, "key": key}, _element)
    assert subject is not None
    return subject


def _element(text: str) -> str:
    return re.sub(r"[^\w-]", "_", text)[:100] or "_"


class _State(Struct, array_like=True):
    memory: Memory
    waiting: list[Hit]
    timer_ms: int | None = None
    """Kept here, because to ask Spark for it takes as long as all the rest."""


_decode = msgspec.msgpack.Decoder(_State).decode


class Follower(StatefulProcessor):
    """Keeps the memory of each rule and key; event-time timers say when to look again."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._kept = handle.getValueState("kept", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Take in new events; they are looked at when the watermark has passed them."""
        until_ms = timerValues.getCurrentWatermarkInMs()
        hits = hits_in(row["hits"] for row in rows)
        new = [hit for hit in hits if hit.time_us > until_ms * 1000]
        if not new:
            return iter(())
        state = self._state()
        found: list[Row] = []
        if state.timer_ms is not None and state.timer_ms <= until_ms:
            # The timer would go off after this: every question to Spark that is saved counts.
            found = self._found(key, state, until_ms)
        state.waiting += new
        self._keep(key, state)
        return iter(found)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """Look at the events, and at the time, up to the watermark."""
        state = self._state()
        if state.timer_ms == expiredTimerInfo.getExpiryTimeInMs():
            state.timer_ms = None  # Spark forgets it, too
        found = self._found(key, state, timerValues.getCurrentWatermarkInMs())
        self._keep(key, state)
        return iter(found)

    def close(self) -> None:
        """Nothing is held open."""

    def _state(self) -> _State:
        kept = self._kept.get()
        return _State(Memory(), []) if kept is None else _decode(bytes(kept[0]))

    def _found(self, key: Any, state: _State, until_ms: int) -> list[Row]:
        """What the events up to this time, and the time itself, have brought about."""
        rule, until_us = self._options.rules[key[0]], until_ms * 1000
        ready = [hit for hit in state.waiting if hit.time_us <= until_us]
        state.waiting = [hit for hit in state.waiting if hit.time_us > until_us]
        found = follow(rule, state.memory, ready, until_us)
        return [_FoundRow(*row_of(self._options, rule, key[1], one)) for one in found]

    def _keep(self, key: Any, state: _State) -> None:
        """Remember the state, and when to look at it again; forget it if there is nothing."""
        rule = self._options.rules[key[0]]
        moments = [hit.time_us for hit in state.waiting]
        if (next_us := rule.next_us(state.memory)) is not None:
            moments.append(next_us)
        wanted_ms = -(-min(moments) // 1000) if moments else None
        if wanted_ms != state.timer_ms:
            if state.timer_ms is not None:
                self._handle.deleteTimer(state.timer_ms)
            if wanted_ms is not None:
                self._handle.registerTimer(wanted_ms)
            state.timer_ms = wanted_ms
        if wanted_ms is None:
            self._kept.clear()
        else:
            self._kept.update((encode(state),))
