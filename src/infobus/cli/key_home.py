"""The keys that a command works with: of which bus, and how a new policy gets to its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import infobus
from infobus import UsageError
from infobus.bus.bus import interior
from infobus.bus.settings import keys_folder
from infobus.cli.options import WhichHome
from infobus.cli.terminal import warn

if TYPE_CHECKING:
    from infobus.security.certificates import Certificate
    from infobus.security.policy import BusPolicy
    from infobus.security.signed_policy import PolicyStatement, SignedPolicy
    from infobus.stores.key_folder import KeyFolder

_SPREAD_S = 5.0


@dataclass(frozen=True)
class KeyHome:
    """The keys of one bus in a home."""

    bus: str
    home: Path
    folder: KeyFolder

    @classmethod
    def of(cls, which: WhichHome) -> KeyHome:
        """The bus that was named; else the only one of which this home has keys."""
        from infobus.stores.key_folder import KeyFolder, buses_with_keys

        settings = which.settings()
        known, bus = buses_with_keys(settings.home), settings.bus
        if bus not in known:
            if which.bus is not None or not known:
                raise UsageError(
                    f"{settings.home} has no keys of the bus {bus!r}; a new bus begins with: "
                    "infobus keys init BUS"
                )
            if len(known) > 1:
                raise UsageError(f"of which bus? Give --bus; there are keys of {', '.join(known)}")
            (bus,) = known
        return cls(bus, settings.home, KeyFolder(keys_folder(settings.home, bus)))

    def policy(self) -> BusPolicy:
        """The newest policy that this home knows."""
        from infobus.security.policy import read_policy

        return read_policy(self._newest().text)

    def is_revoked(self, certificate: Certificate) -> bool:
        """Whether the newest policy that this home knows shuts it out."""
        return any(one.concerns(certificate) for one in self._newest().revocations)

    def _newest(self) -> PolicyStatement:
        known = self.folder.policy()
        if known is None:
            raise UsageError(f"this home knows no policy of the bus {self.bus}")
        return known.statement


def spread(at: KeyHome, signed: SignedPolicy, what: str) -> None:
    """Say what has changed, and hand the new policy to the nodes of the bus."""
    print(f"{what}: policy {signed.version} of the bus {at.bus}")
    if at.folder.identity() is None:
        path = Path(f"{at.bus}-policy-{signed.version}.signed")
        path.write_bytes(signed.to_bytes())
        warn(
            "this home is no member of the bus, so it could tell nobody. On a member's host, run: "
            f"infobus keys policy publish {path}"
        )
        return
    try:
        with infobus.connect(at.bus, home=at.home) as bus:
            policy = interior(bus).runtime.policy
            assert policy is not None, "a home with an identity makes a node with a policy"
            told, count = policy.wait_spread(signed.version, _SPREAD_S)
    except infobus.BusError as error:
        warn(
            f"it could not be told to the bus: {error}; programs of this home take it up by "
            "themselves, and hand it on"
        )
        return
    print(f"{told} of {count} nodes on the bus hold it")
