"""Which engine keys a node listens to, so that the events of its subscriptions reach it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock

from infobus.bus.deliver.subscription import Subscription
from infobus.engines.base import Declaration, Engine
from infobus.keys import keys_intersect
from infobus.protocols.frames.lanes import class_key, lane_class
from infobus.protocols.reliable.peer import Terms
from infobus.subjects import channel_keys_of

_CHANNELS_KEY = "c/**"


class Listening:
    """The declarations of a node. `add` and `drop` are called under the runtime's lock."""

    def __init__(self, engine: Engine, terms: Terms, on_frame: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._depth = terms.depth
        self._classes = [lane_class(terms.classes, name) for name in terms.classes.names]
        self._on_frame = on_frame
        self._keys: Counter[str] = Counter()  # that the subscriptions need
        self._declared: dict[str, Declaration] = {}

    def add(self, subscription: Subscription) -> None:
        """One more subscription needs its keys; `declare` makes it so."""
        self._keys.update(self._keys_of(subscription))

    def drop(self, subscription: Subscription) -> None:
        """One subscription less does."""
        self._keys -= Counter(self._keys_of(subscription))

    def declare(self, lock: Lock, is_closed: Callable[[], bool]) -> None:
        """Listen to the engine keys of all channels that are subscribed to, and no others."""
        with lock:
            if is_closed():
                return
            keys = disjoint(self._keys)
            if len(keys) > self._engine.declarations_count_max:
                keys = {_CHANNELS_KEY}
            # A class has keys of its own, and so a thread of its own that nothing else keeps busy.
            keys = {class_key(key, class_) for key in keys for class_ in self._classes}
            for key in keys.difference(self._declared):
                self._declared[key] = self._engine.declare(key, self._on_frame)
            surplus = [self._declared.pop(key) for key in self._declared.keys() - keys]
        for declaration in surplus:
            declaration.undeclare()

    def _keys_of(self, subscription: Subscription) -> list[str]:
        return [channel_keys_of(pattern, self._depth) for pattern in subscription.channels]


def disjoint(keys: Iterable[str]) -> set[str]:
    """Return keys that include these, and of which no two overlap: no frame comes twice.

    >>> sorted(disjoint(["c/news/*", "c/news/equity", "c/*/bonds", "c/trades/gmc"]))
    ['c/*/*']
    >>> sorted(disjoint(["c/*/all/plant", "c/b/eu/plant"]))
    ['c/*/all/plant', 'c/b/eu/plant']
    """
    found = set(keys)
    wild = {key for key in found if "*" in key}
    while wild:
        one = wild.pop()
        for other in [key for key in found if key != one and keys_intersect(one, key)]:
            found -= {one, other}
            wild.discard(other)
            one = _common(one, other)
        if one not in found:  # it was widened: look at all others again
            found.add(one)
            wild.add(one)
    return found


def _common(one: str, other: str) -> str:
    ours, theirs = one.split("/"), other.split("/")
    if len(ours) != len(theirs) or "**" in (*ours, *theirs):
        return _CHANNELS_KEY
    return "/".join(a if a == b else "*" for a, b in zip(ours, theirs, strict=True))
