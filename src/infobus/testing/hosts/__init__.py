"""Several hosts on one machine, for tests: with networks of their own, or side by side on loopback.

>>> hosts = Hosts(3)  # doctest: +SKIP
>>> with hosts as (one, two, three):  # doctest: +SKIP
...     listener = two.popen([sys.executable, "listener.py"])
...     one.run([sys.executable, "publisher.py"], check=True)
...     hosts.cut(one, two)
"""

from infobus.testing.hosts.host import AnyHost
from infobus.testing.hosts.loopback import LoopbackHost, LoopbackHosts
from infobus.testing.hosts.networks import Hosts, NetworkHost, Traffic, what_is_missing
from infobus.testing.hosts.routers import HostRouters

__all__ = [
    "AnyHost",
    "HostRouters",
    "Hosts",
    "LoopbackHost",
    "LoopbackHosts",
    "NetworkHost",
    "Traffic",
    "what_is_missing",
]
