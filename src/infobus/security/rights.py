"""Rights: what a principal with some roles may do, by one version of the policy.

Whoever asks about a pattern asks about every subject that it matches: one rule must cover it all.
What a rule excludes is excluded from that rule alone; another may still give it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from infobus.errors import NotAllowed
from infobus.printable import printable
from infobus.security.policy import (
    ACTIONS,
    Action,
    BusPolicy,
    Grant,
    RoleRate,
    plain_subject,
    split_operation,
)
from infobus.subjects import covers, intersection, overlaps

_CACHE_COUNT_MAX = 10_000


class Verdict(Struct, frozen=True):
    """Whether something is allowed, by which rule of which policy; no rule refuses anything."""

    is_allowed: bool
    rule: str
    policy: int


class Rights:
    """What one principal may do. Asking again is one look into a dict.

    >>> from infobus.security.policy import read_policy
    >>> policy = read_policy('bus = "b"\\nversion = 7\\n[roles.sensor]\\n'
    ...                      'publish = ["plant.{principal}.>"]')
    >>> rights = Rights(policy, "s1", ["sensor"])
    >>> rights.may("publish", "plant.s1.heat")
    Verdict(is_allowed=True, rule='sensor: publish plant.s1.>', policy=7)
    >>> rights.may("publish", "plant.s2.heat").is_allowed
    False
    """

    def __init__(self, policy: BusPolicy, principal: str, roles: Iterable[str]) -> None:
        self.policy = policy
        self.principal = principal
        self.roles = tuple(roles)
        self._known: dict[tuple[str, str], Verdict] = {}
        self._rules: dict[str, list[_Given]] = {
            action: [
                _Given(role, action, rule.of(principal))
                for role in self.roles
                if role in policy.roles
                for rule in policy.roles[role].rules.get(action, ())
            ]
            for action in ACTIONS
        }

    @property
    def rate(self) -> RoleRate | None:
        """The most that it may send: of the roles that name a rate, the greatest; None for all."""
        rates = [
            role.rate
            for name in self.roles
            if (role := self.policy.roles.get(name)) and role.rate is not None
        ]
        if not rates:
            return None
        return RoleRate(
            _greatest([rate.events_per_s for rate in rates]),
            _greatest([rate.bytes_per_s for rate in rates]),
        )

    def may(self, action: Action, subject: str) -> Verdict:
        """Whether it may do this to a subject, or to all subjects of a pattern.

        The subject of `call` may name an operation, as in `svc.pay/transfer`; that of `define` is a
        type's name, that of `act_for` a principal.
        """
        known = self._known.get((action, subject))
        if known is None:
            if len(self._known) >= _CACHE_COUNT_MAX:
                self._known.clear()
            known = self._known[action, subject] = self._judged(action, subject)
        return known

    def check(self, action: Action, subject: str) -> None:
        """Raise `NotAllowed` unless it may do this."""
        if not self.may(action, subject).is_allowed:
            raise self.refusal(action, subject)

    def refusal(self, action: Action, subject: str) -> NotAllowed:
        """The error that says what is not allowed, and what would be."""
        return NotAllowed(
            f"{self.principal} ({_roles(self.roles)}) may not {action} {printable(subject)}: no "
            f"rule of policy {self.policy.version} allows it; {self.principal} may {action}: "
            f"{', '.join(map(str, self.given(action))) or 'nothing'}",
            action=action,
            subject=subject,
            principal=self.principal,
            policy=self.policy.version,
        )

    def given(self, action: Action) -> list[Grant]:
        """What it may do at all, with its own name where a rule asks for that."""
        return [given.rule for given in self._rules[action]]

    def part_of(self, pattern: str) -> list[Grant]:
        """What it may subscribe to of a pattern: rules within it, none within another of them."""
        prefix = pattern[: len(pattern) - len(plain_subject(pattern))]
        wanted = plain_subject(pattern)
        parts = []
        for given in self._rules["subscribe"]:
            for to in given.rule.to:
                common = intersection(to, wanted)
                if common is None or any(covers(out, common) for out in given.rule.excluded):
                    continue
                out = [one for one in given.rule.excluded if overlaps(one, common)]
                parts.append(Grant((prefix + common,), tuple(prefix + one for one in out)))
        return _widest(parts)

    def _judged(self, action: Action, subject: str) -> Verdict:
        asked, operation = plain_subject(subject), ""
        if action == "call":
            asked, operation = split_operation(asked)
        for given in self._rules[action]:
            if given.covers(asked, operation):
                return Verdict(True, given.shown, self.policy.version)
        return Verdict(False, "", self.policy.version)


class _Given:
    """A rule of a role, with its patterns taken apart."""

    def __init__(self, role: str, action: str, rule: Grant) -> None:
        split = split_operation if action == "call" else _whole
        self.rule = rule
        self.shown = f"{role}: {action} {rule}"
        self._to = [split(one) for one in rule.to]
        self._excluded = [split(one) for one in rule.excluded]

    def covers(self, asked: str, operation: str) -> bool:
        """Whether it gives all of what is asked for; no operation stands for all of them."""
        return any(
            only in ("", operation) and covers(to, asked) for to, only in self._to
        ) and not any(
            (not only or not operation or only == operation) and overlaps(out, asked)
            for out, only in self._excluded
        )


def _whole(pattern: str) -> tuple[str, str]:
    return pattern, ""


def _widest(parts: list[Grant]) -> list[Grant]:
    kept: list[Grant] = []
    for part in sorted(parts, key=lambda one: len(one.excluded)):
        if not any(
            covers(other.to[0], part.to[0])
            and all(any(covers(o, one) for o in part.excluded) for one in other.excluded)
            for other in kept
        ):
            kept.append(part)
    return kept


def _greatest(numbers: list[float | None]) -> float | None:
    """No number means that there is no bound."""
    return None if None in numbers else max(number for number in numbers if number is not None)


def _roles(roles: tuple[str, ...]) -> str:
    return f"roles: {', '.join(roles)}" if roles else "no roles"
