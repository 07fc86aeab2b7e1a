"""TDL: a small interpreted language, a subset of CLOS, whose classes are types of the bus."""

from infobus.objects.tdl.bus_functions import operate
from infobus.objects.tdl.interpreter import Interpreter
from infobus.objects.tdl.limits import Capabilities, Limits
from infobus.objects.tdl.travelling import forbid, permit

__all__ = ["Capabilities", "Interpreter", "Limits", "forbid", "operate", "permit"]
