"""How a node finds out that it stood still itself, and what it may have missed meanwhile.

A process that is stopped hears nothing, and after a while its peers take it for dead. Most of them
tell it when it is back, by a new welcome. Two kinds cannot: those that have left or died by then,
and those that began meanwhile and never knew it. So a node whose own tick comes late doubts every
peer that it knows until that has answered a newer version of its rows under the old welcome, which
proves that it was not given up, and a heartbeat has told what else is missing. If a peer goes
before that, a loss is reported. Whom the node meets
for the first time soon afterwards is treated like one that had given it up: where such a peer has
published before, a loss is reported, as far as that was wanted before the node stood still.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from infobus.protocols.reliable.peer import Peer


class Freezing(Struct):
    """What a node knows of its own standing still."""

    freeze_s: float
    stranger_s: float
    ticked_at_s: float = float("-inf")
    version: int = 0  # of the rows that were wanted when it last stood still
    until_s: float = float("-inf")  # so long those that are new may have begun meanwhile

    def is_over(self, now_s: float) -> bool:
        """Whether this node stood still until now. Says so once, and not before the first tick."""
        stood_still = self.freeze_s <= now_s - self.ticked_at_s < float("inf")
        if stood_still:
            self.ticked_at_s = now_s
        return stood_still

    def doubt(self, peers: Iterable[Peer], version: int, now_s: float) -> None:
        """Doubt that `peers` still held our rows, which were at `version`."""
        self.version, self.until_s = version, now_s + self.stranger_s
        for peer in peers:
            if peer.given_up or peer.refused:
                continue
            if peer.welcome:
                peer.doubt_version = version
            else:
                peer.cut_version = version

    def new_peer(self, now_s: float) -> Peer:
        """A peer that is heard of for the first time."""
        return Peer(alive=False, cut_version=self.version if now_s < self.until_s else 0)
