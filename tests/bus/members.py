"""Nodes of a secured bus in one process: the engine is the one in memory, and tells who is who.

What seals frames and proves names is tested elsewhere; here it is taken for granted.
"""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infobus import Bus
from infobus.bus.runtime.policy_driver import PolicyDriver
from infobus.bus.security.secured import secure
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.protocols.reliable.peer import Terms
from infobus.security.authority import Authority
from infobus.security.authority_record import AuthorityRecord
from infobus.security.certificates import Certificate
from infobus.security.signatures import public_key_of
from infobus.security.signed_policy import SignedPolicy, VerifiedPolicy, verified
from tests.security.plants import key

_numbers = itertools.count(1)


class NamedEngine:
    """The engine in memory, for nodes whose principals are known to all."""

    def __init__(self, plant: "Plant") -> None:
        self._plant = plant
        self._engine = MemoryEngine(live_network(plant.bus))
        self.told = 0
        self.rechecked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def principal_of(self, node: str) -> str | None:
        known = self._plant.certificates.get(node)
        return None if known is None else known.principal

    def roles_of(self, node: str) -> tuple[str, ...]:
        known = self._plant.certificates.get(node)
        return () if known is None else known.roles

    def tell_policy(self, version: int) -> None:
        self.told = version

    def recheck(self) -> None:
        self.rechecked += 1


@dataclass
class Shown:
    """What a node goes by."""

    policy: VerifiedPolicy


class Plant:
    """A bus with an authority, and its nodes."""

    def __init__(self, home: Path, *roles: str, bus: str = "", salt: str = "") -> None:
        self.home = home
        self.bus = bus or f"plant-{next(_numbers)}"
        self.certificates: dict[str, Certificate] = {}
        self.drivers: dict[Bus, PolicyDriver] = {}
        self.authority: Authority = Authority.made(
            self.bus, key(f"members {salt}"), key(f"policies {salt}"), time.time()
        )
        first = AuthorityRecord.first(self.authority)
        self.record = first.published("\n".join([f'bus = "{self.bus}"', "version = 1", *roles]))

    def published(self, *roles: str) -> SignedPolicy:
        """The next policy; nobody has it yet."""
        text = "\n".join([f'bus = "{self.bus}"', "version = 1", *roles])
        self.record = self.record.published(text)
        return self.record.signed

    def node(self, principal: str, *roles: str, folder: Any = None) -> Bus:
        """A new node of a principal, which has the policy that was published last."""
        engine = NamedEngine(self)
        name = f"{principal}-{next(_numbers)}-0123456789abcdef"
        bus = Bus(
            engine,  # type: ignore[arg-type]
            name=name,
            bus_name=self.bus,
            home=self.home / name,
            terms=Terms(),
        )
        self.certificates[name] = self.authority.issue(
            principal, public_key_of(key(principal)), roles, time.time()
        )
        self.drivers[bus] = secure(bus, engine, Shown(self.verified(self.record.signed)), folder)
        bus.open()
        return bus

    def verified(self, policy: SignedPolicy) -> VerifiedPolicy:
        known = [self.authority.certificate]
        return verified(policy, known, bus=self.bus, now_s=time.time())

    def give(self, bus: Bus, policy: SignedPolicy) -> None:
        """Let a node have a newer policy, as if its home had got it."""
        driver = self.drivers[bus]
        driver._strand.do(
            lambda: driver._strand.step_now(
                driver._part,
                lambda now_s: driver._consider(policy, "test"),
            )
        )
