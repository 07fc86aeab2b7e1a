"""The links of a router: a session for those who call, and one for each neighbour that it calls.

So neighbours can be added and removed while the others stay. None of these sessions looks for
anybody by itself: not in the rendezvous folder, nor by gossip or multicast. Two routers that call
each other are linked twice; a neighbour is spoken to on the session that showed it first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from infobus.engines.base import DECLARATIONS_COUNT_MAX, Declaration, Links
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.engines.zenoh.settings import namespace
from infobus.patience import Patience

_LISTENER = ""


class NeighbourLinks:
    """What carries the frames of a router to its neighbours: an `Engine` for `RoutedEngine`.

    Args:
        backbone: The name of the routers' bus.
        name: That of this router.
        listen: Where neighbours may call.
        connect: Whom to call: endpoints by the neighbour's name.
        insecure: Listen on a network even without TLS, and let anyone in.
        patience: When a neighbour that is silent is taken for dead, and so on.
        config: Settings of Zenoh itself, such as those of TLS.
    """

    declarations_count_max = DECLARATIONS_COUNT_MAX

    def __init__(
        self,
        backbone: str,
        name: str,
        *,
        listen: Collection[str],
        connect: dict[str, tuple[str, ...]],
        insecure: bool,
        patience: Patience,
        config: dict[str, Any],
    ) -> None:
        self._backbone, self._name = backbone, name
        self._options: dict[str, Any] = {
            "insecure": insecure,
            "patience": patience,
            "config": _config(backbone, config),
        }
        self._node = ""
        self._lock = threading.RLock()
        self._told: dict[int, Callable[[ZenohEngine, str], Declaration]] = {}
        self._declared: dict[tuple[int, str], Declaration] = {}
        self._numbers = iter(range(2**62))
        self._watches: dict[int, _Watch] = {}
        self._sessions = {_LISTENER: self._session(_LISTENER, listen=listen)}
        for name, endpoints in connect.items():
            self._sessions[name] = self._session(name, connect=endpoints)

    def open(self, node: str) -> None:
        """Listen, and begin to call; neighbours may be started later."""
        self._node = node
        try:
            for session in self._sessions.values():
                session.open(node)
        except BaseException:
            self.close()
            raise

    def call(self, connect: dict[str, tuple[str, ...]], changed: Iterable[str]) -> None:
        """Call these neighbours from now on; links to others that are not `changed` stay."""
        with self._lock:
            ended = [name for name in changed if name in self._sessions and name != _LISTENER]
            for name in ended:
                self._sessions.pop(name).close()
                self._forget(name)
            for name, endpoints in connect.items():
                if name not in self._sessions:
                    session = self._session(name, connect=endpoints)
                    session.open(self._node)
                    self._sessions[name] = session
                    for number, declare in self._told.items():
                        self._declared[number, name] = declare(session, name)

    # What the engine of the backbone asks for.

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send to the neighbour whose inbox it is."""
        for session in self._way_to(key):
            session.put(key, payload, control=control, urgency=urgency)

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Take frames from all sessions, one at a time."""
        turn = threading.Lock()

        def take(frame: bytes) -> None:
            with turn:
                on_frame(frame)

        return self._everywhere(lambda session, name: session.declare(key, take))

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declaration:
        """Answer on all sessions."""
        return self._everywhere(lambda session, name: session.answer(key, handler))

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask on the session of the neighbour whose inbox it is."""
        return [
            one for session in self._way_to(key) for one in session.query(key, payload, timeout_s)
        ]

    def announce(self, key: str) -> Declaration:
        """Show a token on all sessions."""
        return self._everywhere(lambda session, name: session.announce(key))

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Report tokens of neighbours: there while any session shows them."""
        watch = _Watch(on_change)
        with self._lock:
            declared = self._everywhere(
                lambda session, name: session.watch(key, partial(watch.change, name))
            )
            self._watches[declared.number] = watch
        return declared

    def endpoints(self) -> dict[str, str]:
        """What became of each endpoint."""
        with self._lock:
            sessions = list(self._sessions.values())
        return {one: state for each in sessions for one, state in each.endpoints().items()}

    def links(self) -> Links:
        """Which sessions those of this router are linked with."""
        with self._lock:
            told = [session.links() for session in self._sessions.values()]
        others = sorted({other for one in told for other in one.others})
        return Links("peer", told[0].own, tuple(others))

    def close(self) -> None:
        """Leave the neighbours. Idempotent."""
        with self._lock:
            sessions, self._sessions = self._sessions, {_LISTENER: self._sessions[_LISTENER]}
        for session in sessions.values():
            session.close()

    # Parts of it.

    def _session(
        self, name: str, *, listen: Collection[str] = (), connect: Collection[str] = ()
    ) -> ZenohEngine:
        # A rendezvous of its own: it is linked with whom it calls, or who calls, and nobody else.
        alone = f"{self._backbone} from {self._name} to {name or 'those who call'}"
        return ZenohEngine(alone, listen=listen, connect=connect, **self._options)

    def _everywhere(self, declare: Callable[[ZenohEngine, str], Declaration]) -> _Everywhere:
        with self._lock:
            number = next(self._numbers)
            self._told[number] = declare
            for name, session in self._sessions.items():
                self._declared[number, name] = declare(session, name)
        return _Everywhere(self, number)

    def withdraw(self, number: int) -> None:
        """Undeclare on all sessions; for `Declaration.undeclare`."""
        with self._lock:
            self._told.pop(number, None)
            self._watches.pop(number, None)
            found = [key for key in self._declared if key[0] == number]
            ended = [self._declared.pop(key) for key in found]
        for one in ended:
            one.undeclare()

    def _forget(self, name: str) -> None:
        """A session was closed: its declarations are gone with it."""
        for key in [key for key in self._declared if key[1] == name]:
            del self._declared[key]
        for watch in self._watches.values():
            watch.forget(name)

    def _way_to(self, key: str) -> list[ZenohEngine]:
        """The session that shows the neighbour; none if it is not there any more."""
        token = f"l/{key.split('/')[1]}"
        names = [name for watch in self._watches.values() for name in watch.shown_by(token)]
        return [self._sessions[name] for name in names[:1] if name in self._sessions]


class _Watch:
    """Tokens that several sessions may show."""

    def __init__(self, on_change: Callable[[str, bool], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._shown: dict[str, list[str]] = {}

    def shown_by(self, token: str) -> list[str]:
        """The sessions that show it, the first one first."""
        return self._shown.get(token, [])

    def change(self, name: str, token: str, is_alive: bool) -> None:
        """A session shows a token, or does so no more."""
        with self._lock:
            shown = self._shown.get(token, [])
            now = [one for one in shown if one != name] + [name] * is_alive
            if is_alive and name in shown:
                return
            if now:
                self._shown[token] = now
            else:
                self._shown.pop(token, None)
        if bool(now) != bool(shown):
            self._on_change(token, bool(now))

    def forget(self, name: str) -> None:
        """A session is closed: it shows nothing any more."""
        for token in list(self._shown):
            self.change(name, token, False)


class _Everywhere:
    def __init__(self, links: NeighbourLinks, number: int) -> None:
        self._links = links
        self.number = number

    def undeclare(self) -> None:
        self._links.withdraw(self.number)


def _config(backbone: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        **config,
        "namespace": namespace(f"{backbone} routers"),
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
    }
