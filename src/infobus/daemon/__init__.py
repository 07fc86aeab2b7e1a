"""The daemon of a host: a node that stays, and through which other hosts reach its programs.

host.py     `HostDaemon`: a node with more roles switched on; any process can embed it
homes.py    the homes that a daemon looks after, each kept by one daemon at a time
programs.py the programs of this host, and which of them have died
types.py    descriptors of types whose programs have gone
status.py   the status of a daemon, and how to ask for it
"""

from infobus.daemon.host import HostDaemon
from infobus.daemon.status import DaemonStatus, ask_daemons

__all__ = ["DaemonStatus", "HostDaemon", "ask_daemons"]
