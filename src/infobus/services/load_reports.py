"""What a node tells of itself without being asked: who waits here, and its servers' loads."""

from __future__ import annotations

import time

from infobus.objects import codec
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation import discovery
from infobus.protocols.invocation.caller import Caller
from infobus.protocols.invocation.discovery import Directory, DirectoryEffects
from infobus.protocols.invocation.effects import CallerEffects
from infobus.protocols.invocation.server import Server

CLIENT = "client"
"""The role of a node that has calls waiting for a server to appear."""


class Telling:
    """Compares now and then what is so with what was told."""

    def __init__(self, directory: Directory, caller: Caller, server: Server) -> None:
        self._directory = directory
        self._caller = caller
        self._server = server
        self._clients: dict[str, tuple[int, int]] = {}  # subject -> presence, calls that wait
        self._loads: dict[int, int] = {}

    def who_waits(self) -> DirectoryEffects:
        """New servers learn of clients with pending requests."""
        effects: DirectoryEffects = []
        for subject in {one.subject for one in self._caller.calls.values()} | set(self._clients):
            count = self._caller.waiting_count(subject)
            id, told = self._clients.get(subject, (0, 0))
            if count == told:
                continue
            info = codec.encode({"waiting": count})[1]
            presence = Presence(id or 1, 0, subject, CLIENT, time.time(), info)
            if not count:
                del self._clients[subject]
                effects += self._directory.withdraw(id)
            elif id:
                self._clients[subject] = (id, count)
                effects += self._directory.change(presence)
            else:
                presence, said = self._directory.announce(presence)
                self._clients[subject] = (presence.id, count)
                effects += said
        return effects

    def loads(self, now_s: float) -> CallerEffects:
        """Servers that balance among themselves must know each other's load."""
        effects: CallerEffects = []
        for offer in self._server.offers.values():
            if offer.rule == "balanced" and self._loads.get(offer.id, 0) != offer.load:
                self._loads[offer.id] = offer.load
                presence = self._directory.own.get(offer.id)
                if presence is not None:
                    changed = discovery.with_load(presence, offer.load)
                    effects += self._caller.noted(self._directory.change(changed), now_s)
        return effects
