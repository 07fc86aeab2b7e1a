"""The node: wires objects, protocols and an engine together; the public face of the bus."""

from infobus.bus.bus import Bus
from infobus.bus.connect import connect
from infobus.bus.deliver.event import Event, Transaction
from infobus.bus.deliver.subscription import Subscription
from infobus.bus.publish.outlet import Batch
from infobus.bus.stats import Stats

__all__ = ["Batch", "Bus", "Event", "Stats", "Subscription", "Transaction", "connect"]
