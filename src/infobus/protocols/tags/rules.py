"""What tags mean for one program: which tag governs a subject, and what it allows."""

from __future__ import annotations

from typing import Any

from infobus.errors import BadValue, NoRight
from infobus.objects import DataObject, find_type, type_of
from infobus.printable import printable
from infobus.protocols.frames.tags import TagRow
from infobus.protocols.tags.rights import allows
from infobus.protocols.tags.table import governing
from infobus.subjects import covers


class TagRule:
    """A tag, as it concerns one program."""

    def __init__(self, row: TagRow, who: str) -> None:
        self.row = row
        self.name = row.name
        self.declared = row.declared
        self.may_publish = allows(row.declared.publish, who)
        self.may_subscribe = allows(row.declared.subscribe, who)
        self.is_silent = not (
            row.declared.fingerprint or row.declared.priority or row.declared.max_age
        )
        """It says nothing about events beside who may have them."""
        self._who = who
        self._fitting = {row.declared.fingerprint}  # types that are known to fit

    def check_publisher(self, subject: str) -> None:
        """Raise `NoRight` if this program may not publish here."""
        if not self.may_publish:
            raise self._no_right("publish", subject, self.declared.publish)

    def check_subscriber(self, pattern: str) -> None:
        """Raise `NoRight` if this program may not subscribe here."""
        if not self.may_subscribe:
            raise self._no_right("subscribe", pattern, self.declared.subscribe)

    def check(self, obj: Any) -> None:
        """Raise `BadValue` if an object is not of the declared type."""
        wanted = self.declared.fingerprint
        if not wanted:
            return
        if isinstance(obj, DataObject):
            type_ = type_of(obj)
            if type_.fingerprint in self._fitting or self.fits(type_.fingerprint):
                return
            got = type_.name
            if got == self.declared.type:
                got = f"another definition of {got}"
        else:
            got = type(obj).__name__
        raise BadValue(
            f"tag {printable(self.name)!r} carries {printable(self.declared.type)}, got "
            f"{printable(got)}: it was created by {printable(self.row.creator)}"
        )

    def fits(self, fingerprint: int) -> bool:
        """Whether objects of a type may travel here; one that is not known here may."""
        if fingerprint in self._fitting or not self.declared.fingerprint:
            return True
        if not fingerprint:
            return False  # an untyped notification
        type_ = find_type(fingerprint)
        if type_ is None or not type_.is_known:
            return True
        if all(one.fingerprint != self.declared.fingerprint for one in type_.ancestors.values()):
            return False
        self._fitting.add(fingerprint)
        return True

    def _no_right(self, what: str, where: str, rights: tuple[str, ...]) -> NoRight:
        among = ", ".join(map(printable, rights)) or "nobody"
        return NoRight(
            f"{self._who} may not {what} {where!r}: tag {printable(self.name)!r} of "
            f"{printable(self.row.creator)} allows {among}",
            tag=self.name,
            creator=self.row.creator,
        )


class TagRules:
    """The tags that a program holds, as rules for it."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.rows: dict[str, TagRow] = {}  # empty: no tag concerns anything here
        self._rules: dict[str, TagRule] = {}

    def replace(self, rows: dict[str, TagRow]) -> None:
        """These tags are held now."""
        self._rules = {
            name: rule for name, rule in self._rules.items() if rows.get(name) is rule.row
        }
        self.rows = rows

    def of(self, subject: str) -> TagRule | None:
        """The rule for the events of a subject."""
        row = governing(self.rows, subject)
        return None if row is None else self._rule(row)

    def check_subscriber(self, pattern: str) -> None:
        """Raise `NoRight` if a tag around the whole pattern does not allow this program in."""
        if not self.rows:
            return
        around = [row for row in self.rows.values() if covers(row.name, pattern)]
        if around:
            longest = max(around, key=lambda row: len(row.name.removesuffix(">")))
            self._rule(longest).check_subscriber(pattern)

    def _rule(self, row: TagRow) -> TagRule:
        rule = self._rules.get(row.name)
        if rule is None or rule.row is not row:
            rule = self._rules[row.name] = TagRule(row, self.who)
        return rule
