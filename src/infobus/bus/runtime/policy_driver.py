"""Keeps a node to the policy of its bus: takes up a newer one, and hands it on.

A newer policy comes from another node, or from the home, where a command or another program has put
it. Once it is verified, it counts: sessions of those that were revoked end, subscriptions that are
not allowed any more are closed with `NotAllowed`, and the interest of others is asked for anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from infobus.bus.deliver.type_authors import believe
from infobus.bus.rights.audit import AUDIT_SPACE, Audit, AuditDraft
from infobus.bus.rights.guard import Guard
from infobus.bus.runtime.peer_limits import Budget
from infobus.bus.runtime.registration import Background, Part
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import BadPolicy, BusError, NotAllowed, StoreError
from infobus.printable import printable
from infobus.protocols.effects import ToAll
from infobus.protocols.frames import policies as frames
from infobus.protocols.frames import wire
from infobus.protocols.qos.classes import Limits
from infobus.protocols.security.policies import ActionRefused, PolicyCame, PolicyExchange
from infobus.security.policy import Action
from infobus.security.signed_policy import (
    SignedPolicy,
    VerifiedPolicy,
    read_signed_policy,
    verified,
)

if TYPE_CHECKING:
    from infobus.stores.key_folder import KeyFolder

_LOOK_S = 1.0
_STOP_S = 5.0


class Shown(Protocol):
    """What a node goes by: the policy that counts, by which it also says who is a member."""

    policy: VerifiedPolicy


class SecuredEngine(Protocol):
    """What is needed of the engine of a secured bus."""

    def principal_of(self, node: str) -> str | None:
        """The principal of a node; None if it never showed one."""

    def roles_of(self, node: str) -> tuple[str, ...]:
        """The roles in the certificate that a node has shown."""

    def tell_policy(self, version: int) -> None:
        """The version that is told in handshakes from now on."""

    def recheck(self) -> None:
        """Look at all certificates again."""


class PolicyDriver:
    """One node's policy at work. It is a machine itself, around `PolicyExchange`."""

    def __init__(
        self,
        runtime: Runtime,
        engine: SecuredEngine,
        shown: Shown,
        folder: KeyFolder | None,
        publish: Callable[[str, Audit], None],
        on_change: Callable[[], None],
    ) -> None:
        self.guard = Guard(runtime.name, engine, shown.policy)
        self.exchange = PolicyExchange(
            runtime.name, shown.policy.version, shown.policy.signed.to_bytes()
        )
        self._runtime = runtime
        self._engine = engine
        self._shown = shown
        self._folder = folder
        self._publish = publish
        self._on_change = on_change
        self._audit = AuditDraft(runtime.name)
        self._looked_at_s = 0.0
        self._seen_file: tuple[int, int] | None = None
        self._part = Part("policy", self, self._do)
        self._strand = Background(
            runtime, f"infobus-{runtime.name}-policy", frames.decode, after=lambda: None
        )
        self._strand.parts[self._part] = None
        self.guard.on_refused = self._on_refused
        self.guard.on_denied = self._on_denied
        self.guard.on_audited = partial(self._note_for, "managed")
        runtime.register(self._strand, frames.POLICY_TAGS)
        runtime.use_guard(self.guard)
        self._use_rates()
        runtime.policy = self
        engine.tell_policy(shown.policy.version)

    def stop(self) -> None:
        """Take up nothing more."""
        self._strand.stop(_STOP_S)
        believe(self._runtime.name, None)

    def wait_spread(self, version: int, timeout_s: float) -> tuple[int, int]:
        """Wait until the nodes that can be seen hold a version; how many do, and of how many."""
        self._runtime.wait_until(lambda: self.exchange.has_everyone(version), timeout_s)
        told = list(self.exchange.told.values())
        return sum(one >= version for one in told), len(told)

    # What the world does.

    def take(self, message: frames.PolicyMessage, now_s: float) -> Sequence[Any]:
        """A message has come."""
        if message.sender == self._runtime.name:  # what it has said to all
            return []
        effects = self.exchange.take(message, now_s)
        self._runtime.wake()
        return effects

    def peer_up(self, name: str, now_s: float) -> Sequence[Any]:
        """A peer can be seen (again)."""
        self.guard.forget_nodes()  # it may show another certificate
        self._use_rates()
        self._note("joined", self._engine.principal_of(name) or "", name)
        return self.exchange.peer_up(name, now_s)

    def peer_down(self, name: str, now_s: float) -> Sequence[Any]:
        """A peer can no longer be seen."""
        self._note("left", self._engine.principal_of(name) or "", name)
        effects = self.exchange.peer_down(name, now_s)
        self._runtime.wake()
        return effects

    def tick(self, now_s: float) -> Sequence[Any]:
        """Time has passed: look into the home, tell what was decided."""
        self._tell_audit()
        effects: list[Any] = []
        if self._folder is not None and now_s - self._looked_at_s >= _LOOK_S:
            self._looked_at_s = now_s
            effects += self._look_into_home(self._folder)
        return [*effects, *self.exchange.tick(now_s)]

    def _look_into_home(self, folder: KeyFolder) -> Sequence[Any]:
        try:
            found = folder.policy_path.stat()
        except OSError:
            return []
        seen = found.st_mtime_ns, found.st_ino
        if seen == self._seen_file:
            return []
        self._seen_file = seen
        try:
            signed = folder.policy()
        except (BadPolicy, OSError) as error:
            self._runtime.counters.complain("policy", str(error))
            return []
        return [] if signed is None else self._consider(signed, "this home")

    def _do(self, one: Any) -> Sequence[Any]:
        match one:
            case PolicyCame(sender, policy):
                try:
                    return self._consider(read_signed_policy(policy), sender)
                except BadPolicy as error:
                    self._runtime.counters.complain(sender, f"sent a policy: {error}")
            case ActionRefused(by, action, subject, policy):
                self._runtime.counters.denied += 1
                done = f"{printable(action)} {printable(subject)}"
                what = f"does not accept that this node may {done}, by policy {policy}"
                self._runtime.counters.complain(by, what)
                self.guard.is_refused_by(by, action, subject, policy)
                self._on_change()
            case _:
                raise AssertionError(f"nobody carries out {one}")
        return []

    def _consider(self, signed: SignedPolicy, source: str) -> Sequence[Any]:
        """Take a policy up if it is newer and the authority's."""
        known = self.guard.policy
        if signed.version <= known.version:
            return []
        try:
            policy = verified(
                signed,
                known.authorities,
                bus=known.policy.bus,
                now_s=self._runtime.clock.wall_s(),
            )
        except BadPolicy as error:
            self._runtime.counters.complain(source, f"has a policy: {error}")
            return []
        return self._take_up(policy)

    def _take_up(self, policy: VerifiedPolicy) -> Sequence[Any]:
        if self._folder is not None:
            try:  # before it counts: an old one must not come back when this node starts again
                self._folder.keep_policy(policy.signed)
            except (BusError, OSError) as error:
                self._runtime.counters.complain("policy", f"it cannot be kept: {error}")
        before = set(self.guard.policy.revocations)
        self._shown.policy = policy
        self.guard.take_up(policy)
        self._use_rates()
        self._engine.tell_policy(policy.version)
        self._engine.recheck()
        self._runtime.end_subscriptions(self._why_not)
        self._on_change()
        self._note("policy", "", self._runtime.name)
        for revocation in policy.revocations:
            if revocation not in before:
                self._note("revoked", revocation.principal, "", rule=revocation.why)
        effects = self.exchange.hold(policy.version, policy.signed.to_bytes())
        self._runtime.wake()
        return [*effects, ToAll(wire.WantRows(self._runtime.name))]

    def _why_not(self, patterns: Sequence[str], is_narrow: bool) -> NotAllowed | None:
        """Why a subscription cannot go on."""
        own = self.guard.own
        if is_narrow and any(own.part_of(one) for one in patterns):
            return None  # what is not allowed any more is left out, event by event
        for one in patterns:
            if not own.may("subscribe", one).is_allowed:
                return own.refusal("subscribe", one)
        return None

    def _use_rates(self) -> None:
        roles = self.guard.policy.policy.roles.values()
        with self._runtime.lock:
            has_rates = any(role.rate is not None for role in roles)
            self._runtime.clients.use_budgets(self._budget_of, has_rates)

    def _budget_of(self, node: str, limits: Limits) -> Budget:
        """By principal, however many nodes it has; what its roles do not say, this node says."""
        rate = self.guard.rate_of(node) or limits
        return Budget(self.guard.principal_of(node), rate.events_per_s, rate.bytes_per_s)

    # What was decided.

    def _on_refused(self, node: str, principal: str, action: Action, subject: str) -> None:
        version = self.guard.policy.version
        self._runtime.counters.complain(node, f"({principal}) may not {action} {subject}: left out")
        self._note("refused", principal, node, action, subject)
        refused = frames.NotAccepted(self._runtime.name, action, subject, version)
        # By a worker: whoever asks may hold a lock.
        self._runtime.send([(f"n/{node}", wire.encode(refused), True, 0)])

    def _on_denied(self, error: NotAllowed) -> None:
        self._runtime.counters.denied += 1
        self._note("denied", error.principal, self._runtime.name, error.action, error.subject)

    def _note_for(self, what: str, node: str, principal: str, action: str, subject: str) -> None:
        self._note(what, principal, node, action, subject)

    def _note(
        self,
        what: str,
        principal: str,
        node: str,
        action: str = "",
        subject: str = "",
        rule: str = "",
    ) -> None:
        kind = (what, principal, node, action, subject, rule, self.guard.policy.version)
        self._audit.note(kind, self._runtime.clock.wall_s())

    def _tell_audit(self) -> None:
        for one in self._audit.due(self._runtime.clock.now_s()):
            try:
                self._publish(f"{AUDIT_SPACE}{one.what}", one)
            except (BusError, StoreError) as error:
                self._runtime.counters.complain("audit", str(error))
                return
