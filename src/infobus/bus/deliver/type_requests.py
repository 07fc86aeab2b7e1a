"""Which types this node can read, and which it has asked for."""

from __future__ import annotations

from infobus.bounds import DEFAULT_BOUNDS
from infobus.objects import all_types, codec, registry
from infobus.protocols.frames import wire
from infobus.protocols.frames.transactions import GROUP


class TypeRequests:
    """The types of events that have come. Called under the runtime's lock."""

    def __init__(self, sought_count_max: int = DEFAULT_BOUNDS.types_count_max) -> None:
        self.known: set[int] = {0, GROUP}  # neither has a descriptor
        self.unknown: set[int] = set()  # those that consumers still wait for
        self.asked_at_s = 0.0  # the last of them
        self._sought_count_max = sought_count_max
        self._forgotten = registry.forgotten
        self._sought: set[int] = set()  # asked for once; only the first event is held up

    def must_ask_for(self, fingerprint: int, now_s: float) -> bool:
        """Whether the other nodes are to be asked for the descriptor of a type just met."""
        if codec.known(fingerprint):
            self.known.add(fingerprint)
            return False
        if fingerprint in self._sought:
            return False
        if len(self._sought) >= self._sought_count_max:
            self._sought.clear()
            self.unknown.clear()  # events that were dropped would leave theirs here for ever
        self._sought.add(fingerprint)
        self.unknown.add(fingerprint)
        self.asked_at_s = now_s
        return True

    def wait_s(self, patience_s: float, now_s: float) -> float:
        """How long a consumer waits for a descriptor before it gets a generic object.

        From when the last one was asked for: strangers' types must not add up to a long wait.
        """
        return max(0.0, self.asked_at_s + patience_s - now_s)

    def give_up(self, types: set[int]) -> None:
        """Nobody waits for the descriptors of these any more."""
        self.unknown.difference_update(types)

    def note_known(self, learned: list[int]) -> None:
        """These types were learned just now."""
        if self._forgotten != registry.forgotten:  # then it is not sure any more what is known
            self._forgotten = registry.forgotten
            self.known.clear()
            self.known |= {0, GROUP}
        self.known.update(learned)
        self._sought.difference_update(learned)
        self.unknown.difference_update(learned)


def all_descriptors(sender: str) -> bytes:
    """The frame with all types that this process knows."""
    descriptors = codec.descriptors(kind.fingerprint for kind in all_types())
    return wire.encode(wire.Types(sender, descriptors))
