"""How a policy gets around: each node tells the version that it holds, and fetches a newer one.

It is told to everyone when it changes, to each node that comes, and again to those that have not
said that they hold it. Whether a policy may be believed is for others to decide: `PolicyCame` says
that one has come, and `hold` that it counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from infobus.protocols.effects import ToAll, ToPeer
from infobus.protocols.frames.policies import (
    NotAccepted,
    PolicyHeld,
    PolicyMessage,
    PolicySent,
    WantPolicy,
)

AGAIN_S = 1.0
AGAIN_COUNT_MAX = 60
"""How often a node that does not answer is told again: it may be of an older version."""


class PolicyCame(Struct, frozen=True):
    """A policy has come that is said to be newer; nothing of it is verified."""

    sender: str
    policy: bytes


class ActionRefused(Struct, frozen=True):
    """Another node has left out what this one did."""

    by: str
    action: str
    subject: str
    policy: int


PolicyEffect = ToAll[PolicyMessage] | ToPeer[PolicyMessage] | PolicyCame | ActionRefused


class PolicyExchange:
    """One node's part in it."""

    def __init__(self, name: str, version: int, policy: bytes) -> None:
        self.version = version
        self.told: dict[str, int] = {}
        """The versions that the nodes which can be seen have told; 0: none yet."""
        self._name = name
        self._policy = policy
        self._asked_s: dict[str, float] = {}
        self._again: dict[str, int] = {}
        self._at_s = 0.0

    def hold(self, version: int, policy: bytes) -> Sequence[PolicyEffect]:
        """This policy counts from now on, as it is the newest."""
        assert version > self.version
        self.version, self._policy = version, policy
        self._asked_s.clear()
        self._again.clear()
        return [ToAll(PolicyHeld(self._name, version))]

    def has_everyone(self, version: int) -> bool:
        """Whether all nodes that can be seen hold this version or a newer one."""
        return all(told >= version for told in self.told.values())

    def take(self, message: PolicyMessage, now_s: float) -> Sequence[PolicyEffect]:
        """A message has come."""
        match message:
            case PolicyHeld(sender, version, is_answer):
                return self._on_held(sender, version, is_answer, now_s)
            case WantPolicy(sender):
                return [ToPeer(sender, PolicySent(self._name, self._policy), bulk=True)]
            case PolicySent(sender, policy):
                return [PolicyCame(sender, policy)]
            case NotAccepted(sender, action, subject, policy):
                # By a newer policy, perhaps: what that does not allow ends when it is here.
                wanted = self._wanted(sender, policy, now_s)
                return [ActionRefused(sender, action, subject, policy), *wanted]

    def _on_held(
        self, sender: str, version: int, is_answer: bool, now_s: float
    ) -> Sequence[PolicyEffect]:
        effects: list[PolicyEffect] = []
        if sender in self.told:
            self.told[sender] = version
        effects += self._wanted(sender, version, now_s)
        if not is_answer:
            effects.append(ToPeer(sender, PolicyHeld(self._name, self.version, True)))
        return effects

    def _wanted(self, sender: str, version: int, now_s: float) -> Sequence[PolicyEffect]:
        """Ask for a newer policy, if it is that."""
        if version <= self.version or now_s - self._asked_s.get(sender, -AGAIN_S) < AGAIN_S:
            return []
        self._asked_s[sender] = now_s
        return [ToPeer(sender, WantPolicy(self._name))]

    def peer_up(self, name: str, now_s: float) -> Sequence[PolicyEffect]:
        """A peer can be seen (again)."""
        self.told[name] = 0
        self._again.pop(name, None)
        return [ToPeer(name, PolicyHeld(self._name, self.version))]

    def peer_down(self, name: str, now_s: float) -> Sequence[PolicyEffect]:
        """A peer can no longer be seen."""
        for known in (self.told, self._asked_s, self._again):
            known.pop(name, None)
        return []

    def tick(self, now_s: float) -> Sequence[PolicyEffect]:
        """Time has passed: tell those again that have not said that they hold it."""
        if now_s - self._at_s < AGAIN_S:
            return []
        self._at_s = now_s
        effects: list[PolicyEffect] = []
        for name, told in self.told.items():
            if told != self.version and self._again.get(name, 0) < AGAIN_COUNT_MAX:
                self._again[name] = self._again.get(name, 0) + 1
                effects.append(ToPeer(name, PolicyHeld(self._name, self.version)))
        return effects
