"""A subscription as jobs are told of it; without what is needed to match many of them."""

from __future__ import annotations

from msgspec import Struct

from infobus.filters import compile
from infobus.subjects import check_pattern


class Subscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody may ask for: a subject and a filter, as in `subscribe`.

    Raises:
        BadSubject: The subject is no pattern.
        BadFilter: The filter is none.
    """

    subject: str = ">"
    where: str | None = None

    def __post_init__(self) -> None:
        check_pattern(self.subject)
        if self.where is not None:
            compile(self.where)
