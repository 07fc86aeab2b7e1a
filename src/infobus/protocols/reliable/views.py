"""Whether the nodes of a bus see the same peers; if not, who is missed here.

Every heartbeat says how many nodes its sender sees, and a hash of their names. If two heartbeats
in a row differ from what this node sees, it asks for the names. Whom another node sees and this
one has not seen for `_MISSED_S`, it misses: no way leads from here to there, perhaps because each
of them knows only its own neighbours. It says so once, by name. Nodes that come and go are seen, or
not seen, by everyone long before that.

A newcomer asks a few nodes at once: those whom they see are there, and it will see them soon.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from msgspec import Struct, field

_MISSED_S = 5.0
_MISSED_COUNT_MAX = 1_000  # names that others have told
_ASK_EVERY_S = 1.0

View = tuple[int, int]
"""How many nodes are seen, and the hash of their names."""


class _Difference(Struct):
    """A peer sees others than this node."""

    theirs: View
    ours: View
    since_s: float
    is_asked: bool = False


class _Missed(Struct):
    """A node that this one does not see."""

    by: str  # who sees it
    since_s: float
    ask_at_s: float
    is_told: bool = False


class Views(Struct):
    """What node `name` sees, and how that differs from what others see."""

    name: str
    seen: dict[str, int] = field(default_factory=dict)  # names, and their part of the hash
    view: View = (0, 0)
    missed: dict[str, _Missed] = field(default_factory=dict)
    _differences: dict[str, _Difference] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)  # by this node as a newcomer

    def __post_init__(self) -> None:
        self.saw(self.name)

    def saw(self, name: str) -> None:
        """A node can be seen (again)."""
        if name not in self.seen:
            self.seen[name] = part = _part(name)
            self.view = (self.view[0] + 1, self.view[1] ^ part)
            self.missed.pop(name, None)
            self._differences.clear()  # also if this view is the same again some time later

    def lost(self, name: str) -> None:
        """A node can no longer be seen; what it said is out of date."""
        part = self.seen.pop(name, None)
        if part is not None:
            self.view = (self.view[0] - 1, self.view[1] ^ part)
            self._differences.pop(name, None)
            self._asked.discard(name)
            self._forget(name, ())

    def ask(self, names: Iterable[str]) -> None:
        """These nodes are asked whom they see."""
        self._asked = {*names}

    @property
    def is_complete(self) -> bool:
        """Whether this node sees everyone whom those see that it asked."""
        return not self._asked and not self.missed

    def on_beat(self, sender: str, theirs: View, now_s: float) -> bool:
        """A heartbeat has come; return whether to ask its sender for the names."""
        if theirs == self.view or not theirs[0] or sender not in self.seen:
            if self._differences and self._differences.pop(sender, None) is not None:
                self._forget(sender, ())
            return False
        found = self._differences.get(sender)
        if found is None or (found.theirs, found.ours) != (theirs, self.view):
            self._differences[sender] = _Difference(theirs, self.view, now_s)
            return False
        is_new, found.is_asked = not found.is_asked, True
        return is_new

    def on_seen(self, sender: str, nodes: Iterable[str], now_s: float) -> list[str]:
        """`sender` sees these nodes; return those that are missed here, each once."""
        if sender not in self.seen:
            return []
        self._asked.discard(sender)
        names = dict.fromkeys(nodes)
        found = self._differences.get(sender)
        # If nothing has changed since its heartbeat, it saw the same nodes all the time.
        is_same = found is not None and (found.theirs, found.ours) == (_view_of(names), self.view)
        since_s = found.since_s if found is not None and is_same else now_s
        self._forget(sender, names)
        complaints = []
        for name in names:
            if name in self.seen:
                continue
            missed = self.missed.get(name)
            if missed is None:
                if len(self.missed) >= _MISSED_COUNT_MAX:
                    break
                missed = self.missed[name] = _Missed(sender, since_s, since_s + _MISSED_S)
            if not missed.is_told and now_s - missed.since_s >= _MISSED_S:
                missed.is_told = True
                complaints.append(name)
        return complaints

    def to_ask(self, now_s: float) -> list[str]:
        """Whom to ask once more whether it still sees somebody who is missed here."""
        asked: dict[str, None] = {}
        for missed in self.missed.values():
            if not missed.is_told and now_s >= missed.ask_at_s:
                missed.ask_at_s = now_s + _ASK_EVERY_S
                asked[missed.by] = None
        return list(asked)

    def _forget(self, by: str, names: Iterable[str]) -> None:
        """`by` no longer says that it sees anyone but `names`."""
        for name in [n for n, m in self.missed.items() if m.by == by and n not in names]:
            del self.missed[name]


def _part(name: str) -> int:
    """A node's part of the hash of a view: 63 bits, combined by exclusive or."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def _view_of(names: Iterable[str]) -> View:
    count = hashed = 0
    for name in names:
        count, hashed = count + 1, hashed ^ _part(name)
    return count, hashed
