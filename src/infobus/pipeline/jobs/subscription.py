"""A subscription in the options of a job, without the code that matches many of them."""

from __future__ import annotations

from msgspec import Struct

from infobus.filters import compile
from infobus.subjects import check_pattern


class TrialSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for events: a subject and a filter, as in `subscribe`.

    Raises:
        BadSubject: The subject is not a pattern.
        BadFilter: The filter is invalid.
    """

    subject: str = ">"
    where: str | None = None

    def __post_init__(self) -> None:
        check_pattern(self.subject)
        if self.where is not None:
            compile(self.where)
