"""`infobus pub`, `sub`, `types` and `describe`, in this process, beside a node of the test.

What needs a process of its own, such as a signal or a pipe, is in `tests/processes`.
"""

import json
from datetime import datetime

import pytest

import infobus
from infobus.cli.lines import event_json, event_line
from infobus.headers import Headers
from tests.bus.helpers import wait_until
from tests.objects import worlds


def test_watching_ends_when_time_is_up(run):
    assert run("sub", "news.>", "--seconds", "0.1")[:2] == (0, "")


def test_what_nobody_wants_is_said_to_be_quenched(run):
    said = "nobody subscribes to news.a, so it was not sent (quenched)\n"
    assert run("pub", "news.a", "x=1") == (0, "", said)
    assert run("pub", "news.a", "x=1", "--wait", "0.1") == (1, "", said)


def test_urgent_events_overtake_and_old_ones_are_let_go(run, bus):
    city = bus.subscribe("city.>")
    assert run("pub", "city.library", "n:=1") == (0, "", "")
    assert run("pub", "city.order", "n:=2", "--max-age", "1") == (0, "", "")
    assert run("pub", "city.911", "n:=3", "--priority", "emergency") == (0, "", "")
    wait_until(lambda: bus.stats().expired == 1, 60)
    assert [city.receive(60).data["n"] for _ in range(2)] == [3, 1]


def test_classes_and_ages_that_there_are_not(run):
    code, _, err = run("pub", "news.a", "x=1", "--priority", "urgent")
    assert code == 2
    assert "no priority class 'urgent': this bus has emergency, business, regular" in err
    code, _, err = run("sub", "news.a", "--max-age", "-1")
    assert code == 2
    assert "expected a number of seconds above 0" in err


def test_options_that_contradict_each_other(run):
    for arguments in (
        ("pub", "news.a", "x=1", "--guaranteed", "--wait", "1"),
        ("sub", "news.a", "--durable", "archive", "--priority", "business"),
    ):
        code, _, err = run(*arguments)
        assert (code, err[:9]) == (2, "infobus: "), arguments


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["pub", "news..a", "x=1"], "subject 'news..a' has an empty element"),
        (["pub", "news.*", "x=1"], "holds the wildcard '*'"),
        (["pub", "news.a", '{"x": 1'], "the object is not JSON"),
        (["pub", "news.a", "x"], "'x' is not an attribute"),
        (["pub", "news.a"], "nothing to publish under news.a"),
        (["sub", "news.>.a"], "'>'"),
        (["types", "Nothing"], "knows a type 'Nothing'"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line_with_exit_code_2(run, arguments, problem):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.startswith("infobus: ")
    assert err.count("\n") == 1


def test_two_definitions_of_a_type_are_both_shown(run, monkeypatch):
    known = []
    for kind in (int, float):
        with worlds.another_process():
            cls = infobus.define_type("cli.Order", [], {"total": kind})
            known.append(cls.__bus_type__)
    monkeypatch.setattr(infobus.Bus, "types", lambda bus: known)
    code, out, err = run("types", "cli.Order")
    assert (code, err) == (0, "2 definitions of cli.Order live on the bus\n")
    assert ("total: int" in out, "total: float" in out) == (True, True)


def test_an_endpoint_that_is_none(run):
    code, out, err = run("sub", "a", "--connect", "nonsense")
    assert (code, out) == (2, "")
    assert "connect: 'nonsense' is not an endpoint" in err
    assert err.count("\n") == 1


def test_an_endpoint_that_nobody_answers_at(run, monkeypatch, tmp_path):
    settings = tmp_path / "hasty.toml"
    settings.write_text("[patience]\nreach_s = 0.6\n")
    monkeypatch.setenv("INFOBUS_SETTINGS", str(settings))
    code, out, err = run("sub", "a", "--connect", "tcp/127.0.0.1:1")
    assert (code, out) == (1, "")
    assert "nothing that `connect` names was reached in 0.6 s" in err
    assert "tcp/127.0.0.1:1: connection refused" in err
    assert ".rs:" not in err


def test_an_option_that_does_not_exist(run):
    code, _, err = run("sub", "a", "--jsn")
    assert code == 2
    assert "--jsn" in err
    assert "Traceback" not in err


def test_describe_says_when_nothing_came(run):
    code, out, err = run("describe", "quotes.>", "--seconds", "0.1")
    assert (code, out) == (1, "")
    assert err.endswith("infobus: no event on quotes.> in 0.1 s\n")


def test_describe_shows_a_type_as_json(run):
    class Tide(infobus.DataObject, name="described.Tide"):
        height: float

    code, out, _ = run("describe", "described.Tide", "--json")
    assert code == 0
    assert json.loads(out) == infobus.type_of(Tide).to_dict()


def test_headers_are_given_and_shown(run, bus):
    wanted = bus.subscribe("news.>")
    told = ("--header", "trace=4bf92f", "--header", "n:=2", "--header", "is_last:=true")
    assert run("pub", "news.a", "x=1", *told) == (0, "", "")
    event = wanted.receive(60)
    assert dict(event.headers) == {"trace": "4bf92f", "n": 2, "is_last": True}
    assert event_line(event).plain.endswith(" x='1' [trace='4bf92f', n=2, is_last=True]")
    for bad in ("=x", "trace", "trace:=null"):
        code, _, err = run("pub", "news.a", "x=1", "--header", bad)
        assert (code, "header" in err) == (2, True)


def test_headers_of_every_kind_go_through_json_and_back(run, bus):
    headers = {"key": b"\0", "share": 1.0, "inf": float("inf"), "n": 1, "is_last": True}
    event = infobus.Event("news.a", {"x": 1}, "node", 1, 1.5, 1, headers=Headers(headers))
    wanted = bus.subscribe("news.>")
    assert run("pub", "-", stdin=event_json(event) + "\n") == (0, "", "")
    again = dict(wanted.receive(60).headers)
    assert again == headers
    assert list(map(type, again.values())) == list(map(type, headers.values()))


def test_the_stats_of_nodes_are_a_table_or_lines(run, bus):
    code, out, _ = run("stats")
    assert code == 0
    assert bus.node.split("-")[-2] in out
    assert "quenched/s" in out
    code, out, _ = run("stats", "--json")
    assert json.loads(out.splitlines()[0])["node"] == bus.node


def test_a_text_and_bytes_are_published_as_they_are(run, bus, tmp_path):
    got = bus.subscribe("door.>")
    photo = tmp_path / "photo"
    photo.write_bytes(b"\0\xff=a")
    for arguments, stdin, data in (
        (("--text", "hello {n}=1"), "", "hello {n}=1"),
        (("--text", ""), "", ""),
        (("--text", "-"), "two\nlines\n", "two\nlines\n"),
        (("--raw", str(photo)), "", b"\0\xff=a"),
        (("--raw", "-"), "as it is\n", b"as it is\n"),
    ):
        assert run("pub", "door.a", *arguments, stdin=stdin) == (0, "", "")
        assert got.receive(60).data == data


def test_what_is_published_many_times_has_its_templates_filled_in(run, bus):
    got = bus.subscribe("oven.>")
    items = ("n:={n}", "name=oven {n} {x}", "at={time}", "luck:={random}")
    assert run("pub", "oven.a", *items, "--count", "3", "--sleep", "0.01") == (0, "", "")
    all_data = [got.receive(60).data for _ in range(3)]
    assert [(one["n"], one["name"]) for one in all_data] == [
        (number, f"oven {number} {{x}}") for number in (1, 2, 3)
    ]
    assert all(datetime.fromisoformat(one["at"]).tzinfo for one in all_data)
    assert all(0 <= one["luck"] < 1_000_000 for one in all_data)
    assert run("pub", "oven.a", "n={n}") == (0, "", "")
    assert got.receive(60).data == {"n": "{n}"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("a", "--text", "x", "--raw", "-"),
        ("a", "y=1", "--text", "x"),
        ("a", "-", "--text", "x"),
        ("-", "--text", "x"),
        ("a", "--text", "x", "--type", "Story"),
        ("a", "-", "--count", "2"),
        ("a", "x=1", "--sleep", "1"),
        ("a", "--raw", "/nowhere"),
    ],
)
def test_what_cannot_be_said_together_is_refused(run, arguments):
    code, out, err = run("pub", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--" in err
