"""Watches the endpoints that a node was told to reach, and tells which answer and which do not.

Zenoh tries them for ever and says nothing. So we look at its links, and where one is missing we
knock ourselves, only to learn why.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from infobus.engines.zenoh.endpoints import SECURE, UNIX, address_of, host_and_port, protocol_of
from infobus.engines.zenoh.host_names import HostNames
from infobus.waiters import Changed

log = logging.getLogger("infobus.engine")

LINKED = "linked"
LISTENING = "listening"
_TRYING = "no answer yet"
_ANSWERS = "it answers"
_NO_ANSWER = ("udp", "quic")  # protocols in which nobody says that he listens
_LOOK_S = 0.01
_FIRST_KNOCK_S = 0.3  # most links are there by then
_AGAIN_S = 0.02  # between two knocks of a client, which cannot open before one is answered
_AT_ONCE_S = 0.1  # answers that come within this are as good as the first one
_KNOCK_S_MAX = 30.0  # between two knocks: a listener there should not be bothered


class Reach:
    """Which of some endpoints are linked, and why the others are not.

    Args:
        endpoints: What to watch.
        links: Returns the links of the session.
        is_neighbour: Whether an endpoint belongs to a node of this host that is linked anyway.
        period_s: How often to look.
        knock_s: How long a knock waits for an answer.
    """

    def __init__(
        self,
        endpoints: Iterable[str],
        links: Callable[[], Iterable[Any]],
        is_neighbour: Callable[[str], bool],
        *,
        period_s: float,
        knock_s: float,
    ) -> None:
        self.states = dict.fromkeys(endpoints, _TRYING)
        self._links = links
        self._is_neighbour = is_neighbour
        self._period_s = period_s
        self._knock_s = knock_s
        self._names = HostNames()
        self._lock = threading.Lock()
        self._changed = Changed(self._lock)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="infobus-endpoints", daemon=True)
        self._thread.start()

    def wait_for_one(self, timeout_s: float, *, must_be: bool = True) -> bool:
        """Wait until one of the endpoints is linked; False if none is in time.

        Unless one `must_be`, it does not wait for those at which nobody listens.
        """

        def is_over() -> bool:
            states = self.states.values()
            may_come = any(one == _TRYING or one.startswith(_ANSWERS) for one in states)
            return LINKED in states or not (must_be or may_come)

        return self._changed.wait_for(is_over, timeout_s) and LINKED in self.states.values()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _run(self) -> None:
        began_s = time.monotonic()
        knocks = dict.fromkeys(self.states, (began_s + _FIRST_KNOCK_S, 1.0))
        wait_s, linked = 0.0, set[str]()
        while not self._stopped.wait(wait_s):
            before, linked = linked, self._linked()
            now_s = time.monotonic()
            for endpoint in self.states:
                at_s, pause_s = knocks[endpoint]
                if endpoint in linked:
                    self._note(endpoint, LINKED)
                    knocks[endpoint] = (now_s, 1.0)
                elif now_s >= at_s or endpoint in before:
                    self._note(endpoint, self._knock(endpoint))
                    knocks[endpoint] = (time.monotonic() + pause_s, min(2 * pause_s, _KNOCK_S_MAX))
            is_new = now_s - began_s < self._period_s and len(linked) < len(self.states)
            wait_s = _LOOK_S if is_new else self._period_s

    def _linked(self) -> set[str]:
        """The endpoints to which a link exists, in either direction."""
        try:
            there = {address_of(link.dst) for link in self._links()}
        except Exception:  # the session is being closed
            return set()
        return {one for one in self.states if self._found(one) & there or self._is_neighbour(one)}

    def _found(self, endpoint: str) -> set[str]:
        """The addresses that an endpoint stands for, as links tell them."""
        where = host_and_port(endpoint)
        if where is None:
            return {address_of(endpoint)}
        hosts = self._names.addresses(where[0])
        return {address_of(endpoint)} | {
            f"[{host}]:{where[1]}" if ":" in host else f"{host}:{where[1]}" for host in hosts
        }

    def _knock(self, endpoint: str) -> str:
        why = _answer(endpoint, self._names, self._knock_s)
        if why or protocol_of(endpoint) in _NO_ANSWER:
            return why or "no answer"
        if self._has_link_with_host_of(endpoint):
            return LINKED  # it called us before we called it: one link is enough
        return no_link_at(endpoint)

    def _has_link_with_host_of(self, endpoint: str) -> bool:
        hosts = {address.rpartition(":")[0] for address in self._found(endpoint)}
        return any(address_of(link.dst).rpartition(":")[0] in hosts for link in self._links())

    def _note(self, endpoint: str, state: str) -> None:
        before = self.states[endpoint]
        if state == before or self._stopped.is_set():
            return
        if state != LINKED:
            log.warning("endpoint %s: %s; it is tried again until it answers", endpoint, state)
        elif before != _TRYING:
            log.warning("endpoint %s: linked", endpoint)
        with self._lock:
            self.states[endpoint] = state
            self._changed.notify_all()


def first_to_answer(
    endpoints: Iterable[str], timeout_s: float, knock_s: float
) -> tuple[str | None, dict[str, str]]:
    """Knock at all of them until one answers: return it, or None, and why the others do not.

    Each is tried at least once. Of those that answer at once, it is the first that was named.
    """
    states = dict.fromkeys(endpoints, _TRYING)
    answered: list[str] = []
    waiting = set(states)
    deadline_s = time.monotonic() + timeout_s
    is_over = threading.Event()
    lock = threading.Lock()
    changed, names = Changed(lock), HostNames()

    def try_one(endpoint: str) -> None:
        while endpoint in waiting:
            state = _answer(endpoint, names, knock_s)
            with lock:
                states[endpoint] = state or LINKED
                if not state:
                    answered.append(endpoint)
                if not state or time.monotonic() + _AGAIN_S > deadline_s or is_over.is_set():
                    waiting.discard(endpoint)
                changed.notify_all()
            is_over.wait(_AGAIN_S)

    for endpoint in states:
        threading.Thread(
            target=try_one, args=(endpoint,), name="infobus-endpoint", daemon=True
        ).start()
    changed.wait_for(lambda: answered or not waiting, timeout_s + knock_s)
    changed.wait_for(lambda: next(iter(states)) in answered or not waiting, _AT_ONCE_S)
    is_over.set()
    with lock:
        return min(answered, key=list(states).index, default=None), dict(states)


def no_link_at(endpoint: str) -> str:
    """What may be wrong where somebody answers, but no link comes about."""
    if protocol_of(endpoint) in SECURE:
        return f"{_ANSWERS}, but makes no link: do the certificates of both sides fit?"
    return f"{_ANSWERS}, but makes no link: is it a node of a bus?"


def _answer(endpoint: str, names: HostNames, timeout_s: float) -> str:
    """Why nobody accepts a connection there; empty if somebody does, or if it cannot be tried."""
    where = host_and_port(endpoint)
    if where is not None and (problem := names.problem(where[0])):
        return problem
    try:
        _knock(endpoint, names, timeout_s)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _knock(endpoint: str, names: HostNames, timeout_s: float) -> None:
    where = host_and_port(endpoint)
    if protocol_of(endpoint) == UNIX:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(timeout_s)
            caller.connect(address_of(endpoint))
    elif where is not None and protocol_of(endpoint) not in _NO_ANSWER:
        host, port = where
        *others, last = names.addresses(host)
        for address in others:
            with contextlib.suppress(OSError):
                return socket.create_connection((address, port), timeout_s).close()
        socket.create_connection((last, port), timeout_s).close()


def is_local(host: str) -> bool:
    """Whether `host` is this one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind(address)
    except OSError:
        return False
    return True


def is_own(endpoint: str, listen: Iterable[str]) -> bool:
    """Whether `endpoint` itself reaches what listens at `listen`."""
    where = host_and_port(endpoint)
    return where is not None and any(
        there[1] == where[1] and (there[0] == where[0] or _is_anywhere(there[0], where[0]))
        for there in map(host_and_port, listen)
        if there is not None
    )


def _is_anywhere(listening: str, host: str) -> bool:
    return listening in ("0.0.0.0", "::") and is_local(host)


def why_not_listening(endpoint: str) -> str:
    """Why nobody can listen at this endpoint now; empty if it can be tried."""
    where = host_and_port(endpoint)
    if where is None or not where[1] or protocol_of(endpoint) in _NO_ANSWER:
        return ""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            *where, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""
