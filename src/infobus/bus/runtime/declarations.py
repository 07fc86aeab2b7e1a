"""Which engine keys a node listens to, so that the events of its subscriptions reach it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock

from infobus.bus.deliver.subscription import Subscription
from infobus.engines.base import Declaration, Engine
from infobus.protocols.frames.lanes import class_key, lane_class
from infobus.protocols.reliable.peer import Terms
from infobus.subjects import channel_keys_of

_CHANNELS_KEY = "c/**"
_DECLARATIONS_MAX = 16
"""Past this many channels a node listens to all of them: each declaration costs a thread."""


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
            keys = set(self._keys)
            if len(keys) > _DECLARATIONS_MAX or any("*" in key for key in keys):
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
