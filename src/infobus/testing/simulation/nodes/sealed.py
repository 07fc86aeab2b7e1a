"""A node of a simulated secured bus, and the credential that it shows."""

from __future__ import annotations

import msgspec

from infobus.bus.publish.outlet import Batch
from infobus.engines import Engine
from infobus.engines.memory.engine import Network
from infobus.engines.sealed.engine import SealedEngine, World
from infobus.errors import BadFrame
from infobus.protocols.reliable.peer import Terms
from infobus.protocols.security.introduction import Bearer
from infobus.security import signatures
from infobus.security.noise import KEY_BYTES, public_of
from infobus.testing.simulation.nodes.reliable import SimulatedNode, Witness
from infobus.testing.simulation.world import OnError, VirtualThreads, WatchedEngine

_AUTHORITY = b"\x07" * KEY_BYTES
_SIGNATURE_BYTES = 64


class SimulatedCredential:
    """A principal with a certificate that is as small as can be: a list, signed."""

    def __init__(self, principal: str, key: bytes) -> None:
        self.principal, self._key = principal, key
        said = msgspec.msgpack.encode([principal, signatures.public_key_of(key)])
        self.certificate = said + signatures.sign(_AUTHORITY, said)

    def sign(self, message: bytes) -> bytes:
        """Sign with the principal's key."""
        return signatures.sign(self._key, message)

    def check(self, certificate: bytes, wall_s: float) -> Bearer:
        """Whose certificate this is."""
        said, signature = certificate[:-_SIGNATURE_BYTES], certificate[-_SIGNATURE_BYTES:]
        if not signatures.is_signed(signatures.public_key_of(_AUTHORITY), said, signature):
            raise BadFrame("its certificate is of no authority of this bus")
        principal, public_key = msgspec.msgpack.decode(said)
        return Bearer(principal, (), public_key, float("inf"), certificate)


class Plant:
    """A secured bus: whose name is bound to which key, which no node can change."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._statics: dict[str, bytes] = {}

    def engine(self, name: str, on_error: OnError) -> SealedEngine:
        """The engine of a member; its principal has the name of its node."""
        network, draw = self._network, self._network.random.randbytes
        static = draw(KEY_BYTES)
        self._statics[name] = public_of(static)
        return SealedEngine(
            WatchedEngine(network, on_error),
            "simulated",
            static,
            SimulatedCredential(name, draw(KEY_BYTES)),
            handshake_s=0.0,  # nobody can wait where time stands still
            is_name_of=lambda name, static: self._statics.get(name) == static,
            world=World(
                now_s=lambda: network.now_s,
                wall_s=lambda: network.now_s,
                draw=draw,
                every=VirtualThreads(network, name, on_error).every,
            ),
        )


class SealedNode(SimulatedNode):
    """A node of a secured bus."""

    plant: Plant

    def __init__(
        self,
        network: Network,
        name: str,
        terms: Terms,
        witness: Witness,
        batch: Batch | None = None,
    ) -> None:
        self._failed = witness.failed
        super().__init__(network, name, terms, witness, batch)

    def new_engine(self) -> Engine:
        """What carries its frames, sealed."""
        return self.plant.engine(self.name, self._failed)
