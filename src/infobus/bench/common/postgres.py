"""A PostgreSQL server for a moment, in a folder of its own, reached by a socket in that folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infobus.errors import UsageError

_DEBIAN = Path("/usr/lib/postgresql")
_USERS = ("postgres", "nobody")
"""The users who may run the server if you are root: PostgreSQL refuses to run as root."""

START_S_MAX = 60


def find_programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, of the newest version; None if there is none."""
    versions = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    found = versions[-1] if versions else shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


@contextmanager
def temporary_postgres(*, durable: bool = False) -> Iterator[str]:
    """Start a server that nobody else can reach, and give the URL of its database.

    Args:
        durable: Whether commits are synced to the disk, as on a server that is in use.

    Raises:
        UsageError: PostgreSQL is not installed, or cannot be started here.
    """
    programs = find_programs()
    if programs is None:
        raise UsageError("PostgreSQL is not installed: apt-get install postgresql")
    owner = _owner()
    folder = Path(tempfile.mkdtemp(prefix="infobus-pg-"))
    try:
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data, log = folder / "data", folder / "log"
        _run(owner, programs / "initdb", "-D", data, "-U", "infobus", "-A", "trust", "-E", "UTF8")
        settings = f"-k {folder} -c listen_addresses='' -c fsync={'on' if durable else 'off'}"
        start = ("-D", data, "-l", log, "-w", "-t", str(START_S_MAX), "-o", settings)
        _run(owner, programs / "pg_ctl", "start", *start)
        try:
            yield f"postgresql+psycopg://infobus@/postgres?host={folder}"
        finally:
            _run(owner, programs / "pg_ctl", "stop", "-D", data, "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    found = next((known[name] for name in _USERS if name in known), None)
    if found is None:
        raise UsageError(f"PostgreSQL does not run as root, and there is no user {_USERS[0]}")
    return found


def _run(owner: pwd.struct_passwd | None, *command: str | Path) -> None:
    # The server inherits what pg_ctl has open, so nobody must wait for the end of a pipe.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
        )
        if done.returncode != 0:
            said.seek(0)
            told = said.read().decode(errors="replace").strip()
            raise UsageError(f"{Path(command[0]).name} failed: {told[-500:]}")
