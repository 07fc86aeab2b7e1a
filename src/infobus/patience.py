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


class Patience(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time spans in seconds; the defaults suit people and programs on one host."""

    # Links and peers.
    lease_s: float = 1.0  # a link that is silent for so long is closed
    freeze_s: float | None = None  # a node this late may have been taken for dead; see `frozen_s`
    stranger_s: float = 30.0  # after that, whom it meets first may have begun while it stood still
    handshake_s: float = 1.0  # to open a link, and for neighbours that are known to be there
    search_s: float = 0.2  # `connect`, for nodes that only port or multicast can find
    sync_s: float = 2.0  # `connect`, for the answers of the nodes that it found
    give_up_s: float = 5.0  # without a sign of life, a peer's rows and open holes are given up
    tick_s: float = 0.1  # how often protocols look at what is due
    # Reliable delivery.
    stall_s: float = 2.0  # a receiver that confirms nothing holds senders no longer than this
    beat_s: float = 0.5  # between heartbeats, while something is unconfirmed
    idle_beat_s: float = 2.0
    tell_s: float = 0.05  # rows that nobody answers are told again; doubles up to 1 s
    # Publishing and subscribing.
    send_s: float = 10.0  # `publish`, for receivers that do not keep up
    subscribe_s: float = 2.0  # `subscribe` and `change_filter`, for the answers of all nodes
    close_s: float = 2.0  # `close`, for receivers to confirm the last events
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

    @property
    def frozen_s(self) -> float:
        """So long after its last tick, a node holds that it stood still: `freeze_s` if given.

        >>> Patience().frozen_s, Patience(lease_s=5.0).frozen_s, Patience(freeze_s=1.0).frozen_s
        (0.4, 2.0, 1.0)
        """
        if self.freeze_s is not None:
            return self.freeze_s
        return max(_FREEZE_PART_OF_LEASE * self.lease_s, _FREEZE_TICKS * self.tick_s)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "freeze_s" and value is None:
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < inf:
                raise UsageError(f"patience: {name} is {value!r}; expected a number of seconds")
        if not self.tick_s:
            raise UsageError("patience: tick_s is 0; a node would do nothing but look at its clock")


DEFAULT_PATIENCE = Patience()
