"""Where settings come from, and how wrong ones are answered."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import infobus
from infobus import BadValue, Batch, Bounds, Bus, BusError, EngineError, Patience, UsageError
from infobus.bus.settings import load_settings
from infobus.engines.base import Declaration
from infobus.engines.memory.engine import MemoryEngine, live_network
from infobus.engines.zenoh.settings import session_settings
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.rules import Key
from tests.bus.helpers import wait_until
from tests.patience import PATIENT


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("INFOBUS_BUS", "INFOBUS_NAME", "INFOBUS_HOME", "INFOBUS_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class Echo:
    def echo(self, what: int) -> int:
        return what


class TestPrecedence:
    def test_defaults(self, tmp_path: Path) -> None:
        settings = load_settings()
        assert (settings.bus, settings.engine, settings.depth) == ("default", "zenoh", 1)
        assert settings.home == tmp_path / "user" / ".infobus"

    def test_the_file_in_the_working_folder(self, tmp_path: Path) -> None:
        write(tmp_path / "infobus.toml", 'bus = "floor"\ngroup = "g"\ndepth = 2\n')
        settings = load_settings()
        assert (settings.bus, settings.group, settings.depth) == ("floor", "g", 2)

    def test_the_file_in_the_home_folder(self, tmp_path: Path) -> None:
        write(tmp_path / "h" / "infobus.toml", 'bus = "from-home"\nlisten = ["tcp/0.0.0.0:0"]\n')
        settings = load_settings(home=tmp_path / "h")
        assert (settings.bus, settings.listen) == ("from-home", ("tcp/0.0.0.0:0",))
        write(tmp_path / "infobus.toml", 'bus = "from-here"\n')
        assert load_settings(home=tmp_path / "h").bus == "from-here"

    def test_the_environment_goes_before_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        named = write(tmp_path / "named.toml", 'bus = "file"\nhome = "file-home"\n')
        monkeypatch.setenv("INFOBUS_SETTINGS", str(named))
        assert load_settings().home == Path("file-home")
        monkeypatch.setenv("INFOBUS_BUS", "environment")
        monkeypatch.setenv("INFOBUS_HOME", str(tmp_path / "eh"))
        settings = load_settings()
        assert (settings.bus, settings.home) == ("environment", tmp_path / "eh")

    def test_arguments_go_before_everything(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "infobus.toml", 'bus = "file"\nengine = "zenoh"\ndepth = 3\n')
        monkeypatch.setenv("INFOBUS_BUS", "environment")
        with infobus.connect("argument", engine="memory", depth=1, home="~/elsewhere") as bus:
            assert bus.name == "argument"
            assert bus.home == tmp_path / "user" / "elsewhere"
            assert bus._runtime.node.terms.depth == 1

    def test_the_environment_may_name_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "infobus.toml", 'bus = "here"\n')
        named = write(tmp_path / "other.toml", 'bus = "named"\n')
        monkeypatch.setenv("INFOBUS_SETTINGS", str(named))
        assert load_settings().bus == "named"

    def test_a_program_has_no_name_unless_it_is_given_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert load_settings().name == ""
        write(tmp_path / "infobus.toml", 'name = "from-file"\n')
        assert load_settings().name == "from-file"
        monkeypatch.setenv("INFOBUS_NAME", "from-environment")
        assert load_settings().name == "from-environment"
        with infobus.connect("names", engine="memory", name="oven-3") as bus:
            assert (bus.application, bus.stats().application) == ("oven-3", "oven-3")

    @pytest.mark.parametrize("name", ["", "two words", "-x", "x" * 65, 7, "a*"])
    def test_a_program_has_a_readable_name(self, name: object) -> None:
        with pytest.raises(UsageError, match="the application's name"):
            load_settings(name=name)


REACHING_OUT = [
    'connect = ["tcp/10.0.0.7:7500"]',
    'listen = ["tcp/0.0.0.0:7500"]',
    'multicast = "eth0"',
    "insecure = true",
    'home = "elsewhere"',
    "[zenoh.transport.link.tls]\nroot_ca_certificate = 'ca.pem'",
]


class TestTheWorkingDirectory:
    """It may be anybody's: whatever is in it must not reach beyond this program."""

    @pytest.mark.parametrize("text", REACHING_OUT)
    def test_its_file_decides_nothing_outside(self, tmp_path: Path, text: str) -> None:
        write(tmp_path / "infobus.toml", text)
        with pytest.raises(UsageError, match=r"of the working directory.*\.infobus/infobus\.toml"):
            load_settings()

    @pytest.mark.parametrize("text", REACHING_OUT)
    def test_who_names_the_file_has_decided(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        write(tmp_path / "infobus.toml", text)
        monkeypatch.setenv("INFOBUS_SETTINGS", "infobus.toml")
        load_settings()

    @pytest.mark.parametrize("text", REACHING_OUT)
    def test_the_home_may_be_the_working_directory(self, tmp_path: Path, text: str) -> None:
        write(tmp_path / "infobus.toml", text)
        load_settings(home=tmp_path)


class TestPatienceAndBounds:
    FILE = "[patience]\nsend_s = 3\nstall_s = 4\nclose_s = 0.5\n[bounds]\nwindow_count_max = 100\n"

    def test_the_file_may_change_any_of_them(self, tmp_path: Path) -> None:
        write(tmp_path / "infobus.toml", self.FILE)
        settings = load_settings()
        assert settings.patience == Patience(send_s=3.0, stall_s=4.0, close_s=0.5)
        assert settings.bounds == Bounds(window_count_max=100)

    def test_an_argument_replaces_the_table_of_the_file(self, tmp_path: Path) -> None:
        write(tmp_path / "infobus.toml", self.FILE)
        with infobus.connect("x", engine="memory", patience=Patience(sync_s=5.0)) as bus:
            assert bus.patience == Patience(sync_s=5.0)
            assert bus.bounds == Bounds(window_count_max=100)

    def test_the_older_arguments_win(self) -> None:
        patience = Patience(send_s=5.0, sync_s=6.0)
        with infobus.connect("x", engine="memory", patience=patience, send_timeout_s=0.5) as bus:
            assert (bus.send_timeout_s, bus.patience.sync_s) == (0.5, 6.0)

    def test_reliable_delivery_is_on_these_terms(self) -> None:
        patience = Patience(stall_s=4.0, beat_s=0.25, give_up_s=7.0)
        bounds = Bounds(window_count_max=100, ack_bytes=1000, rows_count_max=50)
        with infobus.connect("x", engine="memory", patience=patience, bounds=bounds) as bus:
            terms = bus._runtime.node.terms
        assert (terms.stall_s, terms.beat_s, terms.give_up_s) == (4.0, 0.25, 7.0)
        assert (terms.window_count_max, terms.ack_bytes, terms.rows_count_max) == (100, 1000, 50)
        assert terms.ack_count == 25, "a sender with a full window waits for a confirmation"

    def test_streams_are_kept_longer_than_any_sender_keeps_the_place(self) -> None:
        assert Patience(absent_s=8.0).given_up_s == 10.0
        assert Patience.wan().given_up_s >= Patience.wan().absent_s + 2 * Patience.wan().lease_s
        with pytest.raises(UsageError, match=r"give_up_s is 4.0; expected at least absent_s and 2"):
            Patience(give_up_s=4.0)

    def test_a_timeout_that_is_not_given_is_that_of_the_node(self) -> None:
        patience = replace(PATIENT, subscribe_s=11.0, close_s=12.0, types_s=13.0)
        waited: list[float] = []
        with infobus.connect("x", engine="memory", patience=patience) as bus:
            subscribe, learn, confirm = (
                bus._runtime.subscribe,
                bus._runtime.learn_types,
                bus._runtime.confirm,
            )

            def note(function: Callable[..., object]) -> Callable[..., object]:
                return lambda *given: (waited.append(given[-1]), function(*given))[1]

            bus._runtime.subscribe = note(subscribe)  # type: ignore[method-assign, assignment]
            bus._runtime.learn_types = note(learn)  # type: ignore[method-assign, assignment]
            bus._runtime.confirm = note(confirm)  # type: ignore[method-assign, assignment]
            bus.subscribe("x")
            bus.subscribe("x", timeout_s=1.5)
            bus.types()
        assert waited[:3] == [11.0, 1.5, 13.0]
        assert 11.0 < waited[3] <= 12.0

    def test_a_changed_filter_waits_as_long_as_a_new_one(self) -> None:
        patience = replace(PATIENT, subscribe_s=11.0)
        waited: list[float] = []
        with infobus.connect("x", engine="memory", patience=patience) as bus:
            sub = bus.subscribe("x")
            bus._runtime.change_filter = lambda *given: waited.append(given[-1])  # type: ignore[method-assign, assignment]
            sub.change_filter("n > 1")
            sub.change_filter("n > 1", timeout_s=1.5)
        assert waited == [11.0, 1.5]

    def test_full_queues_are_as_patient_as_their_node(self) -> None:
        patience = Patience(pace_s=7.0, stuck_s=6.0)
        with infobus.connect("x", engine="memory", patience=patience) as bus:
            assert bus._runtime.crowd.patience == patience

    def test_calls_and_their_search_for_servers_take_as_long_as_the_node_says(self) -> None:
        patience = replace(PATIENT, call_s=70.0, answers_s=60.0)
        waited: list[tuple[float, float]] = []
        with infobus.connect("x", engine="memory", patience=patience) as bus:
            bus.serve("svc.echo", Echo())
            exchange = bus._services.exchange
            search = exchange.servers

            def note(subject: str, timeout_s: float, first_s: float) -> dict[Key, Presence]:
                waited.append((timeout_s, first_s))
                return search(subject, timeout_s, first_s)

            exchange.servers = note  # type: ignore[method-assign]
            service = bus.service("svc.echo")
            assert service.echo.timeout_s == 70.0
            assert len(service.servers()) == len(service.servers(50.0)) == 1
            brief = service.options(policy=lambda found: found[0], timeout_s=40.0)
            assert (brief.echo.timeout_s, brief.echo(1)) == (40.0, 1)
        assert waited == [(60.0, 70.0), (50.0, 50.0), (40.0, 40.0)]

    @pytest.mark.parametrize(
        ("patience", "frozen_s"),
        [
            (Patience(), 0.4),
            (Patience(lease_s=5.0), 2.0),
            (Patience(lease_s=5.0, freeze_s=1.0), 1.0),
            (Patience(lease_s=0.1), 0.2),  # a tick that is a little late is no freeze
            (Patience.realtime(), 0.12),
        ],
        ids=str,
    )
    def test_who_has_a_lease_knows_when_it_was_taken_for_dead(
        self, patience: Patience, frozen_s: float
    ) -> None:
        with infobus.connect(
            "x", engine="memory", patience=replace(patience, stranger_s=9.0)
        ) as bus:
            terms = bus._runtime.node.terms
        assert terms.freeze_s == pytest.approx(frozen_s)
        assert terms.stranger_s == 9.0

    def test_the_engine_is_as_patient_as_its_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patience = Patience.realtime()
        told: dict[str, object] = {}

        def note(bus: str, **settings: object) -> dict[str, object]:
            told.update(settings)
            return session_settings(bus, **settings)  # type: ignore[arg-type]

        monkeypatch.setattr("infobus.engines.zenoh.engine.session_settings", note)
        name = f"test-{uuid.uuid4().hex}"
        with infobus.connect(name, patience=replace(patience, handshake_s=0.7)):
            assert (told["lease_ms"], told["handshake_ms"]) == (300, 700)

    def test_a_kind_of_link_stands_for_a_patience(self, tmp_path: Path) -> None:
        assert load_settings(home=tmp_path).patience == Patience()
        assert load_settings(home=tmp_path, link="realtime").patience == Patience.realtime()
        assert load_settings(home=tmp_path, link="wan").patience == Patience.wan()
        write(tmp_path / "infobus.toml", 'link = "wan"\n[patience]\nreach_s = 1.0\n')
        assert load_settings(home=tmp_path).patience == replace(Patience.wan(), reach_s=1.0)

    def test_a_patience_goes_before_what_the_link_stands_for(self, tmp_path: Path) -> None:
        patience = Patience(sync_s=5.0)
        assert load_settings(home=tmp_path, link="wan", patience=patience).patience == patience

    def test_an_unknown_kind_of_link_is_refused(self) -> None:
        with pytest.raises(UsageError, match="'dsl': expected one of 'lan', 'wan', 'realtime'"):
            infobus.connect("x", link="dsl")

    def test_a_lease_that_the_engine_cannot_keep_is_refused(self) -> None:
        with pytest.raises(BadValue, match=r"lease_s: expected at least 0\.1, got 0\.05"):
            infobus.connect("x", patience=Patience(lease_s=0.05))

    def test_a_subscription_holds_as_many_events_as_its_node_says(self) -> None:
        with infobus.connect("x", engine="memory", bounds=Bounds(queue_count_max=3)) as bus:
            sub = bus.subscribe("x", when_full="drop_oldest", on_loss="ignore")
            for number in range(10):
                bus.publish("x", {"n": number})
            assert sub.waiting_count <= 3

    def test_a_publisher_forgets_who_wants_what_beyond_the_bound(self) -> None:
        with infobus.connect("x", engine="memory", bounds=Bounds(decisions_count_max=5)) as bus:
            for number in range(50):
                bus.publish(f"x.y{number}", {})
            assert len(bus._routing.decisions) <= 5

    def test_a_node_holds_no_more_of_what_comes_than_its_bounds_say(self) -> None:
        bounds = Bounds(audiences_count_max=5, types_count_max=4, complaints_count_max=3)
        with infobus.connect("x", engine="memory", bounds=bounds) as bus:
            runtime = bus._runtime
            with runtime.lock:
                for number in range(50):
                    runtime.audiences.of(f"x.y{number}")
                    runtime.types.must_ask_for(1_000_000 + number, 0.0)
                    runtime.counters.complain(f"peer {number}", "sends nonsense")
                assert len(runtime.audiences.found) <= 5
                assert len(runtime.types.unknown) <= 4
            assert len(bus.stats().complaints) == 3

    def test_a_service_holds_as_many_calls_as_its_node_says(self) -> None:
        with infobus.connect("x", engine="memory", bounds=Bounds(calls_count_max=7)) as bus:
            bus.serve("svc.echo", Echo())
            bus.serve("svc.loud", Echo(), queue_count_max=9)
            offers = bus._services.exchange.server.offers.values()
            assert [offer.queue_count_max for offer in offers] == [7, 9]

    def test_the_engine_remembers_as_many_keys_as_its_node_says(self) -> None:
        name = f"test-{uuid.uuid4().hex}"
        with infobus.connect(name, bounds=Bounds(keys_count_max=3, frames_count_max=100)) as bus:
            engine = bus._runtime.engine
            for number in range(20):
                engine.put(f"c/{number}", b"")
            assert len(engine._data_puts) <= 3  # type: ignore[attr-defined]


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("buss = 'x'", r"infobus\.toml.*'buss' is not a setting.*bus, name, home"),
            ("depth = 'deep'", r"depth must be a int, got 'deep'"),
            ("listen = 'tcp/x:1'", r"listen must be a list"),
            ("bus = [\n", r"infobus\.toml cannot be read"),
            ("depth = 0", r"depth must be an int of at least 1, got 0"),
            ("bus = ''", "name is empty"),
            ("[patience]\nsend = 3", r"patience: .*`send`.*infobus\.Patience"),
            ("[patience]\nsend_s = -1", r"send_s is -1.0; expected a number of seconds"),
            ("[patience]\ntick_s = 0", "nothing but look at its clock"),
            ("[bounds]\nqueue_count_max = 0", r"queue_count_max is 0; expected a number from 1"),
            ("[bounds]\nqueue = 5", r"bounds: .*`queue`.*infobus\.Bounds"),
            ("engine = 'carrier pigeon'", r"'carrier pigeon' is not known; choose 'zenoh'"),
        ],
    )
    def test_in_the_file(self, tmp_path: Path, text: str, what: str) -> None:
        write(tmp_path / "infobus.toml", text)
        with pytest.raises(UsageError, match=what):
            infobus.connect()

    def test_a_named_file_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INFOBUS_SETTINGS", "nowhere.toml")
        with pytest.raises(UsageError, match=r"nowhere\.toml cannot be read"):
            infobus.connect()

    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            ({"engine": "smoke"}, "'smoke' is not known"),
            ({"listen": [1]}, "endpoint must be a str, got 1"),
            ({"bus": ""}, "empty"),
            ({"bus": "bad name!"}, r"'bad name!': expected letters, digits"),
            ({"bus": ".."}, r"'\.\.': expected letters, digits"),
            ({"bus": "a\x1b[31m"}, r"'a\\x1b\[31m': expected letters"),
            ({"bus": "x" * 65}, "65 bytes; at most 64"),
            ({"bus": "nats://localhost:4222"}, r"an address belongs into connect=\[...\]"),
            ({"connect": ["nats://localhost:4222"]}, "is not an endpoint: expected PROTOCOL/HOST"),
            ({"bus": 7}, "must be a str, got 7"),
            ({"depth": 0}, "depth must be an int of at least 1, got 0"),
            ({"depth": "2"}, "depth must be an int of at least 1, got .2."),
            ({"listen": "tcp/127.0.0.1:0"}, "list of endpoints, got the str"),
            ({"connect": "tcp/127.0.0.1:1"}, "list of endpoints, got the str"),
            ({"patience": 3}, r"patience: .*expected an infobus\.Patience"),
            ({"engine": "memory", "batch": Batch(bytes=1 << 25)}, "above the bound"),
        ],
    )
    def test_in_the_arguments(self, arguments: dict[str, object], what: str) -> None:
        with pytest.raises(UsageError, match=what):
            infobus.connect(**arguments)  # type: ignore[arg-type]

    def test_an_engine_that_cannot_be_opened(self) -> None:
        with pytest.raises(BusError, match="no-such-interface"):
            infobus.connect("x", multicast="no-such-interface")


def test_a_user_without_a_home_folder_can_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert load_settings(home="/elsewhere").home == Path("/elsewhere")
    assert load_settings().bus == "default"


def test_empty_environment_variables_count_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOBUS_BUS", "")
    assert load_settings().bus == "default"


class Blind(MemoryEngine):
    """Shows itself, and then fails."""

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        raise EngineError("cannot see")


def test_a_connect_that_fails_leaves_no_node_behind(bus: Bus) -> None:
    with pytest.raises(EngineError, match="cannot see"):
        infobus.connect(bus.name, engine=Blind(live_network(bus.name)))
    wait_until(lambda: bus.stats().peers == ())
    mine = f"infobus-{bus.node}-tick"
    ticking = [t.name for t in threading.enumerate() if t.name.endswith("-tick")]
    wait_until(lambda: not [name for name in ticking if name != mine and is_running(name)])


def is_running(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_quality_of_service_can_be_set_up_in_the_file(tmp_path, monkeypatch):
    (tmp_path / "infobus.toml").write_text(
        'classes = ["alarm", "regular"]\n'
        "[upgrade]\nafter_s = 0.5\n"
        "[limits]\nevents_per_s = 10\n"
        "[capacity]\nbytes_per_s = 5\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    assert settings.classes.names == ("alarm", "regular")
    assert settings.upgrade.after_s == 0.5
    assert settings.limits.events_per_s == 10
    assert settings.capacity.bytes_per_s == 5


@pytest.mark.parametrize("text", ["[limits]\nevents_per_s = -1", '[upgrade]\nafter_s = "soon"'])
def test_nonsense_about_quality_of_service_is_refused(tmp_path, monkeypatch, text):
    (tmp_path / "infobus.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"events_per_s|upgrade"):
        load_settings()
