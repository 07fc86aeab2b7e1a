"""How long a node waits, and for what: every time span of the bus, as one value.

`connect(patience=Patience(...))`, or the table `[patience]` of `infobus.toml`, changes any of
them. `docs/limits.md` lists them with what they protect.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from infobus.errors import UsageError

_FREEZE_PART_OF_LEASE = 0.4  # well below: others may take a silent node for dead a little earlier
_FREEZE_TICKS = 2  # a tick that is a little late is no freeze
_GIVE_UP_S = 5.0
_LEASES = 2  # a path is found dead after one, at either end, and a little earlier or later


class Patience(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time spans in seconds; the defaults suit people and programs on one host."""

    # Links and peers.
    lease_s: float = 1.0  # a link that is silent for so long is closed
    freeze_s: float | None = None  # a node this late may have been taken for dead; see `frozen_s`
    stranger_s: float = 30.0  # after that, whom it meets first may have begun while it stood still
    handshake_s: float = 1.0  # to open a link, and for neighbours that are known to be there
    search_s: float = 0.2  # `connect`, for nodes that only port or multicast can find
    reach_s: float = 5.0  # `connect`, for one of the endpoints it names; 0: do not wait for them
    sync_s: float = 2.0  # `connect`, for the answers of the nodes that it found
    absent_s: float = 3.0  # unseen for no longer, a peer keeps its rows and its place
    give_up_s: float | None = None  # without a sign of life, its holes are given up; `given_up_s`
    return_s: float = 0.3  # a daemon that a program has lost may come back within that time
    move_s: float = 5.0  # a daemon that has come is moved to after one to two times as long
    tick_s: float = 0.1  # how often protocols look at what is due
    # Reliable delivery.
    stall_s: float = 2.0  # a receiver that confirms nothing holds senders no longer than this
    hold_s: float = 60.0  # nor one that asks to wait (`block`), unless its consumer takes something
    beat_s: float = 0.5  # between heartbeats, while something is unconfirmed
    idle_beat_s: float = 2.0
    tell_s: float = 0.05  # rows that nobody answers are told again; doubles up to 1 s
    # Publishing and subscribing.
    send_s: float = 10.0  # `publish`, for receivers that do not keep up
    subscribe_s: float = 2.0  # `subscribe` and `change_filter`, for the answers of all nodes
    close_s: float = 2.0  # `close`, for receivers to confirm the last events
    handlers_s: float = 2.0  # `close` and the end of the program, for callbacks that run
    pace_s: float = 2.0  # a full queue holds its senders for so long, then drops the oldest
    stuck_s: float = 0.5  # and for so long, if its consumer takes nothing at all
    type_s: float = 1.0  # an event waits for the descriptor of its type
    types_s: float = 1.0  # `types`, for the answers of all nodes
    state_s: float = 2.0  # a newcomer waits for producers' initial state
    policy_s: float = 1.0  # a member of a group, for its manager's policy and answers
    # Guaranteed delivery.
    adopt_s: float = 2.0  # between looks for ledgers that nobody owns
    prune_s: float = 30.0  # between prunings of ledgers
    # Services.
    call_s: float = 10.0  # a call, if its caller says nothing else
    answers_s: float = 0.25  # a caller waits for more servers to answer
    discovery_s: float = 1.0  # `who_is_out_there`, and a leaving server, for all answers

    @classmethod
    def realtime(cls) -> Patience:
        """For programs that must hear of a dead node within 0.3 s; it costs more ticks."""
        return cls(lease_s=0.3, tick_s=0.03)

    @classmethod
    def wan(cls) -> Patience:
        """For links with delays of up to half a second and losses; the dead are noticed late."""
        return cls(
            lease_s=10.0,
            handshake_s=5.0,
            search_s=2.0,
            reach_s=15.0,
            sync_s=6.0,
            give_up_s=30.0,
            stall_s=10.0,
            beat_s=1.0,
            tell_s=0.5,
            send_s=30.0,
            subscribe_s=6.0,
            close_s=6.0,
            type_s=3.0,
            types_s=3.0,
            state_s=6.0,
            policy_s=3.0,
            answers_s=1.5,
            discovery_s=3.0,
        )

    @property
    def frozen_s(self) -> float:
        """So long after its last tick, a node holds that it stood still: `freeze_s` if given.

        >>> Patience().frozen_s, Patience(lease_s=5.0).frozen_s, Patience(freeze_s=1.0).frozen_s
        (0.4, 2.0, 1.0)
        """
        if self.freeze_s is not None:
            return self.freeze_s
        return max(_FREEZE_PART_OF_LEASE * self.lease_s, _FREEZE_TICKS * self.tick_s)

    @property
    def given_up_s(self) -> float:
        """After so long without a sign of life, a sender is given up: `give_up_s` if given.

        That is later than any sender gives this node up: who was given up hears it from the other.

        >>> Patience().given_up_s, Patience(lease_s=10.0).given_up_s
        (5.0, 23.0)
        """
        if self.give_up_s is not None:
            return self.give_up_s
        return max(_GIVE_UP_S, self._place_s)

    @property
    def _place_s(self) -> float:
        return self.absent_s + _LEASES * self.lease_s

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("freeze_s", "give_up_s") and value is None:
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < inf:
                raise UsageError(f"patience: {name} is {value!r}; expected a number of seconds")
        if not self.tick_s:
            raise UsageError("patience: tick_s is 0; a node would do nothing but look at its clock")
        if self.given_up_s < self._place_s:
            raise UsageError(
                f"patience: give_up_s is {self.give_up_s!r}; expected at least absent_s and "
                f"{_LEASES} lease_s, {self._place_s:g} in all: others keep this node's place for "
                "so long. Give less of these, or leave give_up_s out"
            )


DEFAULT_PATIENCE = Patience()

LINKS = {"lan": Patience(), "wan": Patience.wan(), "realtime": Patience.realtime()}
"""The patience that suits each kind of link: what `connect(link=...)` stands for."""
