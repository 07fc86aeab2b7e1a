"""Computes watermarks from measured traffic: how many events of a class may wait.

Paper 002, section 11, leaves open which watermark values are appropriate. Here they follow from
measurements. Arrivals are played through queues that are served as the bus serves them, the highest
class first, at the rate at which events were seen to be taken. The length of the queues shows how
much room bursts need. Nothing here reads a clock or a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from infobus.pipeline.jobs.interest import Array
from infobus.protocols.qos.classes import Marks

BURST_SHARE = 0.999
"""Of the time, so much shall pass without a class being held."""
HIGHEST_FACTOR = 10
"""The mark of the highest class is set so much higher: a call to 911 is not to be held."""
HIGH_MIN = 16
"""A lower mark would hold a class for the events of one frame."""


class ServiceRate(Struct, frozen=True, kw_only=True):
    """The capacity of the consumers, and the limits on waiting.

    Attributes:
        events_per_s: How many events are taken, of all classes together.
        reaction_s: How long a sender takes to stop or resume.
        patience_s: By class: no event should wait longer than that.
    """

    events_per_s: float
    reaction_s: float
    patience_s: Mapping[str, float]


class Advice(Struct, frozen=True, kw_only=True):
    """The marks for one class, and why."""

    name: str
    marks: Marks
    arrivals_per_s: float
    peak_per_s: float
    left_per_s: float
    """What the classes above leave for it."""
    burst: int
    """So many waited, at most, in `BURST_SHARE` of the time."""
    reasons: tuple[str, ...]


def backlogs(arrivals: Sequence[Array], bin_s: float, service: ServiceRate) -> list[Array]:
    """Return how many events of each class wait at the end of each time bin; highest first.

    >>> service = ServiceRate(events_per_s=10, reaction_s=0.1, patience_s={})
    >>> [one.tolist() for one in backlogs([np.array([8, 8, 0]), np.array([5, 5, 5])], 1, service)]
    [[0.0, 0.0, 0.0], [3.0, 6.0, 1.0]]
    """
    left = np.full(len(arrivals[0]), service.events_per_s * bin_s)
    found = []
    for class_ in arrivals:
        # Lindley's recursion in closed form: how far the sum of the excess is above its
        # least value so far.
        excess = np.cumsum(class_ - left)
        waiting = excess - np.minimum(np.minimum.accumulate(excess), 0.0)
        before = np.concatenate([[0.0], waiting[:-1]])
        left = np.maximum(left - (before + class_ - waiting), 0.0)
        found.append(waiting)
    return found


def advise(
    names: Sequence[str], arrivals: Sequence[Array], bin_s: float, service: ServiceRate
) -> list[Advice]:
    """Return marks for each class, from arrivals by time bins; the highest class first."""
    waiting = backlogs(arrivals, bin_s, service)
    above_per_s = 0.0
    advice = []
    for rank, (name, class_) in enumerate(zip(names, arrivals, strict=True)):
        mean_per_s = float(class_.mean()) / bin_s
        advice.append(
            _advice(
                name,
                class_,
                waiting[rank],
                left_per_s=max(service.events_per_s - above_per_s, 0.0),
                bin_s=bin_s,
                service=service,
                is_highest=rank == 0 and len(names) > 1,
            )
        )
        above_per_s += mean_per_s
    return advice


def _advice(
    name: str,
    arrivals: Array,
    waiting: Array,
    *,
    left_per_s: float,
    bin_s: float,
    service: ServiceRate,
    is_highest: bool,
) -> Advice:
    mean_per_s, peak_per_s = float(arrivals.mean()) / bin_s, float(arrivals.max()) / bin_s
    burst = math.ceil(float(np.quantile(waiting, BURST_SHARE)))
    # Events within one bin wait for each other, too, if they arrive at once.
    room = burst + math.ceil(peak_per_s * service.reaction_s)
    reasons = [
        f"arrivals: {mean_per_s:,.1f}/s on average, {peak_per_s:,.1f}/s at the peak; the classes "
        f"above leave {left_per_s:,.1f} of {service.events_per_s:,.1f}/s: load "
        f"{_load(mean_per_s, left_per_s)}",
        f"bursts: in {BURST_SHARE:.1%} of the time no more than {burst:,} would have waited; with "
        f"what comes at the peak within {service.reaction_s:g} s, until a sender is held, "
        f"that is {room:,}",
    ]
    patience_s = service.patience_s.get(name)
    if is_highest:
        high = max(room * HIGHEST_FACTOR, HIGH_MIN)
        reasons.append(
            f"high mark: {HIGHEST_FACTOR} times that, because the highest class must not be held"
        )
    elif patience_s is not None and left_per_s * patience_s < room:
        high = max(math.floor(left_per_s * patience_s), HIGH_MIN)
        reasons.append(
            f"high mark: no event should wait longer than {patience_s:g} s, in which "
            f"{left_per_s * patience_s:,.0f} are taken; bursts need more room than that, so "
            "senders of this class will be held at times"
        )
    else:
        high = max(room, HIGH_MIN)
        reasons.append(f"high mark: room for that, and at least {HIGH_MIN} (one frame)")
    if mean_per_s >= left_per_s:
        reasons.append(
            "more comes than is taken, so no mark is high enough: have more events taken, or "
            "fewer sent; the mark only says when senders begin to wait"
        )
    work = math.ceil(left_per_s * service.reaction_s)
    low = min(high // 2, work)
    reasons.append(
        f"low mark: {work:,} are taken within {service.reaction_s:g} s, until a sender goes on; "
        "at most half of the high mark, so that it is not held again at once"
    )
    return Advice(
        name=name,
        marks=Marks(high=high, low=low),
        arrivals_per_s=mean_per_s,
        peak_per_s=peak_per_s,
        left_per_s=left_per_s,
        burst=burst,
        reasons=tuple(reasons),
    )


def _load(mean_per_s: float, left_per_s: float) -> str:
    return f"{mean_per_s / left_per_s:.0%}" if left_per_s else "beyond all measure"
