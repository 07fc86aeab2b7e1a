"""The guard of a node: asks the policy what this node may do, and what it may accept of others.

A bus without an authority has no guard. All that a guard decides is remembered until another policy
counts, so asking again is a look into a dict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Literal, Protocol

from infobus.errors import NotAllowed
from infobus.security.policy import Action, RoleRate, plain_subject
from infobus.security.rights import Rights
from infobus.security.signed_policy import VerifiedPolicy
from infobus.subjects import OWN, matches

WhenFull = Literal["pace", "block", "drop_oldest", "disconnect"]

_CACHE_COUNT_MAX = 100_000
_RIGHTS_COUNT_MAX = 10_000

# What every node tells of itself: its name is in the subject, or what it tells is about its rules.
_OF_NODES = ("~stats.", "~audit.")
_QOS_POLICIES = "qos.*.policy"


class Bearers(Protocol):
    """Tells who is behind a node."""

    def principal_of(self, node: str) -> str | None:
        """The principal of a node; None if it never showed one."""

    def roles_of(self, node: str) -> tuple[str, ...]:
        """The roles in the certificate that a node has shown."""


OnRefused = Callable[[str, str, Action, str], None]
"""Is told of the node, its principal, the action and the subject that was not accepted."""


class Guard:
    """What one node of a secured bus may do, and what it accepts of others."""

    def __init__(self, node: str, who: Bearers, policy: VerifiedPolicy) -> None:
        self.node = node
        self.on_refused: OnRefused = lambda node, principal, action, subject: None
        self.on_denied: Callable[[NotAllowed], None] = lambda error: None
        self.on_audited: OnRefused = lambda node, principal, action, subject: None
        self._who = who
        self._policy = policy
        self._rights: dict[tuple[str, tuple[str, ...]], Rights] = {}
        self._accepted: dict[tuple[str, str, str], bool] = {}
        self._refusals: dict[tuple[str, str], NotAllowed] = {}
        self._own: Rights | None = None
        self._lock = threading.Lock()  # over what others have refused

    @property
    def policy(self) -> VerifiedPolicy:
        """The policy that counts now."""
        return self._policy

    def take_up(self, policy: VerifiedPolicy) -> None:
        """Another policy counts from now on."""
        self._policy = policy
        self._rights, self._accepted, self._own = {}, {}, None
        with self._lock:
            self._refusals.clear()

    def forget_nodes(self) -> None:
        """Somebody may have other roles now."""
        self._accepted, self._own = {}, None

    # What this node may do.

    @property
    def own(self) -> Rights:
        """What this node may do."""
        if self._own is None:
            self._own = self._rights_of(self.node)
        return self._own

    def check(self, action: Action, subject: str) -> None:
        """Raise `NotAllowed` unless this node may do this."""
        with self._lock:
            refusal = self._refusals.pop((action, plain_subject(subject)), None)
        if refusal is not None:
            raise refusal
        verdict = self.own.may(action, subject)
        if not verdict.is_allowed:
            error = self.own.refusal(action, subject)
            self.on_denied(error)
            raise error
        self._note_allowed(self.node, action, subject)

    def check_publish(self, subject: str) -> None:
        """Raise `NotAllowed` unless this node may publish here."""
        self.check(_action_of_event(subject), subject)

    def wanted(self, patterns: Collection[str], narrow: bool) -> list[str]:
        """The patterns that may be subscribed to; with `narrow` only their allowed parts.

        Raises:
            NotAllowed: One of them is not allowed as a whole; with `narrow`, nothing of them is.
        """
        if not narrow:
            for pattern in patterns:
                self.check("subscribe", pattern)
            return list(patterns)
        own = self.own
        parts = {part.to[0]: None for pattern in patterns for part in own.part_of(pattern)}
        if not parts:
            raise own.refusal("subscribe", next(iter(patterns)))
        return list(parts)

    def when_full(self, patterns: Collection[str], wish: WhenFull) -> WhenFull:
        """What a subscription may do when it falls behind: without `hold`, nobody waits for it.

        Raises:
            NotAllowed: It asks for `block` by name.
        """
        if wish not in ("pace", "block"):
            return wish
        may = all(self.own.may("hold", pattern).is_allowed for pattern in patterns)
        if not may and wish == "block":
            for pattern in patterns:
                self.check("hold", pattern)
        return wish if may else "drop_oldest"

    def may_hear(self, subject: str) -> bool:
        """Whether events of a subject may reach subscriptions here."""
        return self.own.may("subscribe", subject).is_allowed

    def is_refused_by(self, node: str, action: str, subject: str, policy: int) -> None:
        """Another node has not accepted what this one did: the next time, that is raised here."""
        if len(self._refusals) >= _RIGHTS_COUNT_MAX:
            return
        error = NotAllowed(
            f"{self.own.principal} may not {action} {subject!r}: {node} has not accepted it, by "
            f"policy {policy}; the one known here is {self._policy.version}",
            action=action,
            subject=subject,
            principal=self.own.principal,
            policy=policy,
        )
        with self._lock:
            self._refusals[action, plain_subject(subject)] = error

    # What others may do.

    def accepts(self, node: str, action: Action, subject: str) -> bool:
        """Whether a node may do this; if not, that is told once, until another policy counts."""
        known = self._accepted.get((node, action, subject))
        if known is None:
            known = node == self.node or self._rights_of(node).may(action, subject).is_allowed
            self._note(node, action, subject, known)
        if known:
            self._note_allowed(node, action, subject)
        return known

    def accepts_event(self, node: str, subject: str) -> bool:
        """Whether events of a node may be delivered here."""
        if subject.startswith(_OF_NODES):
            return True
        return self.accepts(node, _action_of_event(subject), subject)

    def accepts_reading(self, node: str, subject: str) -> bool:
        """Whether a node may have the events of a subject."""
        return self.accepts(node, "subscribe", subject)

    def accepts_row(self, node: str, pattern: str) -> bool:
        """Whether a node may want what a pattern matches, or all of it but for exceptions."""
        known = self._accepted.get((node, "row", pattern))
        if known is None:
            parts = self._rights_of(node).part_of(pattern)
            known = any(pattern in part.to for part in parts)
            self._note(node, "subscribe", pattern, known, kind="row")
        return known

    def accepts_retiring(self, node: str, subject: str) -> bool:
        """Whether a node may have this node's servers of a subject retire."""
        if self._who.principal_of(node) == self._who.principal_of(self.node):
            return self.accepts(node, "serve", subject)
        return self.accepts(node, "manage", subject)

    def rate_of(self, node: str) -> RoleRate | None:
        """How much all nodes of the principal of a node may send; None if no role says it."""
        return self._rights_of(node).rate

    def principal_of(self, node: str) -> str:
        """The principal of a node; empty if it never showed one."""
        return self._who.principal_of(node) or ""

    def refusal(self, node: str, action: Action, subject: str) -> tuple[str, int]:
        """Why a node may not do something, and the version of the policy that says so."""
        error = self._rights_of(node).refusal(action, subject)
        return str(error), error.policy

    def may_read(self, node: str, channel: str) -> bool:
        """Whether a node may have anything of a channel; frames are sealed for such nodes alone."""
        known = self._accepted.get((node, "channel", channel))
        if known is None:
            rights = self._rights_of(node)
            known = bool(rights.part_of(channel) or rights.part_of(f"{channel}.>"))
            self._accepted[node, "channel", channel] = known
        return known

    def _note_allowed(self, node: str, action: Action, subject: str) -> None:
        policy = self._policy.policy
        if policy.audit and policy.is_audited(action, subject):
            self.on_audited(node, self._who.principal_of(node) or "", action, subject)

    def _note(
        self, node: str, action: Action, subject: str, is_accepted: bool, kind: str = ""
    ) -> None:
        if len(self._accepted) >= _CACHE_COUNT_MAX:
            self._accepted = {}
        self._accepted[node, kind or action, subject] = is_accepted
        if not is_accepted:
            principal = self._who.principal_of(node) or ""
            self.on_refused(node, principal, action, subject)

    def _rights_of(self, node: str) -> Rights:
        principal, roles = self._who.principal_of(node), self._who.roles_of(node)
        key = (principal or "", roles if principal else ())
        rights = self._rights.get(key)
        if rights is None:
            if len(self._rights) >= _RIGHTS_COUNT_MAX:
                self._rights = {}
            rights = self._rights[key] = Rights(self._policy.policy, *key)
        return rights


def _action_of_event(subject: str) -> Action:
    """Some events are orders: who sends them needs the right to manage."""
    plain = plain_subject(subject)
    return "manage" if plain[:1] == OWN or matches(_QOS_POLICIES, plain) else "publish"
