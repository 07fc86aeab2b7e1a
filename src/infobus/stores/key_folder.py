"""The keys of one bus in a home: who this home is there, the newest policy, perhaps the authority.

    keys/plant/identity.infobus    the credential of this home's programs
    keys/plant/policy              the newest policy that was ever seen here
    keys/plant/pending/alice.key   the key of a request that has not been answered yet
    keys/plant/authority/          for its holder alone: its keys, and what it has issued

All of it is for its owner alone. A secret that others can read is refused, not repaired: nobody
knows who has read it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from infobus.errors import BadCredential, BadPolicy, UsageError
from infobus.security import pem
from infobus.security.authority_record import AuthorityRecord
from infobus.security.certificates import Certificate, read
from infobus.security.credential import Credential
from infobus.security.signed_policy import (
    SignedPolicy,
    VerifiedPolicy,
    read_signed_policy,
    verified,
)
from infobus.stores.private import make_private_folder, private_opener
from infobus.stores.sqlite.locks import FileLock

_OTHERS = 0o077
_LOCK_PATIENCE_S = 10.0


class KeyFolder:
    """The keys of one bus in a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity_path = folder / "identity.infobus"
        self.policy_path = folder / "policy"
        self._authority_path = folder / "authority" / "authority.pem"
        self._issued = folder / "authority" / "issued"
        self._passwords = folder / "authority" / "passwords"

    def identity(self) -> Credential | None:
        """Return who this home is on the bus; None if nobody in particular.

        Raises:
            BadCredential: The file can be read by others, or holds no credential.
        """
        if not self.identity_path.exists():
            return None
        return read_credential(self.identity_path)

    def check(self, credential: Credential, now_s: float) -> VerifiedPolicy:
        """Return the newest policy that counts for a credential here.

        Raises:
            BadCredential, BadPolicy: It does not count, by its own policy or by the one known here.
        """
        own = credential.check(now_s)
        known = self.policy()
        if known is None or known.version <= own.version:
            return own
        authorities = (*credential.authorities, *own.authorities)
        newest = verified(known, authorities, bus=credential.bus, now_s=now_s)
        newest.check_member(credential.certificate, now_s)
        return newest

    def install(self, credential: Credential) -> Credential:
        """Make this the identity of the home; return it with its key, if that was kept here.

        Raises:
            BadCredential: It lacks its key, and that was not kept here.
        """
        if not credential.private_key:
            credential = credential.with_key(self._kept_key(credential))
        write_secret(self.identity_path, credential.to_text())
        self.keep_policy(credential.policy)
        self._pending(credential.principal).unlink(missing_ok=True)
        return credential

    def _kept_key(self, credential: Credential) -> bytes:
        path = self._pending(credential.principal)
        if path.exists():
            (found,) = pem.blocks(read_secret(path))
            return pem.read_private_key(found[1])
        own = self.identity()
        if own is not None and own.certificate.public_key == credential.certificate.public_key:
            return own.private_key  # a renewed certificate for the same key
        raise BadCredential(
            f"this credential of {credential.principal} comes without its key, which is not in "
            f"{self.folder} either: install it where `infobus keys request` was run"
        )

    def keep_pending(self, principal: str, private_key: bytes) -> None:
        """Keep the key of a request until it is answered."""
        path = self._pending(principal)
        if path.exists():
            raise UsageError(
                f"a request of {principal} is waiting for its answer; remove {path} to begin anew"
            )
        write_secret(path, pem.private_key(private_key))

    def _pending(self, principal: str) -> Path:
        return self.folder / "pending" / f"{principal}.key"

    def policy(self) -> SignedPolicy | None:
        """Return the newest policy that was seen here; None if there is none.

        Raises:
            BadPolicy: The file is damaged.
        """
        try:
            return read_signed_policy(self.policy_path.read_bytes())
        except FileNotFoundError:
            return None
        except BadPolicy as error:
            raise BadPolicy(
                f"{self.policy_path}: {error}; remove it, and take care to meet the bus before you "
                "trust what an old policy allows"
            ) from error

    def keep_policy(self, policy: SignedPolicy) -> bool:
        """Remember a policy unless a newer one is known; return whether it is new here."""
        with self._locked():
            known = self.policy()
            if known is not None and known.version >= policy.version:
                return False
            _write(self.policy_path, policy.to_bytes())
            return True

    def has_authority(self) -> bool:
        """Whether this home holds the authority of the bus."""
        return self._authority_path.exists()

    def authority(self) -> AuthorityRecord:
        """Return the authority of the bus.

        Raises:
            UsageError: It is not here.
            BadCredential: Its file can be read by others, or is damaged.
        """
        if not self.has_authority():
            raise UsageError(
                f"the authority of this bus is not in {self.folder.parent.parent}: run this where "
                "`infobus keys init` was run"
            )
        return AuthorityRecord.from_text(read_secret(self._authority_path))

    @contextmanager
    def changing_authority(self) -> Iterator[list[AuthorityRecord]]:
        """Hold the authority in a list; what stands there at the end is kept."""
        with self._locked():
            held = [self.authority()]
            before = held[0]
            yield held
            if held[0] != before:
                self._keep_authority(held[0])
        self.keep_policy(held[0].signed)

    def make_authority(self, record: AuthorityRecord) -> None:
        """Keep a new authority.

        Raises:
            UsageError: There is one already.
        """
        if self.has_authority():
            raise UsageError(f"the bus has an authority already, in {self._authority_path.parent}")
        self._keep_authority(record)
        self.keep_policy(record.signed)

    def _keep_authority(self, record: AuthorityRecord) -> None:
        write_secret(self._authority_path, record.to_text())

    def note_issued(self, certificate: Certificate) -> None:
        """Remember the newest certificate of a principal."""
        write_secret(self._issued / f"{certificate.principal}.pem", certificate.pem())

    def issued(self) -> list[Certificate]:
        """Return the newest certificates of all principals, by name."""
        paths = sorted(self._issued.glob("*.pem")) if self._issued.is_dir() else []
        return [read(data) for path in paths for _, data in pem.blocks(read_secret(path))]

    def passwords(self) -> dict[str, str]:
        """Return what is kept of passwords, by principal."""
        if not self._passwords.exists():
            return {}
        lines = [line.partition(" ") for line in read_secret(self._passwords).splitlines()]
        return {name: kept for name, _, kept in lines if name}

    def keep_password(self, principal: str, kept: str) -> None:
        """Keep a new password of a principal."""
        with self._locked():
            lines = {**self.passwords(), principal: kept}
            text = "".join(f"{name} {line}\n" for name, line in sorted(lines.items()))
            write_secret(self._passwords, text)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_private_folder(self.folder)
        lock = FileLock(self.folder / "lock")
        if not lock.acquire(patience_s=_LOCK_PATIENCE_S):
            raise UsageError(f"another process has been changing {self.folder} for a while")
        try:
            yield
        finally:
            lock.release()


def read_credential(path: Path) -> Credential:
    """Return the credential in a file.

    Raises:
        BadCredential: Others can read the file, or it holds none.
    """
    try:
        return Credential.from_text(read_secret(path))
    except BadCredential as error:
        if error.why == "readable":
            raise
        raise BadCredential(f"{path}: {error}", error.why) from error


def read_secret(path: Path) -> str:
    """Return the text of a file that only its owner can read.

    Raises:
        BadCredential: Others can read it, or it is not text.
    """
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid not in (os.getuid(), 0) or mode & _OTHERS:
            raise BadCredential(
                f"{path} holds a secret that other users can reach (mode {mode:03o}): whoever may "
                f"have read it can be you. Make it private (chmod 600 {path}), and if others were "
                "on this host, renew it with a new key",
                why="readable",
            )
        data = file.read(pem.TEXT_BYTES_MAX + 1)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadCredential(f"{path} holds no text") from None


def write_secret(path: Path, text: str) -> None:
    """Write a file for its owner alone: the whole of it, or nothing."""
    _write(path, text.encode())


def _write(path: Path, data: bytes) -> None:
    make_private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb", opener=private_opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def buses_with_keys(home: Path) -> list[str]:
    """Return the names of the buses of which a home holds keys."""
    folder = home / "keys"
    return sorted(unquote(entry.name) for entry in folder.iterdir()) if folder.is_dir() else []
