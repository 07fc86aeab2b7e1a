"""Follows rules live: a memory for each rule and key, and the events before the watermark.

Spark starts a process only to ask a `Follower` for its state variables, so this module does not
import anything that is slow to load.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from infobus.errors import UsageError
from infobus.pipeline.jobs.correlate.rules import AnyRule, Finding, Hit, Memory, Template, follow
from infobus.subjects import check_subject

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

log = logging.getLogger("infobus")

FOUND = (
    "_subject string, rule string, key string, first_us long, last_us long, count long, "
    "value double, events array<string>, complete boolean"
)
"""The columns of findings."""
SHARE_COUNT = 64
"""Shares of a rule's keys. A running query keeps its state by them: never another number."""
RULES = "infobus-rules.json"
"""In the checkpoint of a live query: the rules whose state it holds."""
_FoundRow = Row(*(column.split()[0] for column in FOUND.split(", ")))


class CorrelateOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The rules, and how their findings are published.

    Attributes:
        rules: The rules.
        subject: The subject of a finding; it may contain `{rule}` and `{key}`.
        late_s: How far a live event may be behind the latest one.
        journal: The folder from which `isa` learns types.
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
        if len(self.by_id) < len(self.rules):
            raise UsageError(f"two of the rules {names} are taken for the same: rename one")

    @cached_property
    def by_id(self) -> dict[int, AnyRule]:
        """Return the rules by their ids, in order.

        A running query keeps its state by these ids. So the id is made of all that the rule says:
        the place of a rule among the others must not matter, and an edited rule is another one.
        """
        return {rule_id(rule): rule for rule in self.rules}


def rule_id(rule: AnyRule) -> int:
    """Return a number that is the same for the same rule, and for no other."""
    digest = hashlib.blake2b(msgspec.json.encode(rule), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1  # Spark's integers have a sign


def note_rules(options: CorrelateOptions, checkpoint: Path) -> list[str]:
    """Write down the rules of a live query in its checkpoint; return what it drops, as lines.

    A rule that was edited or removed since the query ran last has left state in the checkpoint:
    events that it was waiting with. Nothing else can use them.
    """
    path = checkpoint / RULES
    try:
        before = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        # Earlier versions kept state by the positions of rules, which says nothing about them.
        before = {"": "all"} if (checkpoint / "state").exists() else {}
    now = {str(number): rule.name for number, rule in options.by_id.items()}
    if before != now:
        checkpoint.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(now))
        os.replace(beside, path)
    names = set(now.values())
    if "" in before:
        return [f"{checkpoint} is of an earlier version: events that rules waited with are dropped"]
    return [
        f"rule {name!r} was {'edited' if name in names else 'removed'}: events that it was waiting "
        "with are dropped" + (", and it begins anew" if name in names else "")
        for number, name in before.items()
        if number not in now
    ]


encode = msgspec.msgpack.Encoder().encode
_decode_hits = msgspec.msgpack.Decoder(list[Hit]).decode


def hits_in(packed: Iterable[bytes]) -> list[Hit]:
    """Return the hits that `encode` has packed together."""
    return [hit for some in packed for hit in _decode_hits(some)]


def row_of(options: CorrelateOptions, rule: AnyRule, key: str, found: Finding) -> tuple[Any, ...]:
    """Return a finding, by the columns `FOUND`."""
    subject = _subject(options.subject, rule.name, key)
    times = (found.first_us, found.last_us)
    ids = list(found.ids)
    return (subject, rule.name, key, *times, found.count, found.value, ids, found.is_complete)


def _subject(template: str, rule: str, key: str) -> str:
    """Return the subject of a finding; a key always becomes one element of it."""
    subject = Template(template).filled({"rule": rule, "key": key}, _element)
    assert subject is not None
    return subject


def _element(text: str) -> str:
    return re.sub(r"[^\w-]", "_", text)[:100] or "_"


class _State(Struct, array_like=True):
    memory: Memory
    waiting: list[Hit]  # for the watermark


class _Kept(Struct, array_like=True, frozen=True):
    """The stored state of one key."""

    due_ms: int  # when it must be looked at
    state: msgspec.Raw  # encoded: in most batches most keys are not examined


_decode_state = msgspec.msgpack.Decoder(_State).decode


class Share(Struct, array_like=True):
    """The state of all keys of one rule that belong to the same share."""

    keys: dict[str, _Kept] = {}
    timer_ms: int | None = None
    """Kept here, because to ask Spark for it takes as long as all the rest."""

    def look(
        self, rule: AnyRule, new: Mapping[str, Iterable[Hit]], until_ms: int
    ) -> list[tuple[str, Finding]]:
        """Add new hits, and return the findings up to the watermark, by key."""
        due = [key for key, kept in self.keys.items() if kept.due_ms <= until_ms]
        found: list[tuple[str, Finding]] = []
        for key in dict.fromkeys([*due, *new]):
            kept = self.keys.get(key)
            state = _State(Memory(), []) if kept is None else _decode_state(kept.state)
            if kept is not None and kept.due_ms <= until_ms:
                found += ((key, one) for one in _follow(rule, state, until_ms * 1000))
            state.waiting += new.get(key, ())
            due_ms = _due_ms(rule, state)
            if due_ms is None:
                self.keys.pop(key, None)
            else:
                self.keys[key] = _Kept(due_ms, msgspec.Raw(encode(state)))
        return found

    @property
    def due_ms(self) -> int | None:
        """Return when the next key must be examined; None if the share is empty."""
        return min((kept.due_ms for kept in self.keys.values()), default=None)


def _follow(rule: AnyRule, state: _State, until_us: int) -> list[Finding]:
    """Return the findings from the events up to this time, and from the time itself."""
    ready = [hit for hit in state.waiting if hit.time_us <= until_us]
    state.waiting = [hit for hit in state.waiting if hit.time_us > until_us]
    return follow(rule, state.memory, ready, until_us)


def _due_ms(rule: AnyRule, state: _State) -> int | None:
    moments = [hit.time_us for hit in state.waiting]
    if (next_us := rule.next_us(state.memory)) is not None:
        moments.append(next_us)
    return -(-min(moments) // 1000) if moments else None


_decode = msgspec.msgpack.Decoder(Share).decode


class Follower(StatefulProcessor):
    """Stores the memory of rules; event-time timers say when to examine it again.

    Keys share their state and their timer, `SHARE_COUNT` shares to a rule: every request to Spark
    takes longer than examining a key.
    """

    def __init__(self, options: CorrelateOptions) -> None:
        self._options = options

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._kept = handle.getValueState("kept", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Add new events; they are examined when the watermark has passed them."""
        until_ms = timerValues.getCurrentWatermarkInMs()
        new: dict[str, list[Hit]] = {}
        for row in rows:
            hits = [hit for hit in _decode_hits(row["hits"]) if hit.time_us > until_ms * 1000]
            if hits:
                new.setdefault(row["key"], []).extend(hits)
        return self._look(key[0], self._share(), new, until_ms) if new else iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """Examine the events, and the time, up to the watermark."""
        share = self._share()
        if share.timer_ms == expiredTimerInfo.getExpiryTimeInMs():
            share.timer_ms = None  # Spark forgets it, too
        return self._look(key[0], share, {}, timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _share(self) -> Share:
        kept = self._kept.get()
        return Share() if kept is None else _decode(bytes(kept[0]))

    def _look(
        self, number: int, share: Share, new: Mapping[str, Iterable[Hit]], until_ms: int
    ) -> Iterator[Row]:
        rule = self._options.by_id.get(number)
        if rule is None:  # its rule was edited or removed since; `note_rules` has said so
            self._kept.clear()
            return iter(())
        found = share.look(rule, new, until_ms)
        self._keep(share)
        return iter([_FoundRow(*row_of(self._options, rule, key, one)) for key, one in found])

    def _keep(self, share: Share) -> None:
        """Store a share, and set its timer; remove it if it is empty."""
        due_ms = share.due_ms
        if due_ms != share.timer_ms:
            if share.timer_ms is not None:
                self._handle.deleteTimer(share.timer_ms)
            if due_ms is not None:
                self._handle.registerTimer(due_ms)
            share.timer_ms = due_ms
        if due_ms is None:
            self._kept.clear()
        else:
            self._kept.update((encode(share),))
