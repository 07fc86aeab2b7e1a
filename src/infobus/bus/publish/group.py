"""A transaction's way out of a node: whole, on every channel where some of it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from infobus.bus.deliver.event import Run
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.outlet import Outlet
from infobus.bus.publish.routing import Governed, Routing
from infobus.bus.runtime.runtime import Runtime
from infobus.errors import QosRefused
from infobus.protocols.frames import transactions
from infobus.protocols.frames.lanes import class_in, lane_of
from infobus.protocols.frames.transactions import Group
from infobus.protocols.frames.wire import Item, Items

if TYPE_CHECKING:
    from infobus.protocols.tags.rules import TagRule

_LOOKS_COUNT = 5  # at where a transaction is wanted, before it goes to those who wanted it then

Check = Callable[["TagRule | None", int], None]
"""Raises if a tag does not allow the event at a place of the transaction."""


class Departure(Struct, frozen=True):
    """A transaction that is to leave."""

    group: Group
    time: float
    class_: str
    objects: Sequence[Any]  # of its events, as filters see them
    types: tuple[int, ...]  # that its objects need
    check: Check
    marked: Callable[[Item, Outlet], Item]  # the item that carries it, with what else is said of it
    but: Subscription | None = None  # of this node, which does not get it


class GroupWay:
    """Sends transactions."""

    def __init__(self, runtime: Runtime, routing: Routing) -> None:
        self._runtime = runtime
        self._routing = routing

    def outlets(
        self, subjects: Iterable[str], objects: Sequence[Any], class_: str, check: Check
    ) -> dict[Outlet, bool]:
        """Where some of a transaction is wanted, and whether it is elsewhere, too."""
        outlets: dict[Outlet, bool] = {}
        routing = self._routing
        for at, (subject, obj) in enumerate(zip(subjects, objects, strict=False)):
            known = routing.decisions.get(lane_of(subject, class_))
            outlet, wanted, _ = known or routing.decide(subject, class_)
            if isinstance(wanted, Governed):
                if wanted.level is not None:
                    raise QosRefused(
                        f"{subject}: the policy asks for keys, which no transaction has"
                    )
                check(wanted.rule, at)
                wanted = wanted.wanted
            if outlet is not None:
                is_wanted = wanted if isinstance(wanted, bool) else routing.ask(wanted, obj)
                outlets[outlet] = outlets.get(outlet, False) or is_wanted
        return outlets

    def leave(self, departure: Departure) -> bool:
        """Send a transaction where it is wanted now; False if nobody wants any of it.

        If that changes while it waits for room, look again: whoever wants a channel meanwhile
        would get it by another one only, and so after later transactions of that channel.

        Raises:
            Backpressure: Receivers did not keep up; nothing was sent.
        """
        events = departure.group.events
        for is_last in [False] * _LOOKS_COUNT + [True]:
            version = self._runtime.interest_version
            outlets = self.outlets(
                events.each_subject(), departure.objects, departure.class_, departure.check
            )
            group = replace(departure.group, channels=max(1, sum(outlets.values())))
            is_current = partial(self._is_current, version, is_last)
            is_wanted = self._send(replace(departure, group=group), outlets, is_current)
            if is_wanted is not None:
                return is_wanted
        raise AssertionError("the last look counts whatever has changed")

    def _is_current(self, version: int, is_last: bool) -> bool:
        return is_last or self._runtime.interest_version == version

    def _send(
        self, departure: Departure, outlets: dict[Outlet, bool], is_current: Callable[[], bool]
    ) -> bool | None:
        """Whether anybody wants it; None, and nothing was done, if the outlets are not current."""
        group, runtime = departure.group, self._runtime
        with ExitStack() as stack:
            for outlet in sorted(outlets, key=lambda outlet: outlet.lane):
                stack.enter_context(outlet.lock)
            with runtime.lock:
                takers = runtime.delivery.takers_of(group.events, departure.objects)
            if departure.but is not None:
                takers.pop(departure.but, None)
            if not (takers or any(outlets.values())):
                return False
            # All must have room before any takes it, or some would get it and others not.
            for outlet, is_wanted in outlets.items():
                outlet.flush()
                if is_wanted and not outlet.route.has_room():
                    self._routing.wait_for_room(outlet)
            self._routing.wait_for_consumers(tuple(takers), departure.class_)
            if not is_current():
                return None
            at = {one.lane: one.route.next for one, is_wanted in outlets.items() if is_wanted}
            group = replace(group, places=at if len(at) > 1 else {})
            plain = transactions.item(next(iter(group.events)).subject, departure.time, group)
            item = plain
            for outlet, is_wanted in outlets.items():
                item = departure.marked(plain, outlet)
                if is_wanted:
                    outlet.send(item, len(item.body), departure.types, False)
            outlet = next(iter(outlets))
            self._offer(outlet, item, takers)
        return True

    def _offer(self, outlet: Outlet, item: Item, takers: dict[Subscription, list[int]]) -> None:
        """Give it to subscriptions of this node."""
        class_ = class_in(outlet.lane)
        run = Run(
            self._runtime.name, outlet.lane, [outlet.local_next], Items.of([item]), class_=class_
        )
        if principal := self._runtime.delivery.principal:
            run = replace(run, principal=principal)
        with self._runtime.lock:
            for subscription, places in takers.items():
                self._runtime.delivery.offer(subscription, replace(run, places=tuple(places)))
        outlet.local_next += bool(takers)
