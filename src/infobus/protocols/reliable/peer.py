"""The numbers that nodes agree on, and what a node remembers of routes and of other nodes."""

from __future__ import annotations

from msgspec import Struct, field

from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Limits, Upgrade
from infobus.protocols.reliable.channel import Receiver, Sender

DEFAULT_UPGRADE = Upgrade()
NO_LIMITS = Limits()


class Terms(Struct, frozen=True, kw_only=True):
    """The numbers that all guarantees are stated in."""

    depth: int = 1  # elements of a subject that name its channel; equal on the whole bus
    window_count_max: int = 32_768
    window_bytes_max: int = 64 * 1024 * 1024
    stall_s: float = 2.0  # a receiver that confirms nothing holds senders no longer than this
    ack_count: int = 8_192  # a quarter of the window
    ack_bytes: int = 8 * 1024 * 1024
    beat_s: float = 0.5  # while something is unconfirmed
    idle_beat_s: float = 2.0
    tell_s: float = 0.05  # rows that nobody answers are told again; doubles up to 1 s
    give_up_s: float = 5.0  # without a sign of life: its rows and its open holes are given up
    freeze_s: float = 0.4  # without a tick of its own, a node may have been taken for dead
    stranger_s: float = 30.0  # after that, whom it meets first may have begun while it stood still
    peers_count_max: int = 10_000  # remembered, dead ones included
    lanes_count_max: int = 50_000  # on which one peer's events are taken in
    rows_count_max: int = 10_000  # told by this node; past it, patterns are widened
    filters_count_max: int = 64  # told of one pattern; past it, they are reduced
    spare_count_max: int = 10_000  # rows held; past it, only those of channels published on
    classes: Classes = DEFAULT_CLASSES  # equal on the whole bus
    upgrade: Upgrade | None = DEFAULT_UPGRADE  # of classes that starve in a queue
    limits: Limits = NO_LIMITS  # of what is taken from any one peer


class Peer(Struct):
    """What this node knows of another."""

    alive: bool = True  # its token is seen; one that is merely heard is served all the same
    heard_at_s: float = 0.0  # its last frame, or the moment its token disappeared
    given_up: bool = False
    refused: bool = False  # it speaks another version, or has another depth: do not wait for it
    left: bool = False  # it said goodbye: whatever still comes in its name is late
    # Its rows at this node.
    welcomed: int = 0  # the welcome that this node gave it last
    ask_rows_at_s: float = 0.0  # when rows that are missed will be asked for again
    # This node's rows at the peer.
    welcome: int = 0  # the welcome that the peer gave us last
    confirmed: int = 0  # version of our rows that the peer holds
    cut_version: int = 0  # version it held when it gave us up; 0 once the loss is reported
    doubt_version: int = 0  # our version when we stood still; 0 once it is known to know us
    cut_lanes: dict[str, int] = field(default_factory=dict)  # where their streams broke off
    restarts: dict[str, int] = field(default_factory=dict)  # lanes begun anew, by version
    wants_rows: bool = False  # it has asked for all of them
    tell_at_s: float = 0.0
    tell_wait_s: float = 0.0
    # Its events.
    nexts: dict[str, int] = field(default_factory=dict)  # where lanes without receiver start
    receivers: dict[str, Receiver] = field(default_factory=dict)
    unwanted: set[str] = field(default_factory=set)  # lanes heard of, not subscribed to
    best_effort: dict[str, int] = field(default_factory=dict)  # lane -> last event's number
    refused_count: int = 0  # of what came on more lanes than are taken

    @property
    def is_awaited(self) -> bool:
        """Whether its answers are waited for."""
        return self.alive and not self.refused


def make_room(peers: dict[str, Peer], count_max: int) -> None:
    """Forget peers that were given up until there is room for one more, if that is possible."""
    while len(peers) >= count_max:
        dead = next((name for name, peer in peers.items() if peer.given_up), None)
        if dead is None:
            return
        del peers[dead]


class Route(Sender, kw_only=True):
    """A lane's sender, and the types whose descriptors have gone out on it."""

    types: set[int] = field(default_factory=set)

    @classmethod
    def on(cls, terms: Terms) -> Route:
        """A new route, with the window that was agreed on."""
        return cls(
            window_count_max=terms.window_count_max,
            window_bytes_max=terms.window_bytes_max,
            stall_s=terms.stall_s,
        )
