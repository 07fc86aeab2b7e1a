"""Endpoints and TLS files that do not work are told; nothing plain listens beside TLS."""

import logging
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

import infobus
from infobus import BadValue, Bus, EngineError, Patience
from infobus.engines.zenoh.engine import ZenohEngine
from infobus.engines.zenoh.settings import session_settings
from tests.bus.helpers import wait_until
from tests.patience import PATIENT_PROGRAM

HASTY = replace(PATIENT_PROGRAM, reach_s=0.6)
PATIENT = replace(PATIENT_PROGRAM, reach_s=30.0)
UNWAITING = replace(PATIENT_PROGRAM, lease_s=1.0, reach_s=0.0)

Join = Callable[..., Bus]


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Join a bus of the test's own, by default where no other node of this host is met."""
    name = f"test-{uuid.uuid4().hex}"
    monkeypatch.delenv("INFOBUS_SETTINGS", raising=False)
    with ExitStack() as stack:

        def join(*, apart: bool = True, patience: Patience = PATIENT, **options: Any) -> Bus:
            if apart:  # pytest's own folders have names that are too long
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                monkeypatch.setenv("INFOBUS_SOCKETS", folder)
            return stack.enter_context(infobus.connect(name, patience=patience, **options))

        yield join


def settings_file(path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path.write_text(text)
    monkeypatch.setenv("INFOBUS_SETTINGS", str(path))


class TestConnecting:
    def test_if_none_answers_it_is_an_error_that_names_each(
        self, join: Join, endpoint: str
    ) -> None:
        with pytest.raises(EngineError, match=r"was reached in 0\.6 s") as raised:
            join(patience=HASTY, connect=[endpoint, "tcp/nowhere.invalid:7500"])
        assert f"{endpoint}: connection refused" in str(raised.value)
        # Who answers for names may take longer than that.
        told = r"tcp/nowhere\.invalid:7500: its host name (cannot be resolved|is still being)"
        assert re.search(told, str(raised.value))
        assert "reach_s" in str(raised.value)

    def test_a_name_that_nobody_answers_for_holds_up_no_other_endpoint(
        self, join: Join, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended, look_up = threading.Event(), socket.getaddrinfo

        def answer(host: str, *where: Any, **options: Any) -> Any:
            if host == "slow.invalid":
                ended.wait()
            return look_up(host, *where, **options)

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        join(listen=[endpoint])
        bus = join(connect=["tcp/slow.invalid:7500", endpoint])
        assert bus.stats().endpoints[endpoint] == "linked"
        wait_until(lambda: "looked up" in bus.stats().endpoints["tcp/slow.invalid:7500"])
        ended.set()

    def test_who_is_named_itself_is_the_first_although_no_other_answers(
        self, join: Join, endpoint: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        names = [endpoint, endpoint.replace("127.0.0.1", "localhost"), "tcp/127.0.0.1:1"]
        anywhere = endpoint.replace("127.0.0.1", "0.0.0.0")
        first = join(listen=[anywhere], connect=names, insecure=True)
        told = [line for line in caplog.messages if line.startswith("endpoint ")]
        assert all(line.startswith("endpoint tcp/127.0.0.1:1: ") for line in told)
        assert set(first.stats().endpoints) == {anywhere, "tcp/127.0.0.1:1"}
        second = join(connect=names)
        assert second.stats().peers == (first.node,)

    def test_who_is_named_itself_still_waits_for_one_that_answers(
        self, join: Join, endpoint: str
    ) -> None:
        own = "tcp/127.0.0.2:" + endpoint.rpartition(":")[2]
        first = join(listen=[endpoint], connect=[endpoint, own])
        second = join(listen=[own], connect=[endpoint, own])
        assert second.stats().peers == (first.node,)

    def test_if_one_answers_the_others_are_told(
        self, join: Join, endpoint: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        join(listen=[endpoint])
        with caplog.at_level(logging.INFO):
            bus = join(connect=[endpoint, "tcp/127.0.0.1:1"])
            wait_until(lambda: "refused" in bus.stats().endpoints["tcp/127.0.0.1:1"])
        assert bus.stats().endpoints[endpoint] == "linked"
        (told,) = [line for line in caplog.messages if line.startswith("endpoint ")]
        assert told.startswith("endpoint tcp/127.0.0.1:1: connection refused")

    def test_who_need_not_wait_is_told_when_it_comes_and_when_it_goes(
        self, join: Join, endpoint: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        bus = join(patience=UNWAITING, connect=[endpoint])
        wait_until(lambda: bus.stats().endpoints == {endpoint: "connection refused"})
        other = join(listen=[endpoint])
        wait_until(lambda: bus.stats().endpoints == {endpoint: "linked"})
        wait_until(lambda: bus.stats().peers == (other.node,))
        other.close()
        wait_until(lambda: bus.stats().endpoints == {endpoint: "connection refused"})
        told = [line for line in caplog.messages if line.startswith(f"endpoint {endpoint}")]
        assert ["refused" in line for line in told] == [True, False, True]

    def test_an_endpoint_of_a_node_that_is_linked_anyway_counts(
        self, join: Join, endpoint: str
    ) -> None:
        other = join(listen=[endpoint])
        bus = join(apart=False, connect=[endpoint])
        assert bus.stats().endpoints == {endpoint: "linked"}
        assert bus.stats().peers == (other.node,)

    def test_something_else_that_listens_there_is_no_node(
        self, join: Join, caplog: pytest.LogCaptureFixture
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as stranger:
            endpoint = f"tcp/127.0.0.1:{stranger.getsockname()[1]}"
            with pytest.raises(EngineError, match="it answers, but makes no link"):
                join(patience=HASTY, connect=[endpoint])


class TestListening:
    def test_it_is_told_where(self, join: Join, endpoint: str) -> None:
        assert join(listen=[endpoint]).stats().endpoints == {endpoint: "listening"}

    def test_an_argument_that_cannot_be_met_is_an_error(self, join: Join, endpoint: str) -> None:
        join(listen=[endpoint])
        with pytest.raises(EngineError, match=f"cannot listen at {endpoint}: address already"):
            join(listen=[endpoint])

    def test_of_the_programs_that_share_a_file_one_gets_the_port(
        self, join: Join, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings_file(tmp_path / "s.toml", monkeypatch, f'listen = ["{endpoint}"]')
        assert join().stats().endpoints == {endpoint: "listening"}
        assert join(apart=False).stats().endpoints == {endpoint: "address already in use"}

    def test_nothing_but_a_socket_unless_it_was_asked_for(self, join: Join) -> None:
        before = ports()
        join()
        assert ports() == before


class TestWithoutSockets:
    def test_where_there_are_none_nodes_meet_on_loopback(
        self, join: Join, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(socket, "AF_UNIX")
        before = ports()
        first, second = join(), join(apart=False)
        assert ports() > before
        assert second.stats().peers == (first.node,)

    def test_a_folder_that_cannot_be_used_is_an_error_that_says_what_to_do(
        self, join: Join, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / f"infobus-{os.getuid()}").touch()
        monkeypatch.setenv("INFOBUS_SOCKETS", str(tmp_path))
        with pytest.raises(EngineError, match=r"is not a folder.*INFOBUS_SOCKETS.*'loopback'"):
            join(apart=False)
        first, second = (join(apart=False, multicast="loopback") for _ in range(2))
        assert second.stats().peers == (first.node,)


def ports() -> set[int]:
    """The ports at which this process listens."""
    connections = psutil.Process().net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


TLS = "[zenoh.transport.link.tls]\n"


class TestTls:
    @pytest.mark.parametrize(
        "name", ["root_ca_certificate", "listen_private_key", "connect_certificate"]
    )
    def test_a_file_that_is_missing_is_an_error_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        settings_file(tmp_path / "s.toml", monkeypatch, f"{TLS}{name} = '/nonexistent.pem'")
        with pytest.raises(BadValue, match=rf"tls\.{name}: '/nonexistent\.pem' cannot be read: No"):
            infobus.connect("x", connect=["tls/127.0.0.1:1"])

    def test_so_is_one_that_an_endpoint_names(self) -> None:
        where = "tls/127.0.0.1:1#root_ca_certificate_file=/nonexistent.pem"
        with pytest.raises(BadValue, match=r"connect: .* '/nonexistent\.pem' cannot be read"):
            infobus.connect("x", connect=[where])

    def test_so_is_one_that_is_no_certificate(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = f"{TLS}root_ca_certificate = '{tmp_path / 's.toml'}'"
        settings_file(tmp_path / "s.toml", monkeypatch, text)
        with pytest.raises(BadValue, match="is not a PEM file"):
            infobus.connect("x", connect=["tls/127.0.0.1:1"])

    def test_who_listens_needs_a_certificate(self) -> None:
        with pytest.raises(BadValue, match=r"set listen_certificate in \[zenoh"):
            infobus.connect("x", listen=["tls/127.0.0.1:0"])

    @pytest.mark.parametrize(
        "options",
        [
            {"listen": ["tls/127.0.0.1:0", "tcp/127.0.0.1:0"]},
            {"listen": ["tcp/0.0.0.0:0"], "connect": ["tls/10.0.0.7:7500"]},
            {
                "connect": ["tls/10.0.0.7:7500"],
                "config": {"listen": {"endpoints": ["tcp/0.0.0.0:0"]}},
            },
        ],
        ids=str,
    )
    def test_nobody_listens_without_it_beside_it(self, options: dict[str, Any]) -> None:
        with pytest.raises(BadValue, match="without a certificate, beside TLS"):
            ZenohEngine("x", **options)

    @pytest.mark.parametrize("multicast", ["off", "loopback", "eth0"])
    def test_nor_by_itself(self, multicast: str) -> None:
        settings = session_settings(
            "x",
            role="peer",
            zid="1f",
            own="unixsock-stream//a.s",
            on_loopback=True,
            is_secured=True,
            listen=["tls/0.0.0.0:7500"],
            connect=[],
            neighbours=[],
            multicast=multicast,
            lease_ms=300,
            handshake_ms=700,
            reach_ms=5000,
            shared_memory=True,
        )
        assert not [one for one in settings["listen"]["endpoints"] if one.startswith("tcp/")]
        assert not [one for one in settings["connect"]["endpoints"] if one.startswith("tcp/")]


needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made"
)


def certificate(folder: Path, name: str, authority: str | None) -> None:
    """Make `name.key` and `name.pem`, signed by `authority` or by itself."""

    def openssl(*arguments: str) -> None:
        command = ["openssl", *arguments]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr

    (folder / "names.txt").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", f"{name}.key", "-subj", f"/CN={name}")
    if authority is None:
        openssl("req", "-x509", *key, *files, "-out", f"{name}.pem", "-days", "2")
        return
    openssl("req", *key, *files, "-out", f"{name}.csr")
    by = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
    given = ("-in", f"{name}.csr", "-out", f"{name}.pem", "-days", "2", "-extfile", "names.txt")
    openssl("x509", "-req", *by, *given)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    for name, authority in (
        *(("ours", None), ("theirs", None)),
        *(("alice", "ours"), ("bob", "ours"), ("eve", "theirs")),
    ):
        certificate(folder, name, authority)
    return folder


def tls_file(folder: Path, name: str, authority: str) -> str:
    sides = "".join(
        f"{side}_certificate = '{folder / name}.pem'\n{side}_private_key = '{folder / name}.key'\n"
        for side in ("listen", "connect")
    )
    return f"{TLS}root_ca_certificate = '{folder / authority}.pem'\nenable_mtls = true\n{sides}"


@needs_openssl
class TestMutualTls:
    def test_those_with_a_certificate_meet_and_no_others(
        self,
        join: Join,
        endpoint: str,
        certificates: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        port = endpoint.rpartition(":")[2]
        where = f"tls/127.0.0.1:{port}"
        before = ports()
        settings_file(tmp_path / "a.toml", monkeypatch, tls_file(certificates, "alice", "ours"))
        alice = join(listen=[where])
        assert ports() - before == {int(port)}
        settings_file(tmp_path / "b.toml", monkeypatch, tls_file(certificates, "bob", "ours"))
        bob = join(connect=[where])
        wait_until(lambda: bob.stats().peers == (alice.node,))
        settings_file(tmp_path / "e.toml", monkeypatch, tls_file(certificates, "eve", "theirs"))
        with pytest.raises(EngineError, match="do the certificates of both sides fit"):
            join(patience=HASTY, connect=[where])
        monkeypatch.delenv("INFOBUS_SETTINGS")
        with pytest.raises(EngineError, match="it answers, but makes no link"):
            join(patience=HASTY, connect=[endpoint])
        assert alice.stats().peers == (bob.node,)

    def test_a_key_of_another_certificate_is_an_error_at_once(
        self, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = tls_file(certificates, "alice", "ours").replace("alice.key", "bob.key")
        settings_file(tmp_path / "s.toml", monkeypatch, text)
        with pytest.raises(BadValue, match=r"listen_private_key .* cannot be used together"):
            infobus.connect("x", connect=["tls/127.0.0.1:1"])
