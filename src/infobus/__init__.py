"""An event bus for Python programs: typed objects, found by subject, delivered reliably.

>>> import infobus
>>> class Story(infobus.DataObject):
...     headline: str
>>> with infobus.connect("readme", engine="memory") as bus:
...     sub = bus.subscribe("news.>")
...     bus.publish("news.equity.gmc", Story(headline="GM up"))
...     print(next(sub).data.headline)
GM up
"""

from infobus.bus import Batch, Bus, Event, Stats, Subscription, Transaction, connect
from infobus.errors import (
    Backpressure,
    BadFilter,
    BadFrame,
    BadSubject,
    BadType,
    BadValue,
    BusClosed,
    BusError,
    DeliveryError,
    EngineError,
    IncompatiblePeer,
    LossError,
    PeerError,
    SlowConsumer,
    UsageError,
)
from infobus.objects import (
    Attribute,
    DataObject,
    Operation,
    Property,
    Type,
    define_type,
    describe,
    id_of,
    type_of,
)

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "Backpressure",
    "BadFilter",
    "BadFrame",
    "BadSubject",
    "BadType",
    "BadValue",
    "Batch",
    "Bus",
    "BusClosed",
    "BusError",
    "DataObject",
    "DeliveryError",
    "EngineError",
    "Event",
    "IncompatiblePeer",
    "LossError",
    "Operation",
    "PeerError",
    "Property",
    "SlowConsumer",
    "Stats",
    "Subscription",
    "Transaction",
    "Type",
    "UsageError",
    "connect",
    "define_type",
    "describe",
    "id_of",
    "type_of",
]
