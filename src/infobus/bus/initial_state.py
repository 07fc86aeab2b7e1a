"""Initial state for newcomers: what a producer hands to a subscription that starts (anew).

A subscription with `on_loss="quit_and_recover"` asks every node for initial state when it
starts, and again whenever it has lost something. A producer takes its state between two of its
publications and stamps it with the number of the last one, so the newcomer gets the state
first and then exactly the events that followed it (paper 004, section 3.4).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Thread

from msgspec import Struct, field

from infobus.bus.deliver.audience import NOBODY
from infobus.bus.deliver.event import Run, weight_of
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.outlet import Outlet
from infobus.bus.runtime.runtime import Hub
from infobus.objects import codec
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import channel_in
from infobus.protocols.frames.wire import Item, Items
from infobus.protocols.interest.own_rows import channel_pattern, touches
from infobus.subjects import channel_of, overlaps

log = logging.getLogger("infobus")

STATE_WAIT_S = 2.0
"""How long a newcomer waits for the state of producers that do not answer."""

StateFunction = Callable[[], Iterable[tuple[str, object]]]
MakeItem = Callable[[str, object], tuple[Item, tuple[int, ...]]]


class Recovery(Struct):
    """A subscription that waits for initial state."""

    subscription: Subscription
    awaited: set[str]
    until_s: float
    runs: list[Run] = field(default_factory=list)
    lasts: dict[tuple[str, str], int] = field(default_factory=dict)  # route -> number of its state


class InitialState:
    """Both halves: giving state to newcomers, and waiting for it."""

    def __init__(
        self,
        hub: Hub,
        outlets: dict[str, Outlet],
        outlet_of: Callable[[str], Outlet],
        make_item: MakeItem,
    ) -> None:
        self._hub = hub
        self._outlets = outlets
        self._outlet_of = outlet_of
        self._make_item = make_item
        self._functions: list[tuple[str, StateFunction]] = []
        self._recoveries: dict[int, Recovery] = {}
        self._requests = itertools.count(1)
        self._jobs: SimpleQueue[wire.WantState | None] = SimpleQueue()
        hub.on_state_wanted = self._jobs.put
        hub.on_state_came = self._on_came
        hub.on_recover = self.start
        hub.on_tick = self._on_tick

    def open(self) -> None:
        """Begin to answer."""
        name = f"infobus-{self._hub.name}-state"
        Thread(target=self._answer_for_ever, name=name, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._jobs.put(None)

    def register(self, pattern: str, function: StateFunction) -> None:
        """`function` gives the state of what this node publishes under `pattern`."""
        self._functions.append((pattern, function))

    # Waiting for state.

    def start(self, subscription: Subscription) -> None:
        """Empty the subscription and ask every live node, this one too, for initial state."""
        hub = self._hub
        with hub.lock:
            if subscription.is_closed:
                return
            self._forget(subscription)
            subscription.queue.clear()
            subscription.queue.offered -= _count(subscription.queue.staged or [])
            subscription.queue.staged = []
            peers = [name for name, peer in hub.node.peers.items() if peer.alive]
            request = next(self._requests)
            until_s = time.monotonic() + STATE_WAIT_S
            awaited = {hub.name, *peers}
            self._recoveries[request] = Recovery(subscription, awaited, until_s)
        want = wire.WantState(hub.name, request, list(subscription.patterns))
        self._jobs.put(want)
        hub.send([(f"n/{name}", wire.encode(want), True) for name in peers])

    def _forget(self, subscription: Subscription) -> None:
        """What was asked for before a further loss is too old."""
        for request, recovery in list(self._recoveries.items()):
            if recovery.subscription is subscription:
                del self._recoveries[request]

    def _on_came(self, state: wire.State) -> None:
        recovery = self._recoveries.get(state.request)
        if recovery is None or state.sender not in recovery.awaited:
            return
        recovery.awaited.discard(state.sender)
        depth = self._hub.node.terms.depth
        for lane, last in state.lasts.items():
            recovery.lasts[state.sender, lane] = last
        for item in state.items:
            if self._hub.audiences.of_stranger(item.subject) in (None, NOBODY):
                continue
            channel = channel_of(item.subject, depth)
            last = state.lasts.get(channel, 0)
            items = Items.of([item])
            recovery.runs.append(Run(state.sender, channel, [last], items, True, False))
        if not recovery.awaited:
            self._finish(state.request, recovery)

    def _on_tick(self, now_s: float) -> None:
        for request, recovery in list(self._recoveries.items()):
            if now_s >= recovery.until_s:
                names = ", ".join(sorted(recovery.awaited))
                log.warning("no initial state came from %s in %s s", names, STATE_WAIT_S)
                self._finish(request, recovery)

    def _finish(self, request: int, recovery: Recovery) -> None:
        """The state first, then what has come since, without what the state contains."""
        del self._recoveries[request]
        subscription = recovery.subscription
        staged, subscription.queue.staged = subscription.queue.staged or [], None
        subscription.queue.offered -= _count(staged)
        if subscription.is_closed:
            return
        for run in recovery.runs:
            self._hub.delivery.offer(subscription, run)
        subscription.queue.contained |= recovery.lasts
        for run in staged:
            self._hub.delivery.offer(subscription, run)
        # Of others, events that the state contains may still be repaired and come after it.
        for route, last in recovery.lasts.items():
            if self._is_past(*route, last):
                subscription.queue.contained.pop(route, None)

    def _is_past(self, sender: str, lane: str, last: int) -> bool:
        peer = self._hub.node.peers.get(sender)
        if peer is None:
            return True
        receiver = peer.receivers.get(lane)
        following = peer.nexts.get(lane) if receiver is None else receiver.next
        return following is not None and following > last

    # Giving state.

    def _answer_for_ever(self) -> None:
        while (want := self._jobs.get()) is not None:
            lasts: dict[str, int] = {}
            items: list[Item] = []
            types: set[int] = set()
            for pattern, function in self._functions:
                try:
                    types |= self._add_state(lasts, items, want, pattern, function)
                except BaseException:  # also SystemExit: it would end the thread, in silence
                    log.exception("initial state for %s failed; it is left out", pattern)
            state = wire.State(
                self._hub.name, want.request, lasts, Items.of(items), codec.descriptors(types)
            )
            frame = wire.encode(state)
            if len(frame) > wire.FRAME_BYTES_MAX:
                log.error("the initial state takes %d bytes; it is left out", len(frame))
                frame = wire.encode(wire.State(self._hub.name, want.request, {}, Items.of([])))
            if want.sender == self._hub.name:
                with self._hub.lock:
                    self._on_came(state)
            else:
                self._hub.send([(f"n/{want.sender}", frame, True)])

    def _add_state(
        self,
        lasts: dict[str, int],
        items: list[Item],
        want: wire.WantState,
        pattern: str,
        function: StateFunction,
    ) -> set[int]:
        """Add what `function` gives, if it is wanted; the types that it needs are returned."""
        types: set[int] = set()
        if any(overlaps(pattern, wanted) for wanted in want.patterns):
            with self._between_publications(pattern) as numbers:
                pairs = list(function())
                new_lasts = numbers(want.sender == self._hub.name)
            new_items = []
            for subject, obj in pairs:
                if any(overlaps(subject, wanted) for wanted in want.patterns):
                    item, item_types = self._make_item(subject, obj)
                    new_items.append(item)
                    types.update(item_types)
            lasts.update(new_lasts)  # nothing is added if any of it failed
            items.extend(new_items)
        return types

    @contextmanager
    def _between_publications(self, pattern: str) -> Iterator[Callable[[bool], dict[str, int]]]:
        channel = channel_pattern(pattern, self._hub.node.terms.depth)
        channels = [channel]
        if not {"*", ">"} & set(channel.split(".")):
            with self._hub.lock:
                self._outlet_of(channel)  # so that its first publication waits, too
        with ExitStack() as stack:
            found = sorted(self._outlets.items())
            outlets = [outlet for lane, outlet in found if touches(channels, channel_in(lane))]
            for outlet in outlets:
                stack.enter_context(outlet.lock)
                outlet.flush()

            def numbers(here: bool) -> dict[str, int]:
                return {o.lane: (o.local_next if here else o.route.next) - 1 for o in outlets}

            yield numbers


def _count(runs: list[Run]) -> int:
    return sum(weight_of(run.items) for run in runs)
