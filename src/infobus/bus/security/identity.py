"""Whom a node of a secured bus acts for: from the credential of its home to what the engine needs.

The file is looked at again every 10 s, so a renewed certificate is taken up by programs that run.
"""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from infobus.bus.bus import Bus, interior
from infobus.bus.runtime.runtime import Runtime
from infobus.bus.security.secured import secure
from infobus.bus.settings import Settings, keys_folder
from infobus.engines.base import Engine
from infobus.engines.sealed.engine import SealedEngine
from infobus.engines.zenoh.endpoints import SECURE, UNIX, protocol_of
from infobus.engines.zenoh.settings import extra_settings, merged
from infobus.errors import BadCredential, BadPolicy, UsageError
from infobus.protocols.frames.lanes import channel_in, lane_in
from infobus.protocols.security.introduction import Bearer, bound_name
from infobus.security import pem
from infobus.security.certificates import read
from infobus.security.credential import Credential
from infobus.security.noise import KEY_BYTES, public_of
from infobus.security.signed_policy import VerifiedPolicy
from infobus.stores.key_folder import KeyFolder, read_credential


class ShownCredential:
    """What the handshakes of a node need of its credential."""

    def __init__(self, credential: Credential, policy: VerifiedPolicy) -> None:
        self.credential = credential
        self.policy = policy
        self.certificate = credential.certificate.der

    def sign(self, message: bytes) -> bytes:
        """Sign with the principal's key."""
        return self.credential.sign(message)

    def check(self, certificate: bytes, wall_s: float) -> Bearer:
        """Whose certificate this is.

        Raises:
            BadCredential: It does not count here and now.
        """
        found = read(certificate)
        self.policy.check_member(found, wall_s)
        return Bearer(
            found.principal, found.roles, found.public_key, found.not_after_s, certificate
        )


class NodeIdentity:
    """The credential of one node, and where a newer one may come from."""

    def __init__(self, folder: KeyFolder, shown: ShownCredential, path: Path | None) -> None:
        self.folder = folder
        self.shown = shown
        self._path = path
        self._stamp = _stamp_of(path)
        self.engine: SealedEngine | None = None
        """Of the node, once it has one."""

    @classmethod
    def of(cls, settings: Settings, given: str | Path | Credential | None) -> NodeIdentity:
        """The identity that was given, or that of the home.

        Raises:
            BadCredential: It cannot be read, or does not count for this bus now.
        """
        folder = KeyFolder(keys_folder(settings.home, settings.bus))
        path = None if isinstance(given, Credential) else Path(given or folder.identity_path)
        if path is None:
            assert isinstance(given, Credential)
            credential = given
        else:
            try:
                credential = read_credential(path)
            except OSError as error:
                what = f"identity: {path} cannot be read: {error.strerror}"
                raise BadCredential(what, "malformed") from error
        if credential.bus != settings.bus:
            raise BadCredential(
                f"the credential of {credential.principal} is for the bus {credential.bus!r}, not "
                f"for {settings.bus!r}",
                why="bus",
            )
        if not credential.private_key:
            raise BadCredential(f"the credential of {credential.principal} comes without its key")
        policy = folder.check(credential, time.time())
        return cls(folder, ShownCredential(credential, policy), path)

    def sealed(self, below: Engine, stem: str, handshake_s: float) -> tuple[SealedEngine, str]:
        """An engine over `below`, and the name of the node that has it."""
        static = os.urandom(KEY_BYTES)
        self.engine = SealedEngine(
            below,
            self.shown.credential.bus,
            static,
            self.shown,
            handshake_s=handshake_s,
            refresh=self._refresh,
        )
        return self.engine, bound_name(stem, public_of(static))

    @property
    def policy(self) -> VerifiedPolicy:
        """The policy by which it says who is a member."""
        return self.shown.policy

    @policy.setter
    def policy(self, policy: VerifiedPolicy) -> None:
        self.shown.policy = policy

    def bind(self, bus: Bus) -> None:
        """Let the engine know for whom frames are, and the bus, who is behind nodes."""
        engine, runtime = self.engine, interior(bus).runtime
        assert engine is not None
        engine.listeners = lambda key: _listeners(runtime, key)
        engine.interest_version = lambda: runtime.interest_version
        engine.on_complaint = runtime.counters.complain
        engine.tell_policy(self.shown.policy.version)
        runtime.delivery.principal_of = lambda node: engine.principal_of(node) or ""
        secure(bus, engine, self, self.folder)
        bus.principal = runtime.delivery.principal = self.shown.credential.principal

    def with_tls(self, settings: Settings) -> Settings:
        """The same settings, with this credential on links to other hosts, and no link without.

        Raises:
            UsageError: An endpoint is open to whoever reaches it.
        """
        attach = settings.attach if isinstance(settings.attach, tuple) else ()
        for name, endpoints in (
            ("listen", settings.listen),
            ("connect", settings.connect),
            ("attach", attach),
        ):
            for endpoint in endpoints:
                if protocol_of(endpoint) not in (*SECURE, UNIX):
                    raise UsageError(
                        f"{name}: {endpoint!r}: bus {settings.bus!r} is secured, so its links to "
                        "other hosts are made with TLS: write tls/HOST:PORT"
                    )
        tls = {"transport": {"link": {"tls": self._tls()}}}
        return replace(settings, zenoh=merged(tls, extra_settings(settings.zenoh)))

    def _tls(self) -> dict[str, Any]:
        credential = self.shown.credential
        own = _text64(credential.certificate.pem())
        key = _text64(pem.private_key(credential.private_key))
        return {
            "root_ca_certificate_base64": _text64(
                "".join(one.pem() for one in self.shown.policy.authorities)
            ),
            "listen_certificate_base64": own,
            "listen_private_key_base64": key,
            "connect_certificate_base64": own,
            "connect_private_key_base64": key,
            "enable_mtls": True,
            # Certificates name principals, not hosts; the chain is checked all the same.
            "verify_name_on_connect": False,
            "close_link_on_expiration": True,
        }

    def _refresh(self) -> ShownCredential | None:
        """Another credential, if the file has changed and holds one that counts."""
        stamp = _stamp_of(self._path)
        if self._path is None or stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            credential = read_credential(self._path)
            if credential.principal != self.shown.credential.principal:
                raise BadCredential(f"it is now that of {credential.principal}")
            self.shown = ShownCredential(credential, self.folder.check(credential, time.time()))
        except (BadCredential, BadPolicy, OSError) as error:
            if self.engine is not None:
                what = f"keeps its credential: {self._path} has changed, but {error}"
                self.engine.on_complaint("this node", what)
            return None
        return self.shown


def _listeners(runtime: Runtime, key: str) -> list[str]:
    """The nodes that get what is put on a channel's key: those with a place on its route."""
    route = runtime.node.routes.get(lane_in(key))
    if route is None:
        return []
    guard, channel = runtime.guard, channel_in(lane_in(key))
    receivers = list(route.receivers)  # a copy made at one stroke
    return [one for one in receivers if guard is None or guard.may_read(one, channel)]


def _stamp_of(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


def _text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
