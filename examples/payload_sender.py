"""Publish objects of your own classes: dataclasses, pydantic models, msgspec structs, text, bytes.

Start payload_receiver.py in another terminal first.
"""

import datetime
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID, uuid4

import msgspec

import infobus


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass
class Order:
    number: int
    side: Side
    lines: list[Line]
    day: datetime.date
    tags: set[str] = field(default_factory=set)
    key: UUID | None = None


class Tick(msgspec.Struct):
    symbol: str
    price: Decimal


with infobus.connect() as bus:
    day = datetime.date(2026, 11, 19)
    line = Line("bolt", Decimal("1.10"))
    bus.publish("orders.new", Order(1, Side.BUY, [line], day, {"rush"}, uuid4()))
    bus.publish("orders.new", Order(2, Side.SELL, [], day))
    bus.publish("ticks.gm", Tick("GM", Decimal("41.50")))
    bus.publish("notes.hello", "hello")
    bus.publish("notes.raw", b"\x00\x01")
