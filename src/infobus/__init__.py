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

from typing import TYPE_CHECKING, Any

from infobus.bounds import Bounds
from infobus.bus import Batch, Bus, Event, Stats, Subscription, Transaction, connect
from infobus.errors import (
    Backpressure,
    BadCall,
    BadFilter,
    BadFrame,
    BadSubject,
    BadType,
    BadValue,
    BusClosed,
    BusError,
    CallCancelled,
    CallError,
    CallMayHaveRun,
    DeliveryError,
    DurableInUse,
    EngineError,
    IncompatiblePeer,
    LedgerInUse,
    LossError,
    NoServer,
    PeerError,
    QosRefused,
    RemoteError,
    SlowConsumer,
    StoreCorrupt,
    StoreError,
    StoreFull,
    TdlError,
    TdlLimit,
    UsageError,
)
from infobus.objects import (
    Attribute,
    DataObject,
    Operation,
    Property,
    Type,
    define_type,
    id_of,
    type_of,
)
from infobus.patience import Patience
from infobus.protocols.qos.classes import Limits

if TYPE_CHECKING:
    from infobus.bus.durable.dead_letters import DeadLetter
    from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
    from infobus.objects import describe
    from infobus.services import Service, current_call, idempotent

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "Backpressure",
    "BadCall",
    "BadFilter",
    "BadFrame",
    "BadSubject",
    "BadType",
    "BadValue",
    "Batch",
    "Bounds",
    "Bus",
    "BusClosed",
    "BusError",
    "CallCancelled",
    "CallError",
    "CallMayHaveRun",
    "DataObject",
    "DeadLetter",
    "DeliveryError",
    "DurableEvent",
    "DurableInUse",
    "DurableSubscription",
    "EngineError",
    "Event",
    "IncompatiblePeer",
    "LedgerInUse",
    "Limits",
    "LossError",
    "NoServer",
    "Operation",
    "Patience",
    "PeerError",
    "Property",
    "QosRefused",
    "RemoteError",
    "Service",
    "SlowConsumer",
    "Stats",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "Subscription",
    "TdlError",
    "TdlLimit",
    "Transaction",
    "Type",
    "UsageError",
    "connect",
    "current_call",
    "define_type",
    "describe",
    "id_of",
    "idempotent",
    "type_of",
]


# Most programs serve nothing, keep nothing and print nothing, and importing is to be quick.
_LATE = {
    "DeadLetter": "infobus.bus.durable.dead_letters",
    "DurableEvent": "infobus.bus.durable.subscription",
    "DurableSubscription": "infobus.bus.durable.subscription",
    "Service": "infobus.services",
    "current_call": "infobus.services",
    "describe": "infobus.objects.printer",
    "idempotent": "infobus.services",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
