"""The state that all parts of a member share: its identity, what it knows, and its effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.membership import (
    Accepted,
    Ballot,
    Body,
    Decision,
    GroupLabel,
    Said,
    Snapshot,
)
from infobus.protocols.membership.effects import SaveState
from infobus.protocols.membership.sequence import AgreedSequence
from infobus.protocols.membership.table import AgreedTable
from infobus.protocols.membership.terms import MembershipTerms, is_quorum

_BASE_COUNT = 256  # decisions on disk after which all of it is written anew
_BULK_BYTES = 16 * 1024  # a snapshot above that may wait for a slow link


class _Promises(Struct, array_like=True):
    """What a member must not forget, besides what was decided."""

    incarnation: int
    has_been_member: bool
    promised: Ballot | None
    accepted: Accepted | None


class _Base(Struct, array_like=True):
    group: GroupLabel
    slot: int
    state: bytes


_promises = msgspec.msgpack.Decoder(_Promises)
_bases = msgspec.msgpack.Decoder(_Base)
_decisions: msgspec.msgpack.Decoder[Decision] = msgspec.msgpack.Decoder(Decision)
_encode = msgspec.msgpack.encode


class Seat:
    """A member's place: identity, what was decided, what it promised, and its outbox.

    What it says is held back until the step is over; then what has changed is saved first.
    """

    def __init__(
        self,
        node: str,
        name: str,
        incarnation: int,
        terms: MembershipTerms,
        tables: Mapping[str, AgreedTable],
    ) -> None:
        self.node = node
        self.name = name
        self.incarnation = incarnation
        self.has_been_member = False  # of any group, ever
        self.terms = terms
        self.sequence = AgreedSequence(tables)
        self.promised: Ballot | None = None
        self.accepted: Accepted | None = None
        self.nodes: dict[str, str] = {}  # of members and those who want to be
        self.daemons: dict[str, None] = {}  # nodes that show that they have a member
        self.gone: dict[str, float] = {}  # nodes that do so no longer, and since when
        self.effects: list[Any] = []
        self._changes: dict[str, bytes | None] = {}
        self._base_slot = -1
        self._is_promise_new = True

    @property
    def id(self) -> str:
        """The member's id."""
        return f"{self.name}#{self.incarnation}"

    @property
    def is_member(self) -> bool:
        """Whether it belongs to a group."""
        return bool(self.sequence.members)

    @property
    def leader(self) -> str:
        """Whom it follows; empty without a group."""
        return self.promised.member if self.promised else ""

    @property
    def others(self) -> list[str]:
        """The other members."""
        return [member for member in self.sequence.members if member != self.id]

    def is_quorum(self, who: set[str]) -> bool:
        """Whether these can decide the next slot."""
        return is_quorum(who, self.sequence.members)

    def silent_from_s(self, member: str, heard_s: float) -> float:
        """When a member is given up that was last heard at that time.

        A token that went is a hint: such a member has one heartbeat left to prove it wrong.
        """
        given_up_s = heard_s + self.terms.suspect_s
        gone_s = self.gone.get(self.nodes.get(member, ""))
        if gone_s is None or heard_s >= gone_s:
            return given_up_s
        return min(given_up_s, gone_s + self.terms.heartbeat_s)

    # Saying.

    def say(self, to: str, body: Body) -> None:
        """Say something to a member. If it is not known where that is, it may be at any node."""
        node = self.nodes.get(to)
        if node is not None:
            self.say_at(node, body, to)
        if node is None or node in self.gone:
            for daemon in self.daemons:
                self.say_at(daemon, body, to)

    def say_at(self, node: str, body: Body, to: str = "") -> None:
        """Say something to the member at a node, whoever that is."""
        if node == self.node:
            return
        sequence = self.sequence
        said = Said(self.node, self.id, to, sequence.group, sequence.slot, body)
        is_bulk = isinstance(body, Snapshot) and len(body.state) > _BULK_BYTES
        self.effects.append(ToPeer(node, said, is_bulk))

    def tell(self, body: Body) -> None:
        """Say something to all other members."""
        for member in self.others:
            self.say(member, body)

    # Promising and deciding.

    def promise(self, ballot: Ballot, accepted: Accepted | None) -> None:
        """Follow this ballot and no lower one, having accepted this for the next slot."""
        self.promised, self.accepted = ballot, accepted
        self._is_promise_new = True

    def begin(self, group: GroupLabel, members: tuple[str, ...]) -> None:
        """Begin a group."""
        self.sequence.begin(group, members)
        self.promise(Ballot(0, members[0]), None)
        self.rebase()

    def install(self, decision: Decision) -> None:
        """The next slot was decided; its first leader is the most senior member."""
        sequence = self.sequence
        sequence.install(decision)
        self._changes[f"decision/{sequence.slot}"] = _encode(decision)
        self._forget_strangers()
        self.promise(Ballot(0, sequence.members[0]), None)
        if sequence.slot - self._base_slot >= _BASE_COUNT:
            self.rebase()

    def _forget_strangers(self) -> None:
        members = self.sequence.members
        self.nodes = {member: node for member, node in self.nodes.items() if member in members}
        nodes = set(self.nodes.values())
        self.gone = {node: gone_s for node, gone_s in self.gone.items() if node in nodes}

    def rebase(self) -> None:
        """Save all that was decided as one piece."""
        sequence = self.sequence
        for slot in range(self._base_slot + 1, sequence.slot + 1):
            self._changes[f"decision/{slot}"] = None
        base = _Base(sequence.group, sequence.slot, sequence.snapshot())
        self._changes["base"] = _encode(base)
        self._base_slot = sequence.slot

    def sit_down(self) -> None:
        """Belong to the group that the sequence has just come to know."""
        self.promise(Ballot(0, self.sequence.members[0]), None)
        self.rebase()

    def stand_up(self, incarnation: int) -> None:
        """Belong to no group any more; what comes is another incarnation."""
        for slot in range(self._base_slot + 1, self.sequence.slot + 1):
            self._changes[f"decision/{slot}"] = None
        self._changes["base"] = None
        self._base_slot = -1
        self.sequence.clear()
        self.promised = self.accepted = None
        self.incarnation, self._is_promise_new = incarnation, True

    # The disk.

    def flush(self) -> list[Any]:
        """What this step wants done: what must be on disk comes first."""
        if self._is_promise_new:
            self.has_been_member |= self.is_member
            kept = (self.incarnation, self.has_been_member, self.promised, self.accepted)
            self._changes["promises"] = _encode(_Promises(*kept))
            self._is_promise_new = False
        effects, self.effects = self.effects, []
        if self._changes:
            effects.insert(0, SaveState(self._changes))
            self._changes = {}
        return effects

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Become what was saved.

        Raises:
            msgspec.DecodeError: It was not saved by this code.
        """
        promises = _promises.decode(saved["promises"])
        self.incarnation, self.has_been_member = promises.incarnation, promises.has_been_member
        if "base" not in saved:
            return
        base = _bases.decode(saved["base"])
        sequence = self.sequence
        sequence.restore(base.group, base.slot, base.state)
        self._base_slot = base.slot
        while (bytes_ := saved.get(f"decision/{sequence.slot + 1}")) is not None:
            sequence.install(_decisions.decode(bytes_))
        first = Ballot(0, sequence.members[0])
        self.promised, self.accepted = promises.promised or first, promises.accepted
