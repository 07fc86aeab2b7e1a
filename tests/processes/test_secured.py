"""A secured bus as its users see it: real programs, real homes, and a stranger on the wire."""

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

import infobus
from infobus.bus.bus import interior
from infobus.bus.connect import connect
from infobus.bus.settings import keys_folder
from infobus.errors import BadCredential, UsageError
from infobus.security.authority import Authority
from infobus.security.authority_record import AuthorityRecord
from infobus.security.signatures import public_key_of
from infobus.stores.key_folder import KeyFolder

PATIENCE_S = 30.0
SHORT = infobus.Patience(handshake_s=0.5, sync_s=0.5)
"""Of a node that nobody answers."""


@pytest.fixture
def endpoint() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp/127.0.0.1:{free.getsockname()[1]}"


class Plant:
    """An authority, and homes for its members."""

    def __init__(self, folder: Path) -> None:
        self.bus, self._folder = uuid.uuid4().hex, folder
        authority = Authority.made(self.bus, os.urandom(32), os.urandom(32), time.time())
        self.record = AuthorityRecord.first(authority)

    def home(self, principal: str, valid_s: float = 1e7, key: bytes | None = None) -> Path:
        """The home of a member; issued again, its certificate is replaced."""
        key = key or os.urandom(32)
        made = self.record.authority.issue(
            principal, public_key_of(key), ["member"], time.time(), valid_s
        )
        home = self._folder / principal
        KeyFolder(keys_folder(home, self.bus)).install(self.record.credential(made, key))
        return home

    def connect(self, principal: str, **options):
        home = self._folder / principal
        if not home.exists():
            self.home(principal)
        return connect(self.bus, home=home, attach="never", **options)


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return Plant(tmp_path)


def wait_until(condition) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def child(code: str, *arguments: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


class Greeter(infobus.Service):
    def greet(self) -> str:
        call = infobus.current_call()
        return f"{call.principal} at {call.caller}"


def test_events_and_calls_name_the_principal_behind_them(plant: Plant) -> None:
    with plant.connect("alice") as alice, plant.connect("bob") as bob:
        assert (alice.principal, bob.principal) == ("alice", "bob")
        sub = bob.subscribe("news.>")
        own = alice.subscribe("news.>")
        alice.publish("news.one", {"n": 1})
        with alice.transaction() as tx:
            tx.publish("news.two", {"n": 2})
            tx.publish("news.three", {"n": 3})
        for n in range(100):
            alice.publish("news.many", {"n": n})
        for each in (sub, own):
            assert each.receive(timeout_s=PATIENCE_S).principal == "alice"
            group = each.receive(timeout_s=PATIENCE_S)
            assert {one.principal for one in (group, *group.data.events)} == {"alice"}
            many = [each.receive(timeout_s=PATIENCE_S) for _ in range(100)]
            assert {one.principal for one in many} == {"alice"}
            assert [one.data["n"] for one in many] == list(range(100))
        bob.serve("svc.greet", Greeter())
        assert alice.service("svc.greet").greet() == f"alice at {alice.node}"


def test_a_stranger_on_the_wire_reads_and_is_heard_by_nobody(plant: Plant) -> None:
    """A raw program of the same user, linked by the same sockets."""
    import json

    import msgspec
    import zenoh

    with plant.connect("alice") as alice, plant.connect("bob") as bob:
        engine = interior(alice).runtime.engine
        endpoint = engine.below.own_endpoint
        settings = {
            "mode": "peer",
            "namespace": plant.bus,
            "connect": {"endpoints": [endpoint]},
            "listen": {"endpoints": []},
            "scouting": {"multicast": {"enabled": False}},
        }
        seen: list[tuple[str, bytes]] = []
        with zenoh.open(zenoh.Config.from_json5(json.dumps(settings))) as raw:
            taps = [
                raw.declare_subscriber(
                    key, lambda one: seen.append((str(one.key_expr), one.payload.to_bytes()))
                )
                for key in ("**", "c/**")
            ]
            sub = bob.subscribe("news.>")
            bob.serve("svc.greet", Greeter())
            sent = 0

            def tapped() -> bool:
                nonlocal sent
                sent += 1
                alice.publish("news.secret", {"word": "abracadabra"})
                alice.service("svc.greet").greet()
                return sum(key.startswith("c/") for key, _ in seen) > 5

            wait_until(tapped)
            assert not [data for _, data in seen if b"abracadabra" in data or b"greet" in data]
            assert {data[1:2] for _, data in seen} <= {b"\x5a", b"\x5b", b"\x5c", b"\x5d", b"\x5e"}
            # What it plays again, moves, or makes up, nobody takes.
            own = [sub.receive(timeout_s=PATIENCE_S).data["word"] for _ in range(sent)]
            assert own == ["abracadabra"] * sent
            before = interior(bob).runtime.engine.counts.unopened
            for key, data in list(seen):
                raw.put(key, data)
                raw.put(f"n/{bob.node}", data)
                raw.put("all", msgspec.msgpack.encode([10, alice.node, {}]))
            wait_until(lambda: interior(bob).runtime.engine.counts.plain > 5)
            wait_until(lambda: interior(bob).runtime.engine.counts.unopened > before)
            alice.publish("news.last", {"word": "end"})
            assert sub.receive(timeout_s=PATIENCE_S).data["word"] == "end"
            assert bob.stats().lost == 0
            for tap in taps:
                tap.undeclare()


def test_an_open_node_and_a_secured_one_do_not_talk_and_both_say_so(plant, tmp_path) -> None:
    def told(bus):
        complaints = interior(bus).runtime.counters.complaints
        return " ".join(f"{peer} {what}" for peer, what in complaints.items())

    with plant.connect("alice") as alice, plant.connect("bob") as bob:
        home = tmp_path / "open"
        with connect(plant.bus, home=home, attach="never", sync_timeout_s=0.2) as stranger:
            heard = stranger.subscribe(">", timeout_s=0.2)
            sub = bob.subscribe(">")
            stranger.publish("news.x", {"n": 0}, quench=False)
            alice.publish("news.x", {"n": 1})
            assert sub.receive(timeout_s=PATIENCE_S).data == {"n": 1}
            wait_until(lambda: "no credential" in told(stranger))
            wait_until(lambda: stranger.node in told(alice))
            assert not alice.stats().peers or stranger.node not in alice.stats().peers
            assert heard.receive(timeout_s=PATIENCE_S).sender == stranger.node
            with pytest.raises(TimeoutError):
                heard.receive(timeout_s=0.1)


def test_a_credential_that_does_not_count_is_said_at_once(plant, tmp_path) -> None:
    home = plant.home("brief", valid_s=-1.0)
    with pytest.raises(BadCredential, match="expired"):
        connect(plant.bus, home=home)
    other = Plant(tmp_path / "other")
    path = other.home("eve") / "keys" / other.bus / "identity.infobus"
    with pytest.raises(BadCredential, match="is for the bus"):
        connect(plant.bus, identity=path)
    plant.home("alice")
    with pytest.raises(UsageError, match="is secured"):
        plant.connect("alice", listen=["tcp/0.0.0.0:0"], insecure=True)
    with pytest.raises(UsageError, match="is secured"):
        plant.connect("alice", connect=["tcp/10.0.0.7:7500"])


def test_a_member_of_another_authority_of_the_same_name_is_not_met(plant, tmp_path) -> None:
    other = Plant(tmp_path / "other")
    other.bus = plant.bus
    authority = Authority.made(plant.bus, os.urandom(32), os.urandom(32), time.time())
    other.record = AuthorityRecord.first(authority)
    members = plant.connect("alice"), plant.connect("bob")
    with (
        members[0] as alice,
        members[1] as bob,
        other.connect("mallory", patience=SHORT) as mallory,
    ):
        assert not mallory.stats().peers
        assert set(alice.stats().peers) == {bob.node}


def test_a_renewed_certificate_is_taken_up_while_events_flow(plant, monkeypatch) -> None:
    from infobus.engines.sealed import engine as sealed

    monkeypatch.setattr(sealed, "_REFRESH_S", 0.3)
    key = os.urandom(32)
    plant.home("alice", key=key)
    with plant.connect("alice") as alice, plant.connect("bob") as bob:
        sub = bob.subscribe("news.>")
        engine = interior(bob).runtime.engine
        sent = 0
        for renewal in range(4):
            before = engine.bearer_of(alice.node).certificate
            plant.home("alice", key=None if renewal % 2 else key)  # also with another key
            while engine.bearer_of(alice.node).certificate == before:
                for _ in range(5):
                    alice.publish("news.x", {"n": sent})
                    sent += 1
                time.sleep(0.01)
        got = [sub.receive(timeout_s=PATIENCE_S) for _ in range(sent)]
        assert [event.data["n"] for event in got] == list(range(sent))
        assert {event.principal for event in got} == {"alice"}
        assert bob.stats().lost == 0


_MEMBER = """
import sys, infobus
bus, home, where, endpoint = sys.argv[1:]
with infobus.connect(bus, home=home, attach="never", **{where: [endpoint]}) as bus:
    sub = bus.subscribe("from.>")
    print("up", flush=True)
    for line in sys.stdin:
        bus.publish(f"from.{bus.principal}", {"line": line.strip()})
        print(next(one.principal for one in sub if one.principal != bus.principal), flush=True)
"""


def test_hosts_are_linked_by_tls_and_nobody_else_comes_in(plant, endpoint) -> None:
    """Two folders of sockets stand for two hosts: they have only the port in common."""
    port = endpoint.rpartition(":")[2]
    tls = f"tls/127.0.0.1:{port}"
    homes = [str(plant.home(name)) for name in ("alice", "bob")]
    short = [tempfile.TemporaryDirectory(prefix="ib") for _ in homes]  # as sockets need it
    sockets = [folder.name for folder in short]
    programs = []
    for home, where, folder in zip(homes, ("listen", "connect"), sockets, strict=True):
        programs.append(child(_MEMBER, plant.bus, home, where, tls, INFOBUS_SOCKETS=str(folder)))
        assert programs[-1].stdout.readline() == "up\n"
    try:
        for program in programs:
            program.stdin.write("hello\n")
            program.stdin.flush()
        assert [program.stdout.readline() for program in programs] == ["bob\n", "alice\n"]
        stranger = child(_RAW, f"tcp/127.0.0.1:{port}", tls)
        assert stranger.communicate(timeout=60)[0].split() == ["refused", "refused"]
    finally:
        for program in programs:
            program.communicate(timeout=60)
        for folder in short:
            folder.cleanup()


_RAW = """
import json, sys, zenoh
for endpoint in sys.argv[1:]:
    settings = {"mode": "client", "connect": {"endpoints": [endpoint], "timeout_ms": 2000},
        "scouting": {"multicast": {"enabled": False}},
        "transport": {"link": {"tls": {"verify_name_on_connect": False}}}}
    try:
        zenoh.open(zenoh.Config.from_json5(json.dumps(settings))).close()
        print("let in")
    except zenoh.ZError:
        print("refused")
"""


def test_an_open_bus_loads_no_cryptography() -> None:
    code = "import sys, infobus\nwith infobus.connect('open', engine='memory') as bus: pass\n"
    code += "late = ('cryptography', 'infobus.engines.sealed', 'infobus.protocols.security')\n"
    code += "print([n for n in sys.modules if n.startswith(late)])"
    assert child(code).communicate(timeout=60)[0].strip() == "[]"
