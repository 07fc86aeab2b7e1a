"""How much a node holds, and of what: the sizes and counts that bound it, as one value.

`connect(bounds=Bounds(...))`, or the table `[bounds]` of `infobus.toml`, changes any of them.
`docs/limits.md` lists them with what they protect.
"""

from __future__ import annotations

from msgspec import Struct

from infobus.errors import UsageError


class Bounds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts and bytes; the defaults suit a node that has a few hundred megabytes."""

    # Events on their way to other nodes.
    window_count_max: int = 32_768  # of one lane, sent and not confirmed by every receiver
    window_bytes_max: int = 64 * 1024 * 1024  # the same, in bytes
    ack_count: int = 8_192  # a receiver confirms after so many, or after a quarter of the window
    ack_bytes: int = 8 * 1024 * 1024  # or after so many bytes
    gather_bytes: int = 32 * 1024  # larger frames gain little, and make emergencies wait
    batch_bytes_max: int = 16 * 1024 * 1024  # that `connect(batch=...)` may ask for
    # Events that wait for a consumer.
    queue_count_max: int = 65_536  # in one subscription's queue, if `subscribe` says nothing else
    # Frames and calls that wait for this node.
    frames_count_max: int = 32_768  # of one engine key; past it, those of other keys wait, too
    calls_count_max: int = 100_000  # in one service's queue, if `serve` says nothing else
    # What is remembered.
    peers_count_max: int = 10_000  # other nodes, dead ones included
    strangers_count_max: int = 100  # names that are heard of, and whose node was never seen
    lanes_count_max: int = 50_000  # on which one peer's events are taken in
    rows_count_max: int = 10_000  # told by this node; past it, patterns are widened
    filters_count_max: int = 64  # told of one pattern; past it, they are reduced
    spare_count_max: int = 10_000  # rows held; past it, only those of channels published on
    decisions_count_max: int = 200_000  # subjects of which it is remembered who wants them
    audiences_count_max: int = 200_000  # the same, of subjects of events that come
    types_count_max: int = 10_000  # unknown, whose descriptors were asked for
    unread_bytes_max: int = 16 * 1024 * 1024  # long descriptors of types that wait to be read
    keys_count_max: int = 4_096  # of the engine, on which this node sends
    complaints_count_max: int = 1_000  # sources of bad input that are told apart

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"bounds: {name} is {value!r}; expected a number from 1 on")


DEFAULT_BOUNDS = Bounds()
