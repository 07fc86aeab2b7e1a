"""TDL: a small interpreted language, a subset of CLOS, whose classes are types of the bus.

Text becomes forms (`reader`), forms become code (`compiler`, `forms`), and a `machine` runs the
code on its own stack, within `limits`. `travel` runs methods that were received with a type.
"""

from infobus.tdl.interpreter import Interpreter
from infobus.tdl.library.bus_functions import operate
from infobus.tdl.limits import Capabilities, ProgramLimits
from infobus.tdl.travel import forbid, permit

__all__ = ["Capabilities", "Interpreter", "ProgramLimits", "forbid", "operate", "permit"]
