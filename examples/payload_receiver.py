"""Receive objects as instances of your own classes, and others that you have no class for."""

import datetime
import enum
from dataclasses import dataclass, field
from decimal import Decimal

import infobus


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass
class Order:  # the same type as the sender's, although this program needs less of it
    number: int
    side: Side
    lines: list[Line]
    day: datetime.date
    tags: set[str] = field(default_factory=set)


with infobus.connect() as bus:
    orders = bus.subscribe("orders.>", type=Order, where='side == "buy"')
    ticks = bus.subscribe("ticks.>")
    notes = bus.subscribe("notes.>")  # its own: no order is promised between channels
    print("ready", flush=True)

    order = orders.receive(30).data
    assert isinstance(order, Order) and order.side is Side.BUY
    print(order)

    tick = ticks.receive(30).data  # no class here: a data object with the same attributes
    print(tick.symbol, repr(tick.price))
    print(notes.receive(30).data, notes.receive(30).data)
