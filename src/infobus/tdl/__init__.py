"""TDL: a small interpreted language, a subset of CLOS, whose classes are types of the bus."""

from infobus.tdl.interpreter import Interpreter
from infobus.tdl.library.bus_functions import operate
from infobus.tdl.limits import Capabilities, Limits
from infobus.tdl.travel import forbid, permit

__all__ = ["Capabilities", "Interpreter", "Limits", "forbid", "operate", "permit"]
