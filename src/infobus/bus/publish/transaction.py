"""Transactions: events that are delivered together, in order, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from infobus.errors import UsageError
from infobus.headers import HeaderValue, encode
from infobus.objects import codec
from infobus.protocols.frames.transactions import EVENTS_COUNT_MAX
from infobus.subjects import check_publishable


class Draft(NamedTuple):
    """An event of a transaction that has not been sent yet."""

    subject: str
    obj: Any
    type: int
    body: bytes
    types: tuple[int, ...]
    headers: bytes


class TransactionBlock:
    """Events that are being put together. Made by `Bus.transaction`."""

    def __init__(self, publish_group: Callable[[list[Draft]], None], space: str) -> None:
        self._publish_group = publish_group
        self._space = space  # that the subjects are in
        self._drafts: list[Draft] | None = None  # before the block and after it
        self._bytes = 0

    def publish(
        self, subject: str, obj: Any, *, headers: Mapping[str, HeaderValue] | None = None
    ) -> None:
        """Add an event, to leave with the others when the block ends. The object is copied.

        Raises:
            BadSubject: The subject is malformed or holds a wildcard.
            BadValue: The object, or a header, cannot be sent.
            UsageError: The block has ended, or the transaction has become too large.
        """
        check_publishable(subject)
        if self._drafts is None:
            raise UsageError("publish within the block: `with bus.transaction() as tx: ...`")
        type_, body, types = codec.encode(obj)
        told = encode(headers)
        self._bytes += len(body) + len(told)
        if len(self._drafts) == EVENTS_COUNT_MAX or self._bytes > codec.PAYLOAD_BYTES_MAX:
            raise UsageError(
                f"a transaction may have {EVENTS_COUNT_MAX} events and take "
                f"{codec.PAYLOAD_BYTES_MAX} bytes; this one would be larger"
            )
        self._drafts.append(Draft(self._space + subject, obj, type_, body, types, told))

    def __enter__(self) -> TransactionBlock:
        self._drafts = []
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        drafts, self._drafts = self._drafts, None
        if kind is None and drafts:
            self._publish_group(drafts)
