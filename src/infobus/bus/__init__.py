"""The node: wires objects, protocols and an engine together; the public face of the bus."""

from infobus.bus.bus import Bus
from infobus.bus.connecting import connect
from infobus.bus.event import Event, Transaction
from infobus.bus.outlet import Batch
from infobus.bus.stats import Stats
from infobus.bus.subscription import Subscription

__all__ = ["Batch", "Bus", "Event", "Stats", "Subscription", "Transaction", "connect"]
