"""Engines carry frames between nodes. An engine knows keys and bytes, never subjects or objects.

`base` states the interface; `zenoh` connects processes; `memory` connects nodes within one process,
over a simulated network with seeded faults or over a plain live one. `base` states the promises of
every engine, and `infobus.testing.conformance.engines` checks them.
"""

from infobus.engines.base import Declaration, Engine

__all__ = ["Declaration", "Engine"]
