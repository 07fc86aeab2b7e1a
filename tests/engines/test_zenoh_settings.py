import json
from pathlib import Path

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
        zid="1f",
        own_port=40_000,
        must_listen=True,
        listen=["tcp/127.0.0.1:7500", "tcp/127.0.0.1:7501#iface=lo"],
        connect=["tcp/10.0.0.7:7500"],
        neighbours=["tcp/127.0.0.1:40001"],
        multicast="eth0",
        lease_ms=300,
        handshake_ms=700,
        shared_memory=True,
    )
    config = zenoh.Config.from_json5(json.dumps(settings))
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
        {"listen": ["nonsense"]},
        {"listen": ["tcp/203.0.113.1:7500"]},
        {"connect": ["nonsense"]},
        {"multicast": "no-such-interface"},
        {"config": {"no_such_setting": 1}},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_an_engine_error(options: dict[str, object]) -> None:
    engine = ZenohEngine("a bus that cannot open", **options)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="a bus that cannot open"):
        engine.open("node")
    engine.close()


def test_a_bus_has_a_name() -> None:
    with pytest.raises(BadValue, match="name"):
        ZenohEngine("")
