"""`infobus pub`, `sub`, `types` and `describe`, each in a process of its own."""

import json
import shlex
import signal
import subprocess
import uuid
from datetime import date
from decimal import Decimal

import pytest

import infobus
from infobus import DataObject
from tests.cli.running import COMMAND, Shell


class Quote(DataObject, name="cli_process.Quote"):
    """What something costs."""

    symbol: str
    price: float = 1.0


class Part(DataObject, name="round_trip.Part"):
    seal: bytes


class Measure(DataObject, name="round_trip.Measure"):
    price: Decimal
    day: date
    parts: list[Part]


class LateQuote(Quote, name="cli_process.LateQuote"):
    minutes: int = 15


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def bus(shell):
    """A program on the same bus, which knows the types above."""
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        yield bus


def numbers_in(watching):
    """The n of all events that a watching process shows."""
    return [json.loads(line)["data"]["n"] for line in watching.communicate(timeout=60)[0].split()]


class TestPubAndSub:
    def test_two_terminals_talk_with_nothing_else_started(self, shell):
        watching = shell.listen("news.>", "--count", "2")
        assert shell.run("pub", "news.equity.gmc", "headline=GM up", "price:=41.5") == (0, "", "")
        assert shell.run("pub", "news.equity.gmc", '{"headline": "GM down"}')[0] == 0
        first, second = watching.communicate(timeout=60)[0].splitlines()
        assert first.endswith("news.equity.gmc - headline='GM up' price=41.5")
        assert second.endswith("news.equity.gmc - headline='GM down'")
        assert watching.returncode == 0

    def test_json_for_other_programs(self, shell, bus):
        watching = shell.listen("quotes.*", "--json")
        bus.publish("quotes.gmc", Quote(symbol="GMC", price=41.5))
        event = json.loads(watching.stdout.readline())
        assert event["data"] == {"symbol": "GMC", "price": 41.5}
        assert event["subject"] == "quotes.gmc"
        assert event["type"] == "cli_process.Quote"
        assert event["sender"] == bus.node
        assert {"id", "seq", "time"} <= set(event)

    def test_full_shows_all_of_an_object(self, shell, bus):
        watching = shell.listen("quotes.*", "--full", "--count", "1")
        bus.publish("quotes.gmc", LateQuote(symbol="GMC"))
        out, _ = watching.communicate(timeout=60)
        assert "cli_process.LateQuote (supertypes: cli_process.Quote)" in out
        assert "minutes: int = 15" in out

    def test_a_bus_of_another_name_is_not_heard(self, shell):
        watching = shell.listen("news.>", "--count", "1")
        other = f"other-{uuid.uuid4().hex[:8]}"
        assert "nobody subscribes" in shell.run("pub", "news.a", "x=there", "--bus", other)[2]
        shell.run("pub", "news.a", "x=here")
        assert watching.communicate(timeout=60)[0].endswith("x='here'\n")

    def test_a_lossless_stream_of_lines_arrives_whole(self, shell):
        watching = shell.listen("lines.>", "--json", "--count", "1000")
        lines = "".join(f'lines.n{i % 7} {{"number": {i}}}\n' for i in range(1000))
        assert shell.run("pub", "-", stdin=lines) == (0, "", "")
        events = [json.loads(line) for line in watching.communicate(timeout=60)[0].splitlines()]
        assert [event["data"]["number"] for event in events] == list(range(1000))
        assert events[8]["subject"] == "lines.n1"

    def test_what_sub_prints_as_json_pub_publishes_again(self, shell, bus):
        watching = shell.listen("quotes.>", "--json", "--count", "2")
        bus.publish("quotes.gmc", Quote(symbol="GMC", price=41.5), priority="business")
        bus.publish("quotes.raw", {"n": 1})
        printed = watching.communicate(timeout=60)[0]
        again = bus.subscribe("quotes.>")
        assert shell.run("pub", "-", stdin=printed) == (0, "", "")
        events = [again.receive(60) for _ in range(2)]
        assert {(event.subject, event.priority) for event in events} == {
            ("quotes.gmc", "business"),
            ("quotes.raw", "regular"),
        }
        assert Quote(symbol="GMC", price=41.5) in [event.data for event in events]
        code, _, err = shell.run("pub", "-", stdin='{"data": 1}')
        assert code == 2
        assert "line 1: expected an event as `infobus sub --json` prints it" in err

    def test_typed_objects_go_on_to_a_bus_where_nobody_knows_their_type(self, shell, bus):
        sent = [
            Measure(price=Decimal("41.10"), day=date(2026, 11, 19), parts=[Part(seal=b"\0")]),
            "two\nlines",
            b"\0\xff",
            {"raw": b"\1", "like": {"$bytes": "no"}, "inf": float("inf")},
        ]
        watching = shell.listen("rt.a", "--json", "--count", str(len(sent)))
        for obj in sent:
            bus.publish("rt.a", obj)
        lines = watching.communicate(timeout=60)[0]
        with infobus.connect(f"{shell.bus}-other", home=shell.folder / "other") as other:
            got = other.subscribe("rt.a")
            said = shell.run("pub", "-", "--bus", other.name, "--wait", "60", stdin=lines)
            assert said == (0, "", "")
            assert [got.receive(60).data for _ in sent] == sent
        code, _, err = shell.run(
            "pub", "-", stdin='{"subject":"a","data":{},"descriptors":["AA=="]}'
        )
        assert (code, "line 1: descriptors: " in err) == (2, True)

    def test_nothing_at_all_is_an_error(self, shell):
        code, _, err = shell.run("pub", stdin="")
        assert (code, err[:31]) == (2, "infobus: nothing to publish: gi")

    def test_lines_under_one_subject(self, shell):
        watching = shell.listen("lines.a", "--json", "--count", "2")
        assert shell.run("pub", "lines.a", "-", stdin='{"n": 1}\n\n{"n": 2}\n')[0] == 0
        assert [json.loads(line)["data"]["n"] for line in watching.stdout] == [1, 2]

    def test_bad_lines_are_reported_and_skipped(self, shell):
        watching = shell.listen("lines.>", "--json", "--count", "1")
        lines = 'no object\nlines..a {}\nlines.a {"n": }\nlines.a {"n": 4}\n'
        code, _, err = shell.run("pub", "-", stdin=lines)
        assert code == 2
        assert [line.split(":")[0] for line in err.splitlines()] == ["line 1", "line 2", "line 3"]
        assert json.loads(watching.stdout.readline())["data"] == {"n": 4}

    def test_who_waits_is_told_when_somebody_subscribes(self, shell):
        waiting = shell.start("pub", "news.a", "x=1", "--wait", "60")
        watching = shell.listen("news.*", "--count", "1")
        assert watching.communicate(timeout=60)[0].endswith("x='1'\n")
        assert waiting.communicate(timeout=60) == ("", "")
        assert waiting.returncode == 0

    def test_a_consumer_may_ask_for_a_class_and_an_age(self, shell, bus):
        watching = shell.listen("city.>", "--priority", "business", "--max-age", "60")
        lane = bus.subscribe("city.>")
        bus.publish("city.library", {"n": 1})
        assert lane.receive(60).priority == "regular"
        assert watching.stdout.readline().endswith("n=1\n")
        [request] = bus._runtime.node.rows.records.popitem()[1].requests
        assert (request.class_, request.max_age) == ("business", 60.0)

    def test_guaranteed_events_wait_for_a_durable_consumer(self, shell):
        durable = ("news.>", "views.>", "--durable", "archive", "--json")
        shell.listen(*durable, "--seconds", "0").communicate(timeout=60)
        lines = 'news.a {"n": 1}\nviews.a {"n": 2}\nnews.a {"n": 3}\n'
        assert shell.run("pub", "-", "--guaranteed", stdin=lines) == (0, "", "")
        watching = shell.listen(*durable, "--count", "2")
        assert numbers_in(watching) == [1, 2]
        assert numbers_in(shell.listen(*durable, "--count", "1")) == [3], "what was shown is over"

    def test_typed_objects_of_a_type_that_somebody_knows(self, shell, bus):
        quotes = bus.subscribe("quotes.>")
        typed = ("pub", "quotes.gmc", "--type", "cli_process.Quote")
        assert shell.run(*typed, "symbol=GMC", "price=41.5") == (0, "", "")
        assert quotes.receive(60).data == Quote(symbol="GMC", price=41.5)
        code, _, err = shell.run(*typed, "symbol=GMC", "price=high")
        assert (code, err) == (
            2,
            "infobus: cli_process.Quote.price: expected float, got str 'high'\n",
        )

    def test_an_unknown_type_is_named_with_the_nearest(self, shell, bus):
        code, _, err = shell.run("pub", "quotes.gmc", "--type", "cli_process.Quot", "symbol=GMC")
        assert code == 2
        assert "knows a type 'cli_process.Quot'; did you mean cli_process.Quote?" in err


class TestWhatGoesWrong:
    def test_bytes_that_are_no_text(self, shell):
        process = subprocess.run(
            [*COMMAND, "pub", "-"],
            input=b'news.a {"x": "\xff"}\n',
            capture_output=True,
            env=shell.environment,
            cwd=shell.folder,
            timeout=60,
        )
        assert process.returncode == 2
        assert process.stderr.startswith(b"line 1: ")
        assert b"Traceback" not in process.stderr

    @pytest.mark.parametrize("arguments", ["pub", "pub -", "pub news.a -"])
    def test_nothing_to_read_from(self, shell, arguments):
        closed = f"{shlex.join(COMMAND)} {arguments} <&-"
        process = subprocess.run(
            ["sh", "-c", closed],
            capture_output=True,
            text=True,
            env=shell.environment,
            cwd=shell.folder,
            timeout=60,
        )
        assert process.returncode == 2
        assert process.stderr == "infobus: there is nothing to read: standard input is closed\n"

    def test_a_pipe_that_is_closed_early(self, shell, bus):
        watching = shell.listen("n.>", "--json")
        bus.publish("n.a", {"n": 1})
        assert json.loads(watching.stdout.readline())["data"] == {"n": 1}
        watching.stdout.close()
        bus.publish("n.a", {"n": 2})
        assert watching.wait(60) != 0
        assert watching.stderr.read() == ""

    def test_control_c_ends_quietly(self, shell):
        watching = shell.listen("news.>")
        watching.send_signal(signal.SIGINT)
        assert watching.communicate(timeout=60) == ("", "")
        assert watching.returncode == 130


class TestTypesAndDescribe:
    def test_types_on_the_bus_with_subtypes_indented(self, shell, bus):
        # Other tests of this process may have made types with long names, which fill the line.
        shell.environment["COLUMNS"] = "1000"
        code, out, _ = shell.run("types")
        lines = [line.rstrip() for line in out.splitlines() if "cli_process" in line]
        assert code == 0
        assert lines[0].split(maxsplit=1) == ["cli_process.Quote", "symbol: str, price: float"]
        assert lines[1].startswith("   cli_process.LateQuote")

    def test_one_type_in_full(self, shell, bus):
        _, out, _ = shell.run("types", "cli_process.Quote")
        assert "What something costs." in out
        assert "price: float = 1.0" in out
        assert "subtypes: cli_process.LateQuote" in out

    def test_types_as_json(self, shell, bus):
        known = [json.loads(line) for line in shell.run("types", "--json")[1].splitlines()]
        late = next(each for each in known if each["name"] == "cli_process.LateQuote")
        assert late["supertypes"] == ["cli_process.Quote"]

    def test_describe_a_type(self, shell, bus):
        assert "minutes: int = 15" in shell.run("describe", "cli_process.LateQuote")[1]

    def test_describe_the_next_object(self, shell, bus):
        describing = shell.start("describe", "quotes.>")
        assert describing.stderr.readline().endswith("listening on quotes.>\n")
        bus.publish("quotes.gmc", LateQuote(symbol="GMC"))
        out, _ = describing.communicate(timeout=60)
        assert "quotes.gmc cli_process.LateQuote" in out
        assert "symbol: str = 'GMC'" in out

    def test_the_shell_completes_names_of_types(self, shell, bus):
        shell.environment |= {
            "_INFOBUS_COMPLETE": "complete_bash",
            "COMP_WORDS": "infobus types cli_process.L",
            "COMP_CWORD": "2",
        }
        completing = subprocess.run(
            [COMMAND[0], "-c", "from infobus.cli.main import app; app(prog_name='infobus')"],
            env=shell.environment,
            cwd=shell.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert completing.stdout.split() == ["cli_process.LateQuote"]


def test_sub_prints_lines_of_your_own(shell):
    watching = shell.listen("news.>", "-F", "{subject}={data[x]}", "--count", "1")
    assert shell.run("pub", "news.a", "x=a\x1bb") == (0, "", "")
    assert watching.communicate(timeout=60)[0] == "news.a=a\\x1bb\n"
    code, _, err = shell.run("sub", "a", "--json", "-F", "{subject}")
    assert (code, err) == (2, "infobus: --json, --full and --format exclude each other\n")
