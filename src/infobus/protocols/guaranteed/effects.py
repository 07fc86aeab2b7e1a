"""The effects of a durable consumer, and the numbers that govern it."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames.guaranteed import Entry, GuaranteedMessage
from infobus.protocols.guaranteed.position import Saved

EXPIRED = "expired"
TOO_OFTEN = "delivered too often"


class HandOver(Struct, frozen=True):
    """Hand the event to the application, then call `settled` or `nacked`."""

    ledger: str
    entry: Entry
    deliveries: int  # this one included


class Bury(Struct, frozen=True):
    """Publish the event on the dead-letter subject, guaranteed; then call `dead_lettered`.

    Ledger and number let a reader recognise a dead letter that appears twice. If it cannot be
    published, call `dead_letter_failed`.
    """

    ledger: str
    entry: Entry
    deliveries: int
    why: str


class Save(Struct, frozen=True):
    """Write the consumer's position in the ledger to disk, replacing the previous one."""

    ledger: str
    saved: Saved


class LostForGood(Struct, frozen=True):
    """Report that these numbers of the ledger, if wanted, can no longer be delivered."""

    ledger: str
    first: int
    last: int


class Rewound(Struct, frozen=True):
    """Report that the ledger ends before the position that the consumer has settled.

    It was cut short, or is an older copy: under the same numbers it may hold other events now. So
    nothing from it is delivered.
    """

    ledger: str
    position: int
    detail: str


class UsedElsewhere(Struct, frozen=True):
    """Report that `holder` uses the durable name, too, and close."""

    holder: str


OwnEffect = HandOver | Bury | Save | LostForGood | Rewound | UsedElsewhere
"""What only a durable consumer wants done."""

ConsumerEffects = list[
    ToPeer[GuaranteedMessage] | ToAll[GuaranteedMessage] | Learn | Complain | OwnEffect
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTerms:
    """The numbers of the consuming half."""

    announce_s: float = 5.0
    keepers_s: float = 0.5  # for the keepers of a site, before events are asked for
    keepers_count_max: int = 100
    repeat_s: float = 0.5  # a question that is not answered; doubles
    repeat_s_max: float = 5.0
    tell_s: float = 1.0  # progress is sent after so long, if no question sends it before
    patience_s: float = 30.0  # longer than a server's lease: then the name is really in use
    held_count_max: int = 1_024  # events held, of all ledgers
    held_bytes_max: int = 16 * 1024 * 1024
    above_count_max: int = 10_000  # settled out of turn, of one ledger
    out_count_max: int = 256  # in the application's hands
    ledgers_count_max: int = 10_000
    deliveries_max: int = 5
    hands_expired: bool = False  # else what has expired is buried
    careful_s: float = 1.0  # each delivery in a stream's first moments is counted on disk
    pause_s: float = 0.1  # before a nacked event is delivered again; doubles
    pause_s_max: float = 30.0
