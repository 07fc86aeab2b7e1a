"""The numbers that nodes agree on, and what a node remembers of routes and of other nodes."""

from __future__ import annotations

from msgspec import Struct, field

from infobus.protocols.frames import wire
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
    hold_s: float = 60.0  # nor one that says it is held, unless it confirms something meanwhile
    ack_count: int = 8_192  # a quarter of the window
    ack_bytes: int = 8 * 1024 * 1024
    beat_s: float = 0.5  # while something is unconfirmed
    idle_beat_s: float = 2.0
    tell_s: float = 0.05  # rows that nobody answers are told again; doubles up to 1 s
    absent_s: float = 3.0  # unseen for no longer, a peer keeps its rows and its place
    give_up_s: float = 5.0  # without a sign of life: its open holes are given up
    freeze_s: float = 0.4  # without a tick of its own, a node may have been taken for dead
    stranger_s: float = 30.0  # after that, whom it meets first may have begun while it stood still
    peers_count_max: int = 10_000  # remembered, dead ones included
    strangers_count_max: int = 100  # names that are heard, and whose token was never seen
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
    unseen_s: float | None = None  # when its token disappeared; None: it is seen, or was never
    died_s: float | None = None  # somebody has said that it died
    given_up: bool = False
    unreachable: bool = False  # that has been told to the subscriptions
    refused: bool = False  # it speaks another version, or has another depth: do not wait for it
    silent: bool = False  # it has not answered in time: do not wait for it until it does
    application: str = ""  # the name of its program, if it has told one
    tells_seen: bool = False  # it says whom it sees when it is asked
    bye: wire.Bye | None = None  # it said goodbye, or somebody did in its name: its token stays
    bye_at_s: float = 0.0
    left: bool = False  # it said goodbye and its token is gone: whatever still comes is late
    # Its rows at this node.
    welcomed: int = 0  # the welcome that this node gave it last
    told: wire.Interest | None = None  # its rows, which count once its token is seen
    ask_rows_at_s: float = 0.0  # when rows that are missed will be asked for again
    # This node's rows at the peer.
    welcome: int = 0  # the welcome that the peer gave us last
    welcome_version: int = 0  # of our rows when it did
    welcome_at_s: float = 0.0
    confirmed: int = 0  # version of our rows that the peer holds
    cut_version: int = 0  # version it held when it gave us up; 0 once the loss is reported
    doubt_version: int = 0  # our version when we stood still; 0 once it is known to know us
    cut_lanes: dict[str, int] = field(default_factory=dict)  # where their streams broke off
    restarts: dict[str, int] = field(default_factory=dict)  # lanes begun anew, by version
    unsure: bool = False  # it was gone for a while, and may have given us up: wait for its word
    unsure_s: float = 0.0  # since when
    wants_rows: bool = False  # it has asked for all of them
    tell_at_s: float = 0.0
    tell_wait_s: float = 0.0
    # Its events.
    nexts: dict[str, int] = field(default_factory=dict)  # where lanes without receiver start
    receivers: dict[str, Receiver] = field(default_factory=dict)
    unwanted: set[str] = field(default_factory=set)  # lanes heard of, not subscribed to
    best_effort: dict[str, int] = field(default_factory=dict)  # lane -> last event's number
    cut_short: list[str] = field(default_factory=list)  # lanes in use when its token went
    had: set[str] = field(default_factory=set)  # lanes without receiver on which events came
    refused_count: int = 0  # of what came on more lanes than are taken

    @property
    def is_gone(self) -> bool:
        """Whether it has left, or is known to have died: it cannot be out of reach."""
        return self.left or self.died_s is not None

    @property
    def is_awaited(self) -> bool:
        """Whether its answers are waited for."""
        return self.alive and not (self.refused or self.silent or self.bye is not None)


def make_room(peers: dict[str, Peer], count_max: int) -> list[str]:
    """Forget peers that were given up until there is room for one more, if that is possible."""
    forgotten: list[str] = []
    while len(peers) >= count_max:
        dead = next((name for name, peer in peers.items() if peer.given_up), None)
        if dead is None:
            break
        del peers[dead]
        forgotten.append(dead)
    return forgotten


_PARTED_COUNT_MAX = 100


class Parted(Struct):
    """The nodes that were given up last, of which each route tells those that still listen.

    One that was only cut off, or stood still, may hear later events that others wanted, and cannot
    know that it was left out of some before. So the first frame after that names it. Another
    thread reads: the state is replaced as a whole.
    """

    state: tuple[int, tuple[tuple[int, str], ...]] = (0, ())  # how many there were; the last ones

    def add(self, name: str) -> None:
        """A node is given up."""
        count, names = self.state
        count += 1
        kept = [one for one in names if one[1] != name][1 - _PARTED_COUNT_MAX :]
        self.state = (count, (*kept, (count, name)))

    def discard(self, name: str) -> None:
        """A node is here again, and knows."""
        count, names = self.state
        self.state = (count, tuple(one for one in names if one[1] != name))


class Route(Sender, kw_only=True):
    """A lane's sender, and what has gone out on it beside events."""

    types: set[int] = field(default_factory=set)  # whose descriptors were sent
    parted: Parted = field(default_factory=Parted)
    parted_count: int = 0  # of those, told

    def take_parted(self) -> tuple[str, ...]:
        """The nodes given up since the last frame; for the next one."""
        count, names = self.parted.state
        if count == self.parted_count:
            return ()
        told, self.parted_count = self.parted_count, count
        return tuple(name for at, name in names if at > told)

    @classmethod
    def on(cls, terms: Terms, parted: Parted) -> Route:
        """A new route, with the window that was agreed on."""
        return cls(
            parted=parted,
            window_count_max=terms.window_count_max,
            window_bytes_max=terms.window_bytes_max,
            stall_s=terms.stall_s,
            hold_s=terms.hold_s,
        )
