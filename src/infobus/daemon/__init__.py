"""The daemon of a host: a node that stays, by which the programs of a host are found.

host.py     `HostDaemon`: a node with more roles switched on; any process can embed it
homes.py    the homes that a daemon looks after, each kept by one daemon at a time
programs.py the programs of this host, and which of them have died
types.py    descriptors of types whose programs have gone
status.py   what a daemon tells of itself, and how to ask it
"""

from infobus.daemon.host import HostDaemon
from infobus.daemon.status import DaemonStatus, ask_daemons

__all__ = ["DaemonStatus", "HostDaemon", "ask_daemons"]
