"""What carries frames between nodes. An engine knows keys and bytes, never subjects or objects.

`base` states the interface; `zenoh` speaks to other processes; `memory` joins nodes within one
process, over a simulated network with seeded faults or over a plain live one. What every
engine promises is written in `base` and checked by `infobus.testing.conformance.engines`.
"""

from infobus.engines.base import Declaration, Engine

__all__ = ["Declaration", "Engine"]
