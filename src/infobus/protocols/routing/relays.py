"""Chooses the neighbours that carry a frame on: few, to cover all destinations, least loaded first.

The frames of one router on one key are a flow. As long as frames come, and its path to a
destination is still a shortest one, a flow keeps that path, so that its frames arrive in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct, field

_FLOWS_COUNT_MAX = 50_000
_OLD_PART = 8  # of them, which chose first, choose anew when there are too many
_IDLE_S = 30.0  # so long after its last frame, none of a flow waits anywhere any more

Hop = str
Split = dict[Hop, tuple[int, ...]]


class _Flow(Struct):
    used_at_s: float
    epoch: int = 0
    hops: dict[int, Hop] = field(default_factory=dict)
    splits: dict[tuple[int, ...], Split] = field(default_factory=dict)


class Relays:
    """The choices that were made at one router."""

    def __init__(self) -> None:
        self.epoch = 0
        self._flows: dict[tuple[int, str], _Flow] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def forget_splits(self) -> None:
        """Paths have changed: look again which hops are still good."""
        self.epoch += 1

    def split(
        self,
        flow: tuple[int, str],
        to: tuple[int, ...],
        now_s: float,
        hops_to: Callable[[int], Collection[Hop]],
        load: Callable[[Hop], int],
    ) -> Split:
        """Return which hop is responsible for which of the destinations.

        Those that no hop leads to are left out.
        """
        held = self._flows.get(flow)
        if held is None or now_s - held.used_at_s > _IDLE_S:
            if len(self._flows) >= _FLOWS_COUNT_MAX:
                for old in list(self._flows)[: _FLOWS_COUNT_MAX // _OLD_PART]:
                    del self._flows[old]
            held = self._flows[flow] = _Flow(now_s, self.epoch)
        held.used_at_s = now_s
        if held.epoch != self.epoch:
            held.epoch, held.splits = self.epoch, {}
        found = held.splits.get(to)
        if found is None:
            if len(held.splits) > 8:
                held.splits = {}
            found = held.splits[to] = _chosen(held.hops, to, hops_to, load)
        return found

    def prune(self, now_s: float) -> None:
        """Forget flows that are over."""
        flows = self._flows
        for flow in [f for f, held in flows.items() if now_s - held.used_at_s > _IDLE_S]:
            del flows[flow]


def _chosen(
    kept: dict[int, Hop],
    to: tuple[int, ...],
    hops_to: Callable[[int], Collection[Hop]],
    load: Callable[[Hop], int],
) -> Split:
    """Keep what is still good; cover the others by as few hops as a greedy choice needs."""
    split: dict[Hop, list[int]] = {}
    open_to: dict[int, Collection[Hop]] = {}
    for one in to:
        hops = hops_to(one)
        if kept.get(one) in hops:
            split.setdefault(kept[one], []).append(one)
        elif hops:
            open_to[one] = hops
    while open_to:
        covers: dict[Hop, list[int]] = {}
        for one, hops in open_to.items():
            for hop in hops:
                covers.setdefault(hop, []).append(one)
        best = min(covers, key=lambda hop: (hop not in split, -len(covers[hop]), load(hop), hop))
        for one in covers[best]:
            kept[one] = best
            del open_to[one]
        split.setdefault(best, []).extend(covers[best])
    return {hop: tuple(ones) for hop, ones in split.items()}
