"""What consumers ask of events beside which ones: class, age limit and rate, told with the rows.

Rows say what is wanted; requests say how urgently. They are few, so all of a node's are told
every time that its rows are. The class matters to senders: an event travels in its own class, or in
the highest that any of its consumers asks for. What each consumer gets out of that is decided at
its own queue, so one consumer's haste is nobody else's.

All nodes of a bus should have the same classes. Where some have others, what goes in a class that
not everybody has a lane for travels as the default class does, with a word on its own.
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

_COUNT_MAX = 1_000  # told to peers, and taken from one; further ones are asked for nothing


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
        """The classes, unless they are the usual ones, requests, and window, as peers are told."""
        classes = [] if self.classes == DEFAULT_CLASSES else list(self.classes.names)
        return classes, list(islice(self.own, _COUNT_MAX)), self.window

    def difference(self, told: Interest) -> str:
        """In which way a peer's classes differ from this node's; empty if they do not."""
        names = _names_of(told)
        if names == self.classes.names:
            return ""
        return f"classes {', '.join(names)[:200]}, this node {', '.join(self.classes.names)}"

    def take(self, told: Interest) -> None:
        """Hold what a peer's consumers ask for."""
        record = self.rows.records[told.sender]
        record.requests, record.window = told.requests[:_COUNT_MAX], told.window
        names = _names_of(told)
        record.lanes = None if names == self.classes.names else _lanes_of(names)

    def class_for(self, subject: str, class_: str) -> str:
        """The class under which an event travels: its own, or the highest that is asked for."""
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
