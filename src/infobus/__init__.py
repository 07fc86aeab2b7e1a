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

import os
from typing import TYPE_CHECKING, Any

if not hasattr(os, "register_at_fork"):
    raise ImportError(
        "infobus needs Linux or macOS: it shares files and sockets between processes in ways that "
        "this system does not have. On Windows, use the Windows Subsystem for Linux"
    )

from infobus.bounds import Bounds
from infobus.bus import Batch, Bus, Event, Stats, Subscription, Transaction, connect
from infobus.bus.tags.tags import Tag
from infobus.errors import (
    Backpressure,
    BadCall,
    BadCredential,
    BadFilter,
    BadFrame,
    BadPolicy,
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
    MismatchError,
    NoRight,
    NoServer,
    NoTags,
    NotAllowed,
    NotCreator,
    PeerError,
    QosRefused,
    RemoteError,
    SlowConsumer,
    StoreCorrupt,
    StoreError,
    StoreFull,
    TagExists,
    TdlError,
    TdlLimit,
    Unstable,
    UsageError,
)
from infobus.headers import Headers
from infobus.objects import (
    Attribute,
    DataObject,
    Operation,
    Property,
    Type,
    define_type,
    id_of,
    sent_values,
    type_of,
)
from infobus.patience import Patience
from infobus.printable import spell_out_logs
from infobus.protocols.qos.classes import Limits

if TYPE_CHECKING:
    from infobus.bus import aio as aio
    from infobus.bus.durable.dead_letters import DeadLetter
    from infobus.bus.durable.subscription import DurableEvent, DurableSubscription
    from infobus.bus.membership.role import MembershipRole
    from infobus.bus.membership.view import ExcludedView, MembersView
    from infobus.bus.rights.audit import Audit
    from infobus.objects import describe
    from infobus.objects.json_forms import json_schema, to_dict, to_json
    from infobus.services import Service, current_call, idempotent

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "Audit",
    "Backpressure",
    "BadCall",
    "BadCredential",
    "BadFilter",
    "BadFrame",
    "BadPolicy",
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
    "ExcludedView",
    "Headers",
    "IncompatiblePeer",
    "LedgerInUse",
    "Limits",
    "LossError",
    "MembersView",
    "MembershipRole",
    "MismatchError",
    "NoRight",
    "NoServer",
    "NoTags",
    "NodeStats",
    "NotAllowed",
    "NotCreator",
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
    "Tag",
    "TagExists",
    "TdlError",
    "TdlLimit",
    "Transaction",
    "Type",
    "Unstable",
    "UsageError",
    "connect",
    "current_call",
    "define_type",
    "describe",
    "id_of",
    "idempotent",
    "json_schema",
    "sent_values",
    "to_dict",
    "to_json",
    "type_of",
]


spell_out_logs()

# Most programs serve nothing, keep nothing and print nothing, and importing is to be quick.
_LATE = {
    "Audit": "infobus.bus.rights.audit",
    "DeadLetter": "infobus.bus.durable.dead_letters",
    "DurableEvent": "infobus.bus.durable.subscription",
    "DurableSubscription": "infobus.bus.durable.subscription",
    "ExcludedView": "infobus.bus.membership.view",
    "MembersView": "infobus.bus.membership.view",
    "MembershipRole": "infobus.bus.membership.role",
    "Service": "infobus.services",
    "current_call": "infobus.services",
    "describe": "infobus.objects.printer",
    "NodeStats": "infobus.bus.statistics.records",
    "idempotent": "infobus.services",
    "json_schema": "infobus.objects.json_forms",
    "to_dict": "infobus.objects.json_forms",
    "to_json": "infobus.objects.json_forms",
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        from infobus.bus import aio  # late: most programs have no event loop

        return aio
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
