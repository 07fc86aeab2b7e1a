"""Programs that have this folder on their path are patient with each other from their start on.

The defaults of the bus are for people: after a second of silence a node is taken for dead, and
nobody is waited for much longer. A machine that has much else to do stops a process for as long
as that at any moment, though, and then the bus rightly reports losses and looks for other servers.
Tests that are not about that wait longer, which costs nothing as long as nobody is stopped.
"""

import sys
from collections.abc import Callable
from typing import Any

PATIENCE_S = 10.0


def be_patient(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Wait for slow nodes; `put` may be that of a fixture which takes everything back."""
    from infobus import Patience, connect
    from infobus.engines.zenoh import engine, rendezvous, settings

    def put_default(function: Any, **defaults: Any) -> None:
        known = function.__kwdefaults__
        assert defaults.keys() <= known.keys(), function
        put(function, "__kwdefaults__", known | defaults)

    put(rendezvous, "_GATE_PATIENCE_S", PATIENCE_S)
    put(settings, "HANDSHAKE_MS", int(1000 * PATIENCE_S))
    put(engine, "_NEIGHBOURS_PATIENCE_S", PATIENCE_S)
    put(engine, "_TOKENS_PATIENCE_S", PATIENCE_S)
    put_default(engine.ZenohEngine.__init__, lease_ms=int(1000 * PATIENCE_S))
    spans = ("lease_s", "sync_s", "subscribe_s", "close_s", "types_s", "type_s")
    put_default(connect, patience=Patience(**dict.fromkeys(spans, PATIENCE_S)))


# Spark starts many programs that are on no bus, and need not wait for the imports above.
if __name__ == "sitecustomize" and not any("pyspark" in each for each in sys.orig_argv):
    be_patient()
