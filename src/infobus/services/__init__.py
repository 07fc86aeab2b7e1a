"""Services: objects that are found by subject, called by anyone, and replaced while they run.

service.py    `Service`, whose annotated methods are operations; what they are, as data
interface.py  operations, parameters, defaults: how they are written down and read
client.py     `bus.service(...)`: calls that look like method calls
runner.py     where operations run
exchange.py   joins the protocols of discovery and invocation to a node
arguments.py  arguments and results as bytes
sessions.py   private conversations with a supplier, at an agreed quality of service
"""

from infobus.services.client import Answer, PendingCall, ServiceClient, Stream
from infobus.services.discovery import Found, Watch
from infobus.services.interface import Interface, ServiceOperation
from infobus.services.served import Offered
from infobus.services.service import DynamicService, Service, current_call, idempotent

__all__ = [
    "Answer",
    "DynamicService",
    "Found",
    "Interface",
    "Offered",
    "PendingCall",
    "Service",
    "ServiceClient",
    "ServiceOperation",
    "Stream",
    "Watch",
    "current_call",
    "idempotent",
]
