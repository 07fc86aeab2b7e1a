"""What publishers and consumers of this node may ask for: its classes, rates, and its group."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from infobus.errors import UsageError
from infobus.protocols.frames.lanes import lane_class
from infobus.protocols.qos.admission import Admission
from infobus.protocols.qos.classes import Classes, Limits

if TYPE_CHECKING:
    from infobus.bus.qos_group import QosMember


class NodePolicy:
    """The priority classes, what can be reserved, and the policy of the node's group, if any."""

    def __init__(self, classes: Classes, capacity: Limits) -> None:
        self.classes = classes
        self.admission = Admission(capacity.events_per_s, capacity.bytes_per_s)
        self.member: QosMember | None = None  # of the group whose policy is kept to
        self._reservations = itertools.count(1)
        self._reserving = threading.Lock()

    def lane_class(self, priority: str | None) -> str:
        """How lanes spell a class that a user names; `UsageError` if there is no such class."""
        return "" if priority is None else lane_class(self.classes, priority)

    def judge(self, pattern: str, class_: str) -> str:
        """The class in which events of `pattern` go that ask for `class_`.

        Raises:
            QosRefused: The group's policy denies it.
        """
        return class_ if self.member is None else self.member.judge(pattern, class_)

    def reserve(
        self, events_per_s: float, bytes_per_s: float | None, name: str
    ) -> tuple[int, str, Callable[[str], None]]:
        """Reserve a rate; its number, the name it is held under, and what gives it back."""
        number = next(self._reservations)
        name = name or f"reservation {number}"
        keeper = self.member or self.admission
        with self._reserving:
            if name in self.admission.held:
                raise UsageError(f"there is a reservation {name!r} already; choose another name")
            keeper.reserve(name, events_per_s, bytes_per_s or 0.0)
        return number, name, keeper.release
