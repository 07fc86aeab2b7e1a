"""Initial state for newcomers: what a producer hands to a subscription that starts (anew).

A subscription with `on_loss="quit_and_recover"` asks every node for initial state when it
starts, and again whenever it has lost something. A producer takes its state between two of its
publications and stamps it with the number of the last one, so the newcomer gets the state
first and then exactly the events that followed it (paper 004, section 3.4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, assert_never

from msgspec.structs import replace

from infobus.bus.deliver.audience import NOBODY
from infobus.bus.deliver.event import Run, weight_of
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.outlet import Outlet
from infobus.bus.runtime.registration import Locked
from infobus.bus.runtime.runtime import Runtime
from infobus.objects import codec
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import channel_in
from infobus.protocols.frames.wire import Item, Items
from infobus.protocols.initial_state.newcomers import Came, Effects, Give, Newcomers, OwnEffect
from infobus.protocols.interest.own_rows import channel_pattern, touches
from infobus.subjects import channel_of, overlaps

log = logging.getLogger("infobus")

TAGS = (11, 12)  # of `WantState` and `State`

StateFunction = Callable[[], Iterable[tuple[str, object]]]
MakeItem = Callable[[str, object], tuple[Item, tuple[int, ...]]]


class InitialState:
    """What `protocols.initial_state` wants done: collecting state, and beginning with it."""

    def __init__(
        self,
        runtime: Runtime,
        outlets: dict[str, Outlet],
        outlet_of: Callable[[str], Outlet],
        make_item: MakeItem,
    ) -> None:
        self._runtime = runtime
        self._outlets = outlets
        self._outlet_of = outlet_of
        self._make_item = make_item
        self._functions: list[tuple[str, StateFunction]] = []
        self._newcomers = Newcomers(runtime.name, runtime.patience.state_s)
        self._strand = Locked(runtime, self._newcomers, self._do, wire.decode)
        self._worker = runtime.threads.worker(f"infobus-{runtime.name}-state")
        runtime.register(self._strand, TAGS)
        runtime.recover_by(self.start)

    def close(self) -> None:
        """Answer no more."""
        self._worker.stop()

    def register(self, pattern: str, function: StateFunction) -> None:
        """`function` gives the state of what this node publishes under `pattern`."""
        self._functions.append((pattern, function))

    # Waiting for state.

    def start(self, subscription: Subscription) -> None:
        """Empty the subscription and ask every live node, this one too, for initial state."""
        self._strand.step(lambda now_s: self._ask(subscription, now_s))

    def _ask(self, subscription: Subscription, now_s: float) -> Effects:
        if subscription.is_closed:
            return []
        queue = subscription.queue
        queue.clear()
        queue.offered -= _count(queue.staged or [])
        queue.staged = []
        peers = [name for name, peer in self._runtime.node.peers.items() if peer.alive]
        return self._newcomers.ask(subscription, list(subscription.patterns), peers, now_s)

    def _do(self, one: OwnEffect) -> Sequence[Any]:
        match one:
            case Give(want):
                want = self._accepted(want)
                self._worker.do(lambda: self._give(want))
                return []
            case Came(subscription, states, silent):
                if silent:
                    names, wait_s = ", ".join(silent), self._newcomers.patience_s
                    log.warning("no initial state came from %s in %s s", names, wait_s)
                return self._begin(subscription, states)
            case _:
                assert_never(one)

    def _begin(self, subscription: Subscription, states: list[wire.State]) -> Sequence[Any]:
        """The state first, then what has come since, without what the state contains."""
        staged, subscription.queue.staged = subscription.queue.staged or [], None
        subscription.queue.offered -= _count(staged)
        if subscription.is_closed:
            return []
        delivery = self._runtime.delivery
        for state in states:
            for run in self._runs(state):
                delivery.offer(subscription, run)
        lasts = {(s.sender, lane): last for s in states for lane, last in s.lasts.items()}
        subscription.queue.contained |= lasts
        for run in staged:
            delivery.offer(subscription, run)
        # Of others, events that the state contains may still be repaired and come after it.
        for route, last in lasts.items():
            if self._is_past(*route, last):
                subscription.queue.contained.pop(route, None)
        late, delivery.late = delivery.late, []
        return late

    def _runs(self, state: wire.State) -> Iterator[Run]:
        depth, principal_of = self._runtime.node.terms.depth, self._runtime.delivery.principal_of
        principal = "" if principal_of is None else principal_of(state.sender)
        for item in state.items:
            if self._runtime.audiences.of_stranger(item.subject) in (None, NOBODY):
                continue
            guard = self._runtime.guard
            if guard is not None and not guard.accepts_event(state.sender, item.subject):
                continue
            channel = channel_of(item.subject, depth)
            numbers = [state.lasts.get(channel, 0)]
            run = Run(state.sender, channel, numbers, Items.of([item]), True, False)
            yield replace(run, principal=principal) if principal else run

    def _is_past(self, sender: str, lane: str, last: int) -> bool:
        peer = self._runtime.node.peers.get(sender)
        if peer is None:
            return True
        receiver = peer.receivers.get(lane)
        following = peer.nexts.get(lane) if receiver is None else receiver.next
        return following is not None and following > last

    # Giving state.

    def _accepted(self, want: wire.WantState) -> wire.WantState:
        """A wish without what its node may not subscribe to."""
        guard = self._runtime.guard
        if guard is None:
            return want
        patterns = [one for one in want.patterns if guard.accepts_row(want.sender, one)]
        return replace(want, patterns=patterns)

    def _give(self, want: wire.WantState) -> None:
        lasts: dict[str, int] = {}
        items: list[Item] = []
        types: set[int] = set()
        for pattern, function in self._functions:
            try:
                types |= self._add_state(lasts, items, want, pattern, function)
            except BaseException:  # also SystemExit: it would end the worker, in silence
                log.exception("initial state for %s failed; it is left out", pattern)
        name = self._runtime.name
        state = wire.State(name, want.request, lasts, Items.of(items), codec.descriptors(types))
        if want.sender == name:
            self._strand.step(lambda now_s: self._newcomers.take(state, now_s))
            return
        frame = wire.encode(state)
        if len(frame) > wire.FRAME_BYTES_MAX:
            log.error("the initial state takes %d bytes; it is left out", len(frame))
            frame = wire.encode(wire.State(name, want.request, {}, Items.of([])))
        self._runtime.send([(f"n/{want.sender}", frame, True, 0)])

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
                new_lasts = numbers(want.sender == self._runtime.name)
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
        channel = channel_pattern(pattern, self._runtime.node.terms.depth)
        channels = [channel]
        if not {"*", ">"} & set(channel.split(".")):
            with self._runtime.lock:
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
