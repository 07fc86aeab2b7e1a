"""Two buses in one process, joined by two borders: the least that a router is."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import infobus
from infobus import Bus
from infobus.bus.border.border import Border
from infobus.bus.deliver.event import Run
from infobus.protocols.frames.lanes import channel_in, class_in
from infobus.protocols.reliable.effects import Lost
from tests.bus.helpers import wait_until
from tests.patience import PATIENT


class Router:
    """Joins two buses: whatever is wanted on one of them is taken from the other."""

    def __init__(self, a: Bus, b: Bus, **options: Any) -> None:
        self.taken: list[Run] = []  # of both buses
        self.lost: list[Lost] = []
        self.a = self._border(a, lambda: self.b, **options)
        self.b = self._border(b, lambda: self.a, **options)
        self.a.want(self.b.wanted())
        self.b.want(self.a.wanted())

    def _border(self, bus: Bus, other: Callable[[], Border], **options: Any) -> Border:
        def take(run: Run) -> None:
            if not run.items.origins:  # else it came from the other side
                self.taken.append(run)
                items = run.items.come_from(run.sender, bus.name)
                other().send(items, run.class_, reliable=bool(run.seqs[0]))

        def on_loss(lost: Lost) -> None:
            self.lost.append(lost)
            count = 1 if lost.last is None else lost.last - lost.first + 1
            other().lose(channel_in(lost.lane), class_in(lost.lane), count)

        def on_wanted() -> None:
            if hasattr(self, "b"):
                other().want(border.wanted())

        border = Border(bus, take=take, on_loss=on_loss, on_wanted=on_wanted, **options)
        return border

    def close(self) -> None:
        self.a.close()
        self.b.close()


class Sites:
    """Two buses with a router; programs join either."""

    def __init__(self, stack: ExitStack, engine: str = "memory", **options: Any) -> None:
        self._stack, self._engine, self._options = stack, engine, options
        self.names = {one: f"{one}-{uuid.uuid4().hex}" for one in "ab"}
        self.router: Router

    def join(self, site: str, **options: Any) -> Bus:
        """One more node at `a` or `b`."""
        given = {"engine": self._engine, "patience": PATIENT, **self._options, **options}
        bus = infobus.connect(self.names[site], **given)
        self._stack.callback(bus.close, 0.2)
        return bus

    def join_sites(self, **options: Any) -> Router:
        """Let a router join the two."""
        self.router = Router(self.join("a"), self.join("b"), **options)
        self._stack.callback(self.router.close)
        return self.router

    def wait_until_wanted(self, bus: Bus, subject: str) -> None:
        """Wait until a publisher knows that somebody wants a subject."""
        wait_until(lambda: bus.quench(subject).wants({}) is not False)


@contextmanager
def sites(engine: str = "memory", **options: Any) -> Iterator[Sites]:
    """Two buses that a router may join."""
    with ExitStack() as stack:
        yield Sites(stack, engine, **options)
