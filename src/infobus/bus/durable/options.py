"""The options of subscriptions, as types: `Bus.subscribe` says what each of them means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from infobus.bus.deliver.event_keys import ConsumerKeyOptions
from infobus.bus.deliver.subscription import OnLoss, OnMismatch, WhenFull
from infobus.errors import BusError

if TYPE_CHECKING:
    from infobus.filters import Filter


class PlainOptions(ConsumerKeyOptions, total=False):
    """What a subscription may be asked for beside its patterns, its callback and its type."""

    where: str | Filter | None
    test: bool
    on_loss: OnLoss
    on_mismatch: OnMismatch
    on_error: Callable[[BusError], object] | None
    when_full: WhenFull
    queue_count_max: int | None
    priority: str | None
    max_age: float | None
    max_rate: float | None
    timeout_s: float | None
    narrow: bool


class SubscribeOptions(PlainOptions, total=False):
    """The same, and the class or union of classes that `event.data` is of."""

    type: Any


class DurableOptions(ConsumerKeyOptions, total=False):
    """What a durable subscription may be asked for."""

    where: str | Filter | None
    test: bool
    on_mismatch: OnMismatch
    on_error: Callable[[BusError], object] | None
    acknowledge: Literal["automatic", "explicit"]
    ordered: bool
    deliveries_max: int
    live: bool | Iterable[str]
    type: Any
