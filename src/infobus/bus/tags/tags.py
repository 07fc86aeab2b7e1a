"""What you call: `bus.tags`. A tag is a subject, or `subject.>`, with a type, a creator and rights.

The nodes that hold the table of tags agree on each change; a program asks any of them. Only
creating, changing and deleting wait for an agreement. Publishing and subscribing use the copy that
this node holds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from infobus.bus.lifetime import Lifetime
from infobus.bus.publish.routing import Routing
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import BadValue, NoTags, NotAllowed, NotCreator, TagExists, UsageError
from infobus.printable import printable
from infobus.subjects import check_pattern

if TYPE_CHECKING:
    from infobus.bus.tags.driver import TagDriver
    from infobus.bus.tags.role import TagRole
    from infobus.objects import DataObject, Type
    from infobus.protocols.frames.tags import TagOutcome, TagRow, TagTerms, TagUser, UsedBy

_SERVERS_KEY = "t/*"
_DECIDE_S = 10.0
_ANSWER_S = 2.0  # that a node with the table has for an answer that needs no agreement
_HELD_S = 1.0  # that joining and subscribing wait for one at most


class Tag(Struct, frozen=True, kw_only=True):
    """A tag, as this node knows it."""

    name: str
    creator: str
    """The application that created it, or the node of one without a name."""
    type: str
    """The name of the type of all objects under it; empty if any object may be published."""
    fingerprint: int
    """The fingerprint of that type."""
    publish: tuple[str, ...]
    """Patterns of the names of applications that may publish."""
    subscribe: tuple[str, ...]
    """Patterns of the names of applications that may subscribe."""
    priority: str | None
    """The class of events whose publisher asks for none."""
    max_age: float | None
    """The age limit, in seconds, of events whose publisher gives none."""


class Tags:
    """The tags of a bus: create, delete and look at them. `bus.tags`.

    >>> import infobus
    >>> from infobus.testing.tags import table_of_its_own
    >>> with infobus.connect("tags", engine="memory", name="oven-control") as bus:
    ...     with table_of_its_own(bus):
    ...         tag = bus.tags.create("plant.oven.>", publish=["oven-*"], priority="business")
    ...         print(tag.creator, [one.name for one in bus.tags])
    oven-control ['plant.oven.>']
    """

    def __init__(
        self, runtime: Runtime, routing: Routing, lifetime: Lifetime, application: str
    ) -> None:
        self._runtime = runtime
        self._routing = routing
        self._lifetime = lifetime
        self._application = application
        self._driver: TagDriver | None = None
        self._beginning = threading.Lock()
        self._is_open = False
        self._early: dict[str, None] = {}  # nodes with the table that were seen before

    # Looking.

    def get(self, name: str, *, timeout_s: float = _ANSWER_S) -> Tag | None:
        """The tag of exactly this name; None if there is none.

        Raises:
            NoTags: No node that holds the table has answered in time.
        """
        check_pattern(name)
        row = self._held([name], timeout_s).get(name)
        return None if row is None else _tag(row)

    def of(self, subject: str, *, timeout_s: float = _ANSWER_S) -> Tag | None:
        """The tag that governs a subject: of those that match it, the longest.

        Once this has returned, each event that you publish under the subject is checked.

        Raises:
            NoTags: No node that holds the table has answered in time.
        """
        from infobus.protocols.tags.table import governing

        check_pattern(subject)
        row = governing(self._held([subject], timeout_s), subject)
        return None if row is None else _tag(row)

    def __iter__(self) -> Iterator[Tag]:
        """All tags, by name. Raises `NoTags` as `get` does."""
        rows = self._held([">"], _ANSWER_S)
        return iter([_tag(rows[name]) for name in sorted(rows)])

    def publishers(self, name: str, *, timeout_s: float = _ANSWER_S) -> list[TagUser]:
        """The nodes that have published under a tag, as far as the node that is asked knows.

        Raises:
            NoTags: No node that holds the table has answered in time.
        """
        return self._users(name, timeout_s).publishers

    def subscribers(self, name: str, *, timeout_s: float = _ANSWER_S) -> list[TagUser]:
        """The nodes that subscribe to something under a tag, as far as the node asked knows.

        Raises:
            NoTags: No node that holds the table has answered in time.
        """
        return self._users(name, timeout_s).subscribers

    # Changing.

    def create(
        self,
        name: str,
        *,
        type: type[DataObject] | Type | None = None,
        publish: Iterable[str] = ("*",),
        subscribe: Iterable[str] = ("*",),
        priority: str | None = None,
        max_age: float | None = None,
        timeout_s: float = _DECIDE_S,
    ) -> Tag:
        """Create a tag; returning means that everyone who holds the table has agreed.

        You are its creator, by the name given to `connect(name=...)`. Creating it again with the
        same words changes nothing, so a program can do that whenever it starts. Without a name you
        are known by your node, and the tag goes with the daemon that you asked.

        Args:
            name: A subject, or `subject.>` for all below it.
            type: The type of all objects under it; its subtypes are welcome. None: any object.
            publish: Patterns of names of applications that may publish, such as `oven-*`.
            subscribe: Patterns of names of applications that may subscribe.
            priority: The class of events whose publisher asks for none.
            max_age: The age limit of events whose publisher gives none.
            timeout_s: How long to wait for the decision.

        Raises:
            TagExists: Somebody else has created it, or a tag `subject.>` around it; or you have,
                with other words: then `change` it.
            NoTags: There was no decision in time. It may still come; asking again is safe.
        """
        declared = self._declared(type, publish, subscribe, priority, max_age)
        self._change("create", name, declared, False, timeout_s)
        return self._as_agreed(name, declared)

    def change(
        self,
        name: str,
        *,
        type: type[DataObject] | Type | None = None,
        publish: Iterable[str] = ("*",),
        subscribe: Iterable[str] = ("*",),
        priority: str | None = None,
        max_age: float | None = None,
        timeout_s: float = _DECIDE_S,
    ) -> Tag:
        """Have a tag of yours govern this from now on; what you leave out is as in `create`.

        Raises:
            NotCreator: Somebody else has created it.
            UsageError: There is no such tag.
            NoTags: There was no decision in time. It may still come; asking again is safe.
        """
        declared = self._declared(type, publish, subscribe, priority, max_age)
        self._change("change", name, declared, False, timeout_s)
        return self._as_agreed(name, declared)

    def delete(self, name: str, *, force: bool = False, timeout_s: float = _DECIDE_S) -> None:
        """Delete a tag; its subjects are as free as any other from then on.

        Args:
            name: The name that it was created by.
            force: As an operator, delete what another application has created.
            timeout_s: How long to wait for the decision.

        Raises:
            NotCreator: Somebody else has created it.
            UsageError: There is no such tag.
            NoTags: There was no decision in time. It may still come; asking again is safe.
        """
        self._change("delete", name, None, force, timeout_s)

    def hold(self) -> TagRole:
        """Let this node hold the table, as daemons do; see `infobus.bus.tags.role`."""
        from infobus.bus.tags.role import TagRole  # late: daemons alone

        return TagRole(self._runtime, self._begun())

    # The node's life.

    def open(self, timeout_s: float) -> None:
        """Look for nodes that hold the table, and learn what they hold."""
        self._runtime.engine.watch(_SERVERS_KEY, self._on_token)
        with self._beginning:
            self._is_open, early = True, list(self._early)
        for server in early:
            self._begun().see_server(server, True)
        if self._driver is not None:
            self._driver.wait_until_held([], min(timeout_s, _HELD_S))

    def check_subscriber(self, patterns: list[str], timeout_s: float) -> None:
        """Raise `NoRight` if a tag does not let this program subscribe to one of these patterns."""
        driver = self._driver
        if driver is None:
            return
        if driver.holder.servers:
            driver.wait_until_held(patterns, min(timeout_s, _HELD_S))
        for pattern in patterns:
            driver.rules.check_subscriber(pattern)

    def abandon(self) -> None:
        """Become usable in a forked child, where the parent's locks may be held for ever."""
        self._beginning = threading.Lock()

    def _on_token(self, key: str, alive: bool) -> None:
        from infobus.protocols.frames.node_names import is_node_name

        name = key.rpartition("/")[2]
        if not is_node_name(name):
            return
        with self._beginning:
            if not self._is_open:
                # What there is to import takes longer than the engine waits for its callbacks.
                if alive:
                    self._early[name] = None
                else:
                    self._early.pop(name, None)
                return
        self._begun().see_server(name, alive)

    def _begun(self) -> TagDriver:
        with self._beginning:
            if self._driver is None:
                from infobus.bus.tags.driver import TagDriver  # late: many buses have no tags

                self._driver = TagDriver(self._runtime, self._routing, self._application)
            return self._driver

    # Helpers.

    def _held(self, patterns: list[str], timeout_s: float) -> dict[str, TagRow]:
        self._lifetime.check()
        driver = self._begun()
        if not driver.wait_until_held(patterns, timeout_s):
            raise self._no_tags(timeout_s, "")
        self._lifetime.check()
        return driver.holder.tags

    def _users(self, name: str, timeout_s: float) -> UsedBy:
        if self.get(name, timeout_s=timeout_s) is None:
            raise self._unknown(name)
        users = self._begun().users(name, timeout_s)
        self._lifetime.check()
        if users is None:
            raise self._no_tags(timeout_s, "")
        return users

    def _declared(
        self,
        type: type[DataObject] | Type | None,
        publish: Iterable[str],
        subscribe: Iterable[str],
        priority: str | None,
        max_age: float | None,
    ) -> TagTerms:
        from infobus.objects import Type, type_of
        from infobus.protocols.frames.lanes import lane_class
        from infobus.protocols.frames.tags import TagTerms
        from infobus.protocols.qos.classes import check_positive

        if priority is not None:
            lane_class(self._runtime.node.terms.classes, priority)  # checks it
        check_positive("max_age", max_age, " of seconds")
        told = None if type is None else type if isinstance(type, Type) else type_of(type)
        return TagTerms(
            "" if told is None else told.name,
            0 if told is None else told.fingerprint,
            _rights("publish", publish),
            _rights("subscribe", subscribe),
            priority or "",
            max_age or 0.0,
        )

    def _change(
        self, act: Any, name: str, declared: TagTerms | None, force: bool, timeout_s: float
    ) -> None:
        import os

        from infobus.protocols.frames.tags import TagOperation, TagTerms
        from infobus.protocols.tags.table import check_tag_name

        self._lifetime.check()
        check_tag_name(name)
        if self._runtime.guard is not None:
            self._runtime.guard.check("tag", name)
        operation = TagOperation(
            os.urandom(16).hex(),
            act,
            name,
            self._application or self._runtime.name,
            declared=declared or TagTerms(),
            force=force,
        )
        outcome = self._begun().decide(operation, timeout_s)
        self._lifetime.check()
        if outcome is None:
            raise self._no_tags(timeout_s, "; the decision may still come: ask again")
        if outcome.why:
            raise self._refused(name, outcome)

    def _as_agreed(self, name: str, declared: TagTerms) -> Tag:
        from infobus.protocols.frames.tags import TagRow

        return _tag(TagRow(name, self._application or self._runtime.name, declared, 0))

    def _refused(self, name: str, outcome: TagOutcome) -> Exception:
        creator = printable(outcome.creator)
        match outcome.why:
            case "exists" if outcome.tag != name:
                what = f"tag {name!r} lies within {printable(outcome.tag)!r} of {creator}"
                what = f"{what}, who alone may create tags there"
                return TagExists(what, tag=outcome.tag, creator=outcome.creator)
            case "exists":
                what = f"tag {name!r} was created by {creator}"
                if outcome.creator == (self._application or self._runtime.name):
                    what = f"{what}, this application, with other words: change it, or delete it"
                return TagExists(what, tag=name, creator=outcome.creator)
            case "not creator":
                what = f"tag {name!r} was created by {creator}, who alone may change or delete it"
                return NotCreator(what, tag=name, creator=outcome.creator)
            case "unknown":
                return self._unknown(name)
            case "not allowed":
                what = f"tag {name!r} was refused: {printable(outcome.detail)}"
                principal = self._runtime.delivery.principal
                return NotAllowed(what, action="tag", subject=name, principal=principal)
            case "malformed":
                return BadValue(f"tag {name!r} was refused: {printable(outcome.detail)}")
        return NoTags(f"tag {name!r} was not created: {printable(outcome.detail)}; try again later")

    def _unknown(self, name: str) -> UsageError:
        return UsageError(f"there is no tag {name!r} on the bus")

    def _no_tags(self, timeout_s: float, more: str) -> NoTags:
        driver = self._driver
        if driver is None or not driver.holder.servers:
            return NoTags(
                "no node that holds the table of tags can be seen: start `infobus daemon run` on "
                "one host of the bus, or more"
            )
        return NoTags(
            f"no answer about tags in {timeout_s} s from {driver.holder.server}: are the members "
            f"deciding, or without a majority? `infobus members` shows them{more}"
        )


def _rights(what: str, patterns: Iterable[str]) -> tuple[str, ...]:
    from infobus.protocols.frames.tags import RIGHTS_COUNT_MAX
    from infobus.protocols.tags.rights import is_name_pattern

    if isinstance(patterns, str):
        raise UsageError(f"{what} takes a list of names, got the str {patterns!r}")
    given = list(patterns)
    if len(given) > RIGHTS_COUNT_MAX:
        raise UsageError(f"{what}: {len(given)} patterns; at most {RIGHTS_COUNT_MAX} are accepted")
    for pattern in given:
        if not isinstance(pattern, str) or not is_name_pattern(pattern):
            raise UsageError(
                f"{what}: {pattern!r} is not a pattern of application names; expected letters, "
                "digits, '_', '-', '.', and '*' for any of them, 64 characters at most"
            )
    return tuple(sorted(set(given)))


def _tag(row: TagRow) -> Tag:
    declared = row.declared
    return Tag(
        name=row.name,
        creator=row.creator,
        type=declared.type,
        fingerprint=declared.fingerprint,
        publish=declared.publish,
        subscribe=declared.subscribe,
        priority=declared.priority or None,
        max_age=declared.max_age or None,
    )
