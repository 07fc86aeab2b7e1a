"""Looks up host names, and makes nobody wait: the answer may take seconds, or never come."""

from __future__ import annotations

import socket
import threading

_UNDER_WAY = "its host name is still being looked up"


class HostNames:
    """What is known of some host names; each is looked up by a thread of its own, when needed."""

    def __init__(self) -> None:
        self._addresses: dict[str, list[str]] = {}
        self._problems: dict[str, str] = {}

    def addresses(self, host: str) -> list[str]:
        """The addresses of `host` that are known by now; asks for them if nobody has."""
        if host not in self._addresses and host not in self._problems:
            self._problems[host] = _UNDER_WAY
            threading.Thread(
                target=self._look_up, args=(host,), name="infobus-host-name", daemon=True
            ).start()
        return self._addresses.get(host, [])

    def problem(self, host: str) -> str:
        """Why no address of `host` is known, empty if one is. Looks it up again if that failed."""
        if self.addresses(host):
            return ""
        problem = self._problems.get(host, "")
        if problem != _UNDER_WAY:
            self._problems.pop(host, None)  # names may come to be known
        return problem

    def _look_up(self, host: str) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            self._problems[host] = f"its host name cannot be resolved ({error.strerror})"
            return
        self._addresses[host] = [str(address[0]) for *_, address in found]
        self._problems.pop(host, None)
