"""The requests of consumers beside their rows: class, age limit and rate.

Rows say what is wanted; requests say how urgently. They are few, so a node sends all of its
requests whenever it sends its rows. The class matters to senders: an event travels in its own
class, or in the highest that any of its consumers asks for. Each consumer's own queue decides what
that consumer gets, so one consumer's urgency does not affect the others.

All nodes of a bus should have the same classes. If some differ, events of a class for which some
node has no lane travel as the default class does, and name their own class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct, field

from infobus.errors import UsageError
from infobus.protocols.frames.wire import Interest, Request
from infobus.protocols.interest.peer_rows import PeerRows
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes
from infobus.subjects import matches

_COUNT_MAX = 1_000  # sent to peers, and accepted from one; further ones are ignored


class Requests(Struct):
    """The requests of this node's consumers, and what those of the peers mean for its events."""

    classes: Classes
    rows: PeerRows
    window: int = 0  # unconfirmed events that are taken of one peer's lane; 0: as it likes
    own: Counter[Request] = field(default_factory=Counter)

    def change(self, requests: Iterable[Request], more: bool) -> None:
        """Some consumers ask for these from now on, or no longer."""
        for request in requests:
            self.own[request] += 1 if more else -1
            if not self.own[request]:
                del self.own[request]

    def told(self) -> tuple[list[str], list[Request], int]:
        """Return classes (unless they are the defaults), requests and window for the peers."""
        classes = [] if self.classes == DEFAULT_CLASSES else list(self.classes.names)
        return classes, list(islice(self.own, _COUNT_MAX)), self.window

    def difference(self, told: Interest) -> str:
        """Describe how a peer's classes differ from this node's; empty if they do not."""
        names = _names_of(told)
        if names == self.classes.names:
            return ""
        return f"classes {', '.join(names)[:200]}, this node {', '.join(self.classes.names)}"

    def take(self, told: Interest) -> None:
        """Store the requests of a peer's consumers."""
        record = self.rows.records[told.sender]
        record.requests, record.window = told.requests[:_COUNT_MAX], told.window
        names = _names_of(told)
        record.lanes = None if names == self.classes.names else _lanes_of(names)

    def class_for(self, subject: str, class_: str) -> str:
        """Return the class under which an event travels: its own, or the highest asked for."""
        rank = self.classes.rank(class_ or self.classes.default)
        for record in self.rows.records.values():
            for request in record.requests:
                if request.class_ in self.classes.names and matches(request.pattern, subject):
                    rank = min(rank, self.classes.rank(request.class_))
        name = self.classes.names[rank]
        lanes = (record.lanes for record in self.rows.records.values())
        is_known = all(known is None or name in known for known in lanes)
        return name if is_known else self.classes.default


def _names_of(told: Interest) -> tuple[str, ...]:
    return tuple(told.classes) or DEFAULT_CLASSES.names


def _lanes_of(names: tuple[str, ...]) -> frozenset[str]:
    try:
        return frozenset(names) - {Classes(names).default}
    except UsageError:
        return frozenset()  # no classes at all, whatever it is
