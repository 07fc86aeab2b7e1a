"""A bar: one promise about speed, set against what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One promise and its measurement. `measured` is None if it could not be measured."""

    what: str
    measured: float | None
    bar: float
    at_least: bool = True
    unit: str = "x"
    spread: tuple[float, float] | None = None
    """The lowest and the highest of the rounds, if `measured` is their median."""

    @classmethod
    def over_rounds(
        cls,
        what: str,
        values: Sequence[float],
        bar: float,
        *,
        at_least: bool = True,
        unit: str = "x",
    ) -> Bar:
        """Judge the median of `values`, one for each round. No values means not measured.

        >>> bar = Bar.over_rounds("rate", [1.0, 3.0, 2.0], 1.5)
        >>> bar.measured, bar.spread, bar.ok, bar.is_sure
        (2.0, (1.0, 3.0), True, False)
        """
        return cls(
            what=what,
            measured=median(values) if values else None,
            bar=bar,
            at_least=at_least,
            unit=unit,
            spread=(min(values), max(values)) if values else None,
        )

    @property
    def ok(self) -> bool | None:
        """Whether the promise holds; None if it was not measured."""
        return None if self.measured is None else self._passes(self.measured)

    @property
    def is_sure(self) -> bool:
        """Whether all rounds agree. If they do not, the machine was too noisy to tell."""
        return self.spread is None or self._passes(self.spread[0]) == self._passes(self.spread[1])

    def _passes(self, value: float) -> bool:
        return value >= self.bar if self.at_least else value <= self.bar
