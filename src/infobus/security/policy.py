"""Policies: which roles there are on a bus, and what each may do, as one text with a version.

A policy is TOML that people write. What it does not give is refused; roles add up, and no rule
takes anything away from another. So the order of rules means nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Literal, cast, get_args

from msgspec import Struct, ValidationError, convert

from infobus.errors import BadPolicy, BadSubject
from infobus.printable import printable
from infobus.subjects import TEST_SPACE, check_pattern, covers

Action = Literal[
    "publish", "subscribe", "serve", "call", "define", "tag", "hold", "act_for", "manage"
]
ACTIONS: tuple[Action, ...] = get_args(Action)

LEVELS = ("signed", "sealed", "signed and sealed")
POLICY_BYTES_MAX = 256 * 1024
RULES_COUNT_MAX = 10_000

_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OPERATION = re.compile(r"[^\W\d]\w*")
_PRINCIPAL = "{principal}"

FIRST_POLICY = """\
# The policy of the bus {bus}: which roles there are, and what each may do.
# What is not given here is refused. Roles add up. `>` covers no subject that begins with `~`.
# Change it, then run: infobus keys policy publish FILE
bus = "{bus}"
version = 1

[roles.member]
publish   = [">"]
subscribe = [">", "~stats.>"]
serve     = [">"]
call      = [">"]
define    = [">"]
tag       = [">"]
hold      = [">"]

[roles.admin]
publish   = [">"]
subscribe = [">", "~stats.>", "~audit.>"]
serve     = [">"]
call      = [">"]
define    = [">"]
tag       = [">"]
hold      = [">"]
manage    = [">"]
"""


class Grant(Struct, frozen=True):
    """Patterns that are allowed, but for some."""

    to: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def __str__(self) -> str:
        but = f" except {' '.join(self.excluded)}" if self.excluded else ""
        return " ".join(self.to) + but

    def of(self, principal: str) -> Grant:
        """The rule with the name of a principal where it asks for that."""
        return Grant(
            tuple(one.replace(_PRINCIPAL, principal) for one in self.to),
            tuple(one.replace(_PRINCIPAL, principal) for one in self.excluded),
        )


class RoleRate(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that all nodes of one principal together may send to any one other."""

    events_per_s: float | None = None
    bytes_per_s: float | None = None


class Role(Struct, frozen=True):
    """What one role gives: rules by action."""

    rules: dict[str, tuple[Grant, ...]] = {}
    rate: RoleRate | None = None


class Protection(Struct, frozen=True):
    """How events must be protected: `keys` are names of event keys, empty for any."""

    level: str
    keys: tuple[str, ...] = ()


class AuditRule(Struct, frozen=True):
    """What is told in the trail although it was allowed."""

    action: str
    pattern: str


class BusPolicy(Struct, frozen=True):
    """One version of the rules of a bus."""

    bus: str
    version: int
    text: str
    roles: dict[str, Role] = {}
    protect: dict[str, Protection] = {}
    types: dict[str, tuple[str, ...]] = {}
    """Which roles may define the types of a namespace: descriptors and methods of others do not
    count there."""
    audit: tuple[AuditRule, ...] = ()

    def protection(self, subject: str) -> list[Protection]:
        """What is asked for events of a subject; all of it."""
        return [level for pattern, level in self.protect.items() if covers(pattern, subject)]

    def authors(self, type_name: str) -> frozenset[str] | None:
        """The roles whose definitions of a type count; None if everybody's do."""
        named = [roles for pattern, roles in self.types.items() if covers(pattern, type_name)]
        return frozenset().union(*map(frozenset, named)) if named else None

    def is_audited(self, action: str, subject: str) -> bool:
        """Whether an allowed action is to be told."""
        asked = split_operation(subject)[0] if action == "call" else subject
        return any(rule.action == action and covers(rule.pattern, asked) for rule in self.audit)


def split_operation(rule: str) -> tuple[str, str]:
    """Split `svc.pay/transfer` into subject and operation; the latter is empty if there is none.

    >>> split_operation("svc.pay/transfer"), split_operation("svc.>"), split_operation("a/b.c")
    (('svc.pay', 'transfer'), ('svc.>', ''), ('a/b.c', ''))
    """
    subject, slash, operation = rule.rpartition("/")
    if slash and subject and _OPERATION.fullmatch(operation):
        return subject, operation
    return rule, ""


def read_policy(text: str) -> BusPolicy:
    """Return the policy that a text says.

    Raises:
        BadPolicy: The text is no policy; the message says where and why.
    """
    if len(text) > POLICY_BYTES_MAX or len(text.encode(errors="replace")) > POLICY_BYTES_MAX:
        raise BadPolicy(f"the policy is too long: at most {POLICY_BYTES_MAX} bytes are accepted")
    try:
        said = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadPolicy(f"the policy is not TOML: {printable(str(error))}") from None
    _only(said, "", ("bus", "version", "roles", "protect", "types", "audit"))
    bus, version = said.get("bus"), said.get("version")
    if not isinstance(bus, str) or not bus:
        raise _bad("bus", "expected the name of a bus", bus)
    if type(version) is not int or not 1 <= version < 2**53:
        raise _bad("version", "expected a whole number from 1", version)
    roles = {}
    for name, given in _table(said, "roles"):
        roles[_role_name(name, "roles")] = _role(f"roles.{name}", given)
    count = sum(len(rules) for role in roles.values() for rules in role.rules.values())
    if count > RULES_COUNT_MAX:
        raise BadPolicy(f"{count} rules; at most {RULES_COUNT_MAX} are accepted", path="roles")
    return BusPolicy(
        bus=bus,
        version=version,
        text=text,
        roles=roles,
        protect={
            _pattern(pattern, "protect"): _protection(f"protect.{pattern}", given)
            for pattern, given in _table(said, "protect")
        },
        types={
            _pattern(pattern, "types"): tuple(
                _role_name(role, f"types.{pattern}") for role in _texts(f"types.{pattern}", given)
            )
            for pattern, given in _table(said, "types")
        },
        audit=tuple(_audit(rule) for rule in _texts("audit", said.get("audit", []))),
    )


def with_version(text: str, version: int) -> str:
    """Return the text of a policy with another version.

    Raises:
        BadPolicy: It does not say its version on a line of its own.
    """
    changed, count = re.subn(r"(?m)^version[ \t]*=[ \t]*[0-9_]+", f"version = {version}", text)
    if count != 1 or read_policy(changed).version != version:
        raise BadPolicy("expected one line such as `version = 7`", path="version")
    return changed


def plain_subject(subject: str) -> str:
    """Rights for test events are those for the same events without that mark."""
    while subject.startswith(TEST_SPACE) and len(subject) > len(TEST_SPACE):
        subject = subject[len(TEST_SPACE) :]
    return subject


def _role(path: str, given: Any) -> Role:
    if not isinstance(given, dict):
        raise _bad(path, "expected a table of actions", given)
    _only(given, path, (*ACTIONS, "rate"))
    rules: dict[str, tuple[Grant, ...]] = {
        action: tuple(_rules(f"{path}.{action}", given[action]))
        for action in ACTIONS
        if action in given
    }
    rate = None
    if "rate" in given:
        try:
            rate = convert(given["rate"], RoleRate)
        except ValidationError as error:
            raise BadPolicy(f"{path}.rate: {error}", path=f"{path}.rate") from None
        for number in (rate.events_per_s, rate.bytes_per_s):
            if number is not None and not 0 < number < float("inf"):
                raise _bad(f"{path}.rate", "expected numbers above 0", number)
    return Role(rules, rate)


def _rules(path: str, given: Any) -> Iterator[Grant]:
    if not isinstance(given, list):
        raise _bad(path, 'expected a list of patterns, such as ["plant.>"]', given)
    for one in given:
        if isinstance(one, dict):
            _only(one, path, ("to", "except"))
            to = tuple(_rule_pattern(text, path) for text in _texts(path, one.get("to")))
            but = tuple(_rule_pattern(text, path) for text in _texts(path, one.get("except", [])))
            if not to:
                raise _bad(path, "`to` names no pattern", one)
            yield Grant(to, but)
        else:
            yield Grant((_rule_pattern(one, path),))


def _rule_pattern(text: Any, path: str) -> str:
    if not isinstance(text, str):
        raise _bad(path, "expected a pattern", text)
    shown = text.replace(_PRINCIPAL, "principal")
    if "{" in shown or "}" in shown:
        raise _bad(path, f"braces are only for {_PRINCIPAL}", text)
    subject, operation = split_operation(shown)
    if operation and not path.endswith(".call"):
        subject = shown
    _pattern(subject, path)
    return text


def _protection(path: str, given: Any) -> Protection:
    said = given if isinstance(given, dict) else {"level": given}
    _only(said, path, ("level", "keys"))
    level = said.get("level")
    if level not in LEVELS:
        raise _bad(path, f"expected one of {', '.join(map(repr, LEVELS))}", level)
    return Protection(cast(str, level), tuple(_texts(path, said.get("keys", []))))


def _audit(given: str) -> AuditRule:
    action, _, pattern = given.partition(" ")
    if action not in ACTIONS:
        raise _bad("audit", 'expected an action and a pattern, such as "call svc.pay.>"', given)
    return AuditRule(action, _pattern(pattern.strip(), "audit"))


def _table(said: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    table = said.get(name, {})
    if not isinstance(table, dict):
        raise _bad(name, "expected a table", table)
    yield from table.items()


def _texts(path: str, given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise _bad(path, "expected a list of texts", given)
    return given


def _only(said: dict[str, Any], path: str, known: tuple[str, ...]) -> None:
    for name in said:
        if name not in known:
            where = f"{path}.{name}" if path else name
            raise BadPolicy(
                f"policy: {printable(where)} is not known; known are {', '.join(known)}", path=where
            )


def _role_name(name: str, path: str) -> str:
    if not _ROLE.fullmatch(name):
        raise _bad(path, "a role has at most 64 letters, digits, '_' and '-'", name)
    return name


def _pattern(text: str, path: str) -> str:
    try:
        check_pattern(text)
    except BadSubject as error:
        raise BadPolicy(f"policy: {printable(path)}: {printable(str(error))}", path=path) from None
    return text


def _bad(path: str, expected: str, got: object) -> BadPolicy:
    return BadPolicy(f"policy: {printable(path)}: {expected}, got {got!r:.80}", path=path)
