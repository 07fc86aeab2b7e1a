"""The audit of a node: what it decided, as events under `~audit.*`, one for many of a kind."""

from __future__ import annotations

from infobus.objects import DataObject

AUDIT_SPACE = "~audit."
GATHER_S = 10.0
"""What is alike within this time is told once, with a count."""
KINDS_COUNT_MAX = 10_000

WHATS = ("denied", "refused", "managed", "joined", "left", "policy", "revoked")
KEPT = frozenset({"denied", "refused", "managed"})
"""These are guaranteed. The others every node tells of every other, so they are plain events."""


class Audit(DataObject, name="infobus.Audit"):
    """What a node of a secured bus has decided.

    `what` is `denied`: `principal` could not do this here itself; `refused`: it was not accepted
    here; `managed`: it did what the policy wants told; `joined` and `left`: a node of `principal`;
    `policy`: that version counts here from now on; `revoked`: it shuts `principal` out.
    `count` are all of this kind since `since`, in seconds since 1970.
    """

    what: str
    principal: str
    node: str
    action: str
    subject: str
    rule: str
    policy: int
    count: int
    since: float
    told_by: str


Kind = tuple[str, str, str, str, str, str, int]
"""What, principal, node, action, subject, rule, policy."""


class AuditDraft:
    """What is to be told, gathered; whoever calls holds no lock for it."""

    def __init__(self, told_by: str) -> None:
        self._told_by = told_by
        self._gathered: dict[Kind, tuple[int, float]] = {}
        self._told_at_s: dict[Kind, float] = {}

    def note(self, kind: Kind, wall_s: float) -> None:
        """Something was decided."""
        count, since = self._gathered.get(kind, (0, wall_s))
        if count or len(self._gathered) < KINDS_COUNT_MAX:
            self._gathered[kind] = (count + 1, since)

    def due(self, now_s: float) -> list[Audit]:
        """What is to be told now: of each kind, at once the first time, then every 10 s."""
        events = []
        for kind in list(self._gathered):
            if now_s - self._told_at_s.get(kind, -GATHER_S) >= GATHER_S:
                count, since = self._gathered.pop(kind)
                if len(self._told_at_s) >= KINDS_COUNT_MAX:
                    self._told_at_s.clear()
                self._told_at_s[kind] = now_s
                what, principal, node, action, subject, rule, policy = kind
                events.append(
                    Audit(
                        what=what,
                        principal=principal,
                        node=node,
                        action=action,
                        subject=subject,
                        rule=rule,
                        policy=policy,
                        count=count,
                        since=since,
                        told_by=self._told_by,
                    )
                )
        return events
