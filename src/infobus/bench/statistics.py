"""Numbers from runs: medians, percentiles, and ratios that a noisy machine does not blur."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from infobus.bench.model import Run, Scenario


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value with at least `share` of all values at or below it.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile([1.0, 2.0, 3.0], 0.99)
    (2.0, 3.0)
    """
    ordered = sorted(values)
    # Rounded, because 0.07 * 100 is a little more than 7 in binary.
    below = -int(-round(share * len(ordered), 9) // 1)
    return ordered[max(0, below - 1)]


def good_runs(runs: Iterable[Run], scenario: Scenario) -> list[Run]:
    """The runs of this very scenario that gave numbers, in order of repetition."""
    found = [run for run in runs if run.scenario == scenario and not run.failure]
    return sorted(found, key=lambda run: run.repetition)


def middle(runs: Iterable[Run], scenario: Scenario, value: Callable[[Run], float]) -> float | None:
    """The median of `value` over the scenario's runs; None if there are none."""
    found = [value(run) for run in good_runs(runs, scenario)]
    return median(found) if found else None


def ratios(
    runs: Sequence[Run], over: Scenario, under: Scenario, value: Callable[[Run], float]
) -> list[float]:
    """How many times `under`'s value `over` reached, in each repetition that has both."""
    below = {run.repetition: value(run) for run in good_runs(runs, under)}
    return [
        value(run) / below[run.repetition]
        for run in good_runs(runs, over)
        if below.get(run.repetition)
    ]


def ratio(
    runs: Sequence[Run], over: Scenario, under: Scenario, value: Callable[[Run], float]
) -> float | None:
    """The median of `ratios`; None if either scenario was not measured.

    Not the ratio of the medians: what runs close together shares the machine's mood, and a
    ratio within one repetition cancels it.
    """
    found = ratios(runs, over, under, value)
    return median(found) if found else None
