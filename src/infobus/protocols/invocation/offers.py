"""The data of served calls: offers, calls, their callers, and the server's effects."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

import msgspec
from msgspec import Struct, field

from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames import invocation as wire
from infobus.protocols.invocation.item_flow import Outflow

QUEUED, RUNNING, FINISHED = "queued", "running", "finished"

Answer = wire.Reply | wire.Failed | wire.Refused
Id = tuple[str, int]
"""A call: its caller's node, and its number there."""


class RunCall(Struct, frozen=True):
    """Run a call, and call `finished` when it is done."""

    id: Id
    call: wire.Call


class Claim(Struct, frozen=True):
    """Look up in the store whether a call that must run once has run, and call `claimed`."""

    id: Id
    call: wire.Call


class Stop(Struct, frozen=True):
    """Nobody waits for the call any more; it may stop."""

    id: Id
    offer: int


class Room(Struct, frozen=True):
    """The caller of a stream has room for more items."""

    id: Id
    offer: int


class Acknowledged(Struct, frozen=True):
    """The caller has the reply to a call that must run once."""

    once: str


class Drained(Struct, frozen=True):
    """A retired offer has finished all calls that it had begun."""

    offer: int


ServerEffects = list[
    ToPeer[wire.ServiceMessage] | RunCall | Claim | Stop | Room | Acknowledged | Drained | Complain
]


class Offer(Struct, eq=False):
    """A service under a subject, and how many calls it runs at a time."""

    id: int
    subject: str
    running_count_max: int
    queue_count_max: int
    rule: str = ""
    running: int = 0
    queue: deque[Incoming] = field(default_factory=deque)
    is_retired: bool = False

    @property
    def load(self) -> int:
        """How many calls run or wait."""
        return self.running + len(self.queue)


class Incoming(Struct, eq=False):
    """A call from its arrival until it is settled."""

    id: Id
    call: wire.Call
    offer: Offer
    state: str
    expires_s: float
    answer: Answer | None = None
    outflow: Outflow | None = None
    is_settled: bool = False  # while it runs: nobody waits for it any more
    has_slot: bool = False
    descriptors: list[bytes] = field(default_factory=list)  # of all items of a stream
    once: tuple[str, str] = ("", "")  # of a call that must run once: its id and its use


class CallsOfNode(Struct):
    """What a server remembers about the calls of one node."""

    top: int = 0
    missing: set[int] = field(default_factory=set)  # numbers below the top that have not arrived
    calls: dict[int, Incoming] = field(default_factory=dict)

    def is_new(self, number: int) -> bool:
        """Return whether a call of this number is new, and mark it as known."""
        if number <= self.top:
            if number not in self.missing:
                return False
            self.missing.remove(number)
            return True
        self.missing.update(range(self.top + 1, number))
        self.top = number
        return True


_arguments = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def use_of(subject: str, call: wire.Call) -> str:
    """Return what a call asks for: the operation, the subject, and a digest of the arguments.

    Arguments are the same in any order, so that `f(a=1, b=2)` and `f(b=2, a=1)` are.
    """
    digest = blake2b(digest_size=16)
    try:
        pieces = sorted(
            (name, bytes(value)) for name, value in _arguments.decode(call.arguments).items()
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pieces = [("", call.arguments)]
    for name, value in pieces:
        digest.update(b"%d %s %d " % (len(name), name.encode(), len(value)))
        digest.update(value)
    return f"{call.operation} of {subject!r} with the arguments {digest.hexdigest()}"
