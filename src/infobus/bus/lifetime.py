"""Whether a bus is still open: what each of its parts asks before it takes on anything new."""

from __future__ import annotations

from infobus.errors import BusClosed


class Lifetime:
    """The life of one `Bus`, which ends once, when it is closed or its process was forked."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over: BusClosed | None = None  # why, once it has ended

    def check(self) -> None:
        """Raise `BusClosed` once the bus has ended."""
        if self.over is not None:
            raise self.over
