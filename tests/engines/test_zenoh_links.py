"""Looking for the sockets of a link leaves everything else that the process has open alone."""

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from infobus.engines.zenoh.engine import ZenohEngine
from infobus.engines.zenoh.links import LinkKeeper, _connections, scouting_sockets
from infobus.engines.zenoh.rendezvous import Rendezvous
from infobus.engines.zenoh.settings import multicast_port
from tests.patience import PATIENT_PROGRAM

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


def test_a_unix_socket_is_known_by_its_path_or_by_the_process_at_its_other_end():
    """Only the end that listens has a name: those that it accepted all have the same one."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = str(Path(folder) / "a.s")
        server.bind(path)
        server.listen()
        with socket.socket(socket.AF_UNIX) as here:
            here.connect(path)
            with server.accept()[0] as there:
                called = SimpleNamespace(src="unixsock-stream/1f", dst=f"unixsock-stream/{path}")
                (found,) = [one.getpeername() for one in _connections(called)]
                assert found == path
                accepted = SimpleNamespace(src=f"unixsock-stream/{path}", dst="unixsock-stream/2f")
                inode = os.fstat(there.fileno()).st_ino
                for pid, is_found in ((os.getpid(), True), (1, False)):
                    found = [os.fstat(one.fileno()).st_ino for one in _connections(accepted, pid)]
                    # Never `here`, which belongs to the link of whoever called.
                    assert found == ([inode] if is_found else [])


def test_the_socket_by_which_zenoh_calls_is_found_and_no_other() -> None:
    bus = uuid.uuid4().hex
    port = multicast_port(bus)
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        assert not list(scouting_sockets(port))
        engine = ZenohEngine(bus, multicast="loopback", patience=PATIENT_PROGRAM)
        engine.open("a")
        found = [one.getsockname()[1] for one in scouting_sockets(port)]
        engine.close()
        assert len(found) == 1
        assert found != [stranger.getsockname()[1]]


class OneSession:
    """As much of the library's session as a keeper of links needs."""

    def __init__(self, links: list[SimpleNamespace]) -> None:
        self.info = self
        self.links = lambda: links
        self.routers_zid = self.peers_zid = lambda: ()
        self.tell: Callable[[SimpleNamespace], None]

    def declare_link_events_listener(
        self, tell: Callable[[SimpleNamespace], None], history: bool
    ) -> None:
        self.tell = tell


def test_when_one_link_with_a_node_is_lost_all_links_with_it_begin_anew() -> None:
    """What is left of them may be older here than there, and mean other keys by its numbers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in "ab"]
        ends = [
            [f"tcp/{host}:{port}" for host, port in (here.getsockname(), here.getpeername())]
            for here, _ in pairs
        ]
        left, other = (
            SimpleNamespace(src=src, dst=dst, zid=zid)
            for (src, dst), zid in zip(ends, "ab", strict=True)
        )
        session = OneSession([left, other])
        keeper = LinkKeeper(
            session,
            lambda: set(),
            Rendezvous(uuid.uuid4().hex),
            stall_ms_max=1000,
            period_s=60.0,
            on_change=lambda: None,
            gone="gone",
            scouts_at=None,
        )
        lost = SimpleNamespace(src="tcp/127.0.0.1:1", dst="tcp/127.0.0.1:2", zid="a")
        session.tell(SimpleNamespace(kind="gone", link=lost))
        assert pairs[0][1].recv(1) == b""
        pairs[1][0].send(b"x")
        assert pairs[1][1].recv(1) == b"x"
        keeper.stop()
        for one in (each for pair in pairs for each in pair):
            one.close()
