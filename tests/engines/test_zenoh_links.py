"""Looking for the sockets of a link leaves everything else that the process has open alone."""

import fcntl
import socket
import subprocess
import sys
from types import SimpleNamespace

from infobus.engines.zenoh.links import _connections

IS_FREE = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("locked")
"""


def test_locks_on_files_stay_where_they_are(tmp_path):
    """A process loses its locks on a file when it closes any descriptor of it."""
    path = tmp_path / "database"
    path.touch()
    with socket.create_server(("127.0.0.1", 0)) as server, path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        here, there = socket.create_connection(server.getsockname()), server.accept()[0]
        with here, there:
            ends = [f"tcp/{host}:{port}" for host, port in (here.getsockname(), here.getpeername())]
            found = list(_connections(SimpleNamespace(src=ends[0], dst=ends[1])))
            assert len(found) == 2
        asked = subprocess.run(
            [sys.executable, "-c", IS_FREE, str(path)], capture_output=True, text=True, timeout=60
        )
    assert asked.stdout == "locked\n", asked.stderr
