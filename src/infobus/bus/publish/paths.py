"""A program's part in a reservation on the way to other sites; the routers of its site keep it.

Each router of the site that answers has a stream that says how the reservation stands. If a router
dies, or cannot keep it on other paths, the program is told, and it is asked for again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infobus.errors import BusClosed, BusError, QosRefused, UsageError
from infobus.protocols.qos.classes import Rate, check_positive
from infobus.subjects import check_pattern, matches

if TYPE_CHECKING:
    from infobus.bus.publish.publisher import Publisher
    from infobus.bus.services import Services
    from infobus.services import Found

log = logging.getLogger("infobus")

PATHS_SUBJECT = "qos.paths"
"""Routers serve reservations under it."""

_AGAIN_S = 1.0  # between tries to get a lost one back
_BUFFER_S = 0.25  # of the rate, what is reserved of each hop's memory if the program does not say
_BUFFER_BYTES_MIN = 4096.0
_SILENT_S = 10.0  # a router that says nothing for so long does not keep it


class PathReservation:
    """What is reserved for one publisher on the way to other sites.

    Args:
        services: Those of the node.
        publisher: That of the node.
        number: No other reservation of the node has it.
        name: What people call it.
        pattern: The subjects that it is for.
        rate: How much; bytes, too.
        buffer_bytes: What may come at once.
        priority: The class of its events, where `publish` names none.
        on_change: Called, on a thread of its own, with why it is lost, or empty when it is back.
        is_closed: Whether the node is closed.
    """

    def __init__(
        self,
        services: Services,
        publisher: Publisher,
        number: int,
        name: str,
        *,
        pattern: str,
        rate: Rate,
        buffer_bytes: float | None,
        priority: str | None,
        on_change: Callable[[str], object] | None,
        is_closed: Callable[[], bool],
    ) -> None:
        check_pattern(pattern)
        check_positive("buffer_bytes", buffer_bytes)
        if rate.bytes_per_s is None:
            raise UsageError(
                "a link between sites carries bytes: give bytes_per_s with subject, about the "
                "size of an object times the events a second"
            )
        self.number, self.name, self.pattern, self.priority = number, name, pattern, priority
        self.publish = publisher.by_reservation
        self.lost = ""
        self._services = services
        self._events_per_s, self._bytes_per_s = rate.events_per_s or 0.0, rate.bytes_per_s or 0.0
        usual = max(_BUFFER_BYTES_MIN, self._bytes_per_s * _BUFFER_S)
        self._buffer_bytes = usual if buffer_bytes is None else buffer_bytes
        self._on_change, self._is_closed = on_change, is_closed
        self._is_over = threading.Event()
        self._client = services.service(PATHS_SUBJECT, timeout_s=_SILENT_S)
        self._streams: dict[Any, dict[str, Any]] = {}
        try:
            for router in self._routers():
                stream = self._stream(router)
                self._streams[stream] = next(stream)
                self._check(self._streams[stream])
        except BaseException:
            self.close()
            raise
        self._follower = threading.Thread(
            target=self._run, daemon=True, name=f"infobus-reservation-{number}"
        )
        self._follower.start()

    def check(self, subject: str) -> None:
        """Refuse a subject that it is not for; `UsageError`."""
        if not matches(self.pattern, subject):
            raise UsageError(f"reservation {self.name!r} is for {self.pattern}, not for {subject}")

    def close(self) -> None:
        """Give it back, everywhere. Idempotent."""
        self._is_over.set()
        for stream in list(self._streams):
            stream.close()

    def _routers(self) -> list[Found]:
        """The routers of this site that take reservations; none if the bus has none."""
        return [one for one in self._client.servers(1.0) if "via" not in one.info]

    def _stream(self, router: Found) -> Any:
        client = self._client.options(policy=lambda found: router)
        return client.reserve(
            *(self.pattern, self.number, self.name, self._events_per_s, self._bytes_per_s),
            self._buffer_bytes,
        )

    def _check(self, state: dict[str, Any]) -> None:
        """Raise the counter-offer of a hop that does not admit it."""
        if "hop" not in state:
            return
        share = min(1.0, state["share"])
        offer = {
            "events_per_s": self._events_per_s * share,
            "bytes_per_s": self._bytes_per_s * share,
            "buffer_bytes": self._buffer_bytes * share,
        }
        free = offer["bytes_per_s"]
        raise QosRefused(
            f"{self.name!r} asks for {self._events_per_s:g} events/s of {self._bytes_per_s:g} "
            f"bytes/s on the way to other sites: {_said(state)}"
            + (
                f" it offers {offer['events_per_s']:.3g} events/s of {free:.4g} bytes/s"
                if share > 0
                else ""
            ),
            asked=self._bytes_per_s,
            free=free,
            hop=state["hop"],
            toward=state.get("toward", ""),
            offer=offer if share > 0 else None,
        )

    # On a thread of its own.

    def _run(self) -> None:
        """Follow what the routers say, and ask again when one is gone."""
        while not self._is_over.is_set():
            try:
                if not self._streams:
                    self._begin_again()
                for stream in list(self._streams):
                    self._streams[stream] = next(stream)
                states = list(self._streams.values())
                bad = [_said(state) for state in states if "hop" in state]
                self._tell(bad[0] if bad else "")
            except (BusClosed, StopIteration):
                if self._is_over.is_set() or self._is_closed():
                    return
                self._again("its router has ended")
            except BusError as error:
                self._again(f"its router is gone: {error}")

    def _again(self, lost: str) -> None:
        """Let go what there was, and try anew soon."""
        self._tell(lost)
        for stream in list(self._streams):
            stream.close()
        self._streams.clear()
        self._is_over.wait(_AGAIN_S)

    def _begin_again(self) -> None:
        routers = self._routers()
        if not routers:
            self._tell("this site has no router now")
            self._is_over.wait(_AGAIN_S)
        for router in routers:
            self._streams[self._stream(router)] = {}
        if self._is_over.is_set():
            self.close()

    def _tell(self, lost: str) -> None:
        if lost == self.lost or self._is_over.is_set():
            return
        self.lost = lost
        what = f"is not kept any more: {lost}" if lost else "is kept again"
        log.warning("reservation %r for %s %s", self.name, self.pattern, what)
        if self._on_change is not None:
            try:
                self._on_change(lost)
            except Exception:
                log.exception("what reservation %r calls when it changes failed", self.name)


def _said(state: dict[str, Any]) -> str:
    where = f"router {state['hop']!r}" if state["hop"] else "the router of this site"
    link = f" on its link to {state['toward']!r}" if state.get("toward") else ""
    why = f" ({state['why']})" if state.get("why") else ""
    return f"{where} cannot keep it{link}{why};"
