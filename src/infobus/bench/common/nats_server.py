"""A nats-server for a moment, on a free loopback port."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infobus.bench.common.engines import nats_server_path
from infobus.errors import EngineError

UNLIMITED = 1 << 30


@contextmanager
def nats_server(settings: str = "") -> Iterator[str]:
    """Start nats-server, with further lines of settings; yields its URL."""
    path = nats_server_path()
    assert path is not None, "ask missing() before you start a server"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "nats.conf")
        # By default, the server cuts off a client that is 64 MB behind.
        config.write_text(f"listen: 127.0.0.1:-1\nmax_pending: {UNLIMITED}\n{settings}")
        command = [str(path), "-c", str(config), "--ports_file_dir", folder]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield _wait_for_address(Path(folder), process)
            finally:
                process.terminate()


def _wait_for_address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """The address from the ports file, which the server writes once it listens."""
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and process.poll() is None:
        for ports in folder.glob("*.ports"):
            with suppress(json.JSONDecodeError, KeyError, IndexError):
                return str(json.loads(ports.read_text())["nats"][0])
        time.sleep(0.01)
    raise EngineError("nats-server did not begin to listen within 10 s")
