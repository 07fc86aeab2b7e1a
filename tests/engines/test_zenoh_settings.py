import json
from pathlib import Path
from typing import Any

import pytest
import zenoh
from hypothesis import example, given
from hypothesis import strategies as st

from infobus.engines.zenoh.engine import ZenohEngine
from infobus.engines.zenoh.settings import (
    extra_settings,
    from_json5,
    merged,
    multicast_port,
    namespace,
    session_settings,
    well_known_port,
    with_protocols,
)
from infobus.errors import BadValue, EngineError

names = st.text(st.characters(), min_size=1, max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@given(names)
@example("\ud800")
@example("@/*$#?")
def test_any_name_becomes_one_element_that_zenoh_accepts(bus: str) -> None:
    key = zenoh.KeyExpr(namespace(bus) + "/x")
    assert str(key).count("/") == 1
    assert zenoh.KeyExpr("*/x").intersects(key)


@given(names, names)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (namespace(one) == namespace(other)) == (one == other)


@given(names)
def test_ports_lie_below_those_that_systems_hand_out(bus: str) -> None:
    assert 1024 < multicast_port(bus) < 20_000 <= well_known_port(bus) < 32_768


def test_ports_are_the_same_in_every_version_of_the_program() -> None:
    assert (well_known_port("infobus"), multicast_port("infobus")) == (22385, 17672)


def test_zenoh_takes_the_settings_as_they_are() -> None:
    settings = session_settings(
        "floor 7",
        role="peer",
        zid="1f",
        own="unixsock-stream//tmp/a.s",
        on_loopback=True,
        is_secured=False,
        listen=["tcp/127.0.0.1:7500", "tcp/127.0.0.1:7501#iface=lo"],
        connect=["tcp/10.0.0.7:7500"],
        neighbours=["unixsock-stream//tmp/b.s"],
        multicast="eth0",
        lease_ms=300,
        handshake_ms=700,
        reach_ms=5000,
        shared_memory=True,
    )
    config = zenoh.Config.from_json5(json.dumps(with_protocols(settings)))
    assert json.loads(config.get_json("transport/link/protocols")) == ["tcp", "unixsock-stream"]
    assert json.loads(config.get_json("transport/link/tx/lease")) == 300
    assert json.loads(config.get_json("transport/unicast/open_timeout")) == 700
    assert json.loads(config.get_json("scouting/multicast/interface")) == "eth0"


@given(values)
def test_json_is_read_as_json(value: object) -> None:
    assert from_json5(json.dumps(value, indent=1)) == value


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_merging_with_nothing_or_itself_changes_nothing(settings: dict[str, object]) -> None:
    assert merged(settings, {}) == merged({}, settings) == merged(settings, settings) == settings


def test_a_settings_file_may_be_written_as_zenoh_users_do(tmp_path: Path) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text("""
        // for the plant
        { transport: { link: { tx: { lease: 300, }, }, }, /* see 'notes' */
          metadata: { 'name': 'oven "4" // east', },
        }
    """)
    assert extra_settings(file) == {
        "transport": {"link": {"tx": {"lease": 300}}},
        "metadata": {"name": 'oven "4" // east'},
    }


@pytest.mark.parametrize("text", ["", "{", "[1]", "{ a: }"])
def test_a_broken_settings_file_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text(text)
    with pytest.raises(BadValue, match=r"zenoh\.json5"):
        ZenohEngine("bus", config=file)


def test_a_missing_settings_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"absent\.json5"):
        ZenohEngine("bus", config=str(tmp_path / "absent.json5"))


@pytest.mark.parametrize(
    "options",
    [
        {"listen": ["tcp/203.0.113.1:7500"], "insecure": True},
        {"listen": ["unixsock-stream//nonexistent/a"]},
        {"multicast": "no-such-interface", "insecure": True},
        {"config": {"no_such_setting": 1}},
        {"config": {"routing": {"peer": {"mode": "linkstate"}}}},  # Zenoh accepts it in silence
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_an_engine_error(options: dict[str, object]) -> None:
    engine = ZenohEngine("a bus that cannot open", **options)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="a bus that cannot open") as raised:
        engine.open("node")
    assert ".rs:" not in str(raised.value), "places in the library's source help nobody"
    engine.close()


@pytest.mark.parametrize(
    ("setting", "endpoint", "what"),
    [
        ("listen", "nonsense", "'nonsense' is not an endpoint: expected PROTOCOL/HOST:PORT"),
        ("connect", "nonsense", "'nonsense' is not an endpoint"),
        ("connect", "nats://localhost:4222", "the protocols are tcp, tls"),
        ("connect", "tcp/localhost", "'localhost' is not HOST:PORT"),
        ("connect", "tcp/localhost:0", "a port from 1 to 65535, got 0"),
        ("listen", "tcp/localhost:99999", "a port from 0 to 65535, got 99999"),
        ("connect", "tcp/bad host:1", "is not HOST:PORT"),
        ("connect", "tcp/two..dots:1", "'two..dots' cannot be a host name"),
        ("connect", "unixsock-stream/relative", "expected unixsock-stream//A"),
    ],
)
def test_what_is_no_endpoint_is_refused_by_name(setting: str, endpoint: str, what: str) -> None:
    with pytest.raises(BadValue, match=what) as raised:
        ZenohEngine("bus", **{setting: [endpoint]})  # type: ignore[arg-type]
    assert str(raised.value).startswith(setting)


def test_a_bus_has_a_name() -> None:
    with pytest.raises(BadValue, match="name"):
        ZenohEngine("")


def test_a_role_is_not_set_behind_the_engines_back() -> None:
    with pytest.raises(BadValue, match=r"mode is 'client'.*attach="):
        ZenohEngine("bus", config={"mode": "client"})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"role": "server"}, "expected one of peer, client, router, got 'server'"),
        ({"role": "client"}, "needs the endpoint of a router"),
        ({"role": "client", "connect": ["tcp/a:1"], "multicast": "lo"}, "neither listens nor"),
    ],
)
def test_a_role_that_does_not_fit_the_rest_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(BadValue, match=what):
        ZenohEngine("bus", **options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"listen": ["tcp/0.0.0.0:7500"]}, "listen: 'tcp/0.0.0.0:7500' lets in whoever"),
        ({"listen": ["udp/oven:7500"]}, "listen: 'udp/oven:7500' lets in"),
        ({"multicast": "eth0"}, "multicast: 'eth0' lets in"),
        ({"config": {"listen": {"endpoints": ["tcp/[::]:1"]}}}, "listen: 'tcp/.*' lets in"),
    ],
)
def test_a_network_is_let_in_without_tls_only_on_request(
    options: dict[str, Any], what: str
) -> None:
    with pytest.raises(BadValue, match=what) as raised:
        ZenohEngine("bus", **options)
    assert "insecure=True, --insecure, or insecure = true" in str(raised.value)
    ZenohEngine("bus", insecure=True, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"listen": ["tcp/127.0.0.1:7500", "tcp/[::1]:7500", "tcp/localhost:1"]},
        {"listen": ["unixsock-stream//tmp/a"]},
        {"multicast": "loopback"},
        {"connect": ["tcp/10.0.0.7:7500"]},
    ],
    ids=str,
)
def test_what_stays_on_this_host_needs_no_such_word(options: dict[str, Any]) -> None:
    ZenohEngine("bus", **options)


def test_it_is_said_aloud_that_anyone_is_let_in(caplog: pytest.LogCaptureFixture) -> None:
    engine = ZenohEngine("open bus", listen=["tcp/0.0.0.0:0"], insecure=True)
    engine.open("node")
    engine.close()
    assert "bus 'open bus' is insecure: whoever reaches tcp/0.0.0.0:0 is let in" in caplog.text
