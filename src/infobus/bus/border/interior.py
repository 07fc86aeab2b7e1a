"""The parts of a node, for programs of the house that do more than publish and subscribe."""

from __future__ import annotations

from typing import NamedTuple

from infobus.bus.guaranteed import Guaranteed
from infobus.bus.lifetime import Lifetime
from infobus.bus.publish.routing import Routing
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.services import Services


class Interior(NamedTuple):
    """The parts of a node. Made by `interior` of `bus/bus.py`."""

    runtime: Runtime
    routing: Routing
    lifetime: Lifetime
    guaranteed: Guaranteed
    services: Services
