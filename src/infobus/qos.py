"""Quality of service: what programs need to set it up.

`Classes`, `Marks`, `Upgrade` and `Limits` are settings; `Policy` and `QosManager` are for whoever
manages a group of nodes; `Admission` and `QosMember` are a node's own part in it.
"""

from infobus.bus.qos_group import QosManager, QosMember
from infobus.errors import QosRefused
from infobus.protocols.qos.admission import Admission, Load
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Limits, Marks, Upgrade
from infobus.protocols.qos.policy import Policy

__all__ = [
    "DEFAULT_CLASSES",
    "Admission",
    "Classes",
    "Limits",
    "Load",
    "Marks",
    "Policy",
    "QosManager",
    "QosMember",
    "QosRefused",
    "Upgrade",
]
