"""What a durable consumer wants done, and the numbers it goes by."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.guaranteed.frames import Entry
from infobus.protocols.guaranteed.position import Saved

EXPIRED = "expired"
TOO_OFTEN = "delivered too often"


class Deliver(Struct, frozen=True):
    """Hand the event to the application, then call `settled` or `nacked`."""

    ledger: str
    entry: Entry
    deliveries: int  # this one included


class DeadLetter(Struct, frozen=True):
    """Publish the event on the dead-letter subject, guaranteed; then call `dead_lettered`.

    With ledger and number, so that whoever sees it there twice can tell. If it cannot be
    published, call `dead_letter_failed`.
    """

    ledger: str
    entry: Entry
    deliveries: int
    why: str


class Save(Struct, frozen=True):
    """Put on disk where the consumer stands in the ledger, in place of what was there."""

    ledger: str
    saved: Saved


class LostForGood(Struct, frozen=True):
    """Report that these numbers of the ledger, if they were wanted, can no longer be had."""

    ledger: str
    first: int
    last: int


class Rewound(Struct, frozen=True):
    """Tell the application that the ledger ends before what the consumer has settled in it.

    It was cut short, or is an older copy: under the same numbers it may hold other events now.
    So nothing of it is handed over.
    """

    ledger: str
    position: int
    detail: str


class UsedElsewhere(Struct, frozen=True):
    """Tell the application that `holder` uses the durable name, too, and close."""

    holder: str


ConsumerEffects = list[
    ToPeer
    | ToAll
    | Learn
    | Complain
    | Deliver
    | DeadLetter
    | Save
    | LostForGood
    | Rewound
    | UsedElsewhere
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTerms:
    """The numbers of the consuming half."""

    announce_s: float = 5.0
    repeat_s: float = 0.5  # a question that is not answered; doubles
    repeat_s_max: float = 5.0
    tell_s: float = 1.0  # progress is told after so long, if no question tells it before
    patience_s: float = 30.0  # longer than a server's lease: then the name is really in use
    held_count_max: int = 1_024  # events held, of all ledgers
    held_bytes_max: int = 16 * 1024 * 1024
    above_count_max: int = 10_000  # settled out of turn, of one ledger
    out_count_max: int = 256  # in the application's hands
    ledgers_count_max: int = 10_000
    deliveries_max: int = 5
    careful_s: float = 1.0  # each delivery of a stream's first moments is counted on disk
    pause_s: float = 0.1  # before a nacked event comes again; doubles
    pause_s_max: float = 30.0
