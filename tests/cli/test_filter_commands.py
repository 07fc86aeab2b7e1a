"""`infobus filter explain`, `filter test` and `sub --where`, as processes; and `why` itself."""

import json
import sys

import pytest
from hypothesis import given
from typer.testing import CliRunner

from infobus import DataObject
from infobus.cli.main import app
from infobus.filters import compile
from infobus.filters.language.explanation import why
from tests.cli.running import Shell
from tests.filters.strategies import events, filters

WHERE = 'symbol == "GMC" && (price > 40 || exists(alert))'
TRADES = """\
{"symbol": "GMC", "price": 41.5}
{"symbol": "GMC", "price": 12}
{"price": "high"}
not JSON

[1, 2]
{"symbol": "IBM", "price": 50}
"""


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def run(*arguments, stdin=""):
    """Run `infobus filter ...` in this process; returns exit code and what was printed."""
    result = CliRunner().invoke(app, ["filter", *arguments], input=stdin)
    return result.exit_code, result.output


def said(text, event):
    return [str(reason) for reason in why(compile(text), event)]


class TestWhy:
    @given(filters(), events())
    def test_there_are_reasons_exactly_if_an_event_does_not_match(self, where, event):
        reasons = why(where, event)
        assert bool(reasons) is not where.matches(event)
        for reason in reasons:
            assert reason.truth is not True
            assert compile(reason.condition).evaluate(event) is reason.truth

    @pytest.mark.parametrize(
        ("text", "event", "reasons"),
        [
            ("price > 40", {"price": 12}, ["price > 40: false (price is 12)"]),
            ("price > 40", {}, ["price > 40: undefined (no attribute price)"]),
            ("price > 40", {"price": None}, ["price > 40: undefined (no attribute price)"]),
            (
                "price > 40",
                {"price": "12"},
                ['price > 40: undefined (price is "12", a string)'],
            ),
            ("price > 40", {"price": [1]}, ["price > 40: undefined (price is [1], a list)"]),
            (
                "price > 40",
                {"price": {}},
                ["price > 40: undefined (price is {}, which has no type that filters know)"],
            ),
            ("exists(alert)", {}, ["exists(alert): false"]),
            ("!exists(test)", {"test": 1}, ["!exists(test): false (test is 1)"]),
            ("!(a == 1)", {"a": 1}, ["!(a == 1): false (a is 1)"]),
            (
                "!(a == 1 && b == 2)",
                {"a": 1, "b": 2},
                ["!(a == 1): false (a is 1)", "!(b == 2): false (b is 2)"],
            ),
            ("a == 1 && b == 2", {"a": 1, "b": 3}, ["b == 2: false (b is 3)"]),
            ("a < b", {"a": 2, "b": 1.5}, ["a < b: false (a is 2, b is 1.5)"]),
            ("a ^^ b", {"a": True, "b": True}, ["a ^^ b: false (a is true, b is true)"]),
            ('isa("x.Y")', {}, ['isa("x.Y"): false (it has no type)']),
            (
                "a / b > 1",
                {"a": 1, "b": 0},
                ["a / b > 1: undefined (a is 1, an int32, b is 0, an int32)"],
            ),
        ],
    )
    def test_reasons_name_the_condition_and_what_it_saw(self, text, event, reasons):
        assert said(text, event) == reasons

    def test_a_typed_object_says_what_it_is(self):
        class Tick(DataObject, name="explained.Tick"):
            price: float

        assert said('isa("x.Y")', Tick(price=1.0)) == [
            'isa("x.Y"): false (it is of type explained.Tick)'
        ]

    def test_long_values_are_cut_short(self):
        (reason,) = said("size(text) < 5", {"text": "x" * 10_000})
        assert len(reason) < 120


class TestExplain:
    def test_a_filter_is_taken_apart(self, shell):
        code, out, err = shell.run("filter", "explain", '40<price && "GMC"==symbol')
        assert (code, err) == (0, "")
        said = {line[:13].strip(): line[13:].strip() for line in out.splitlines()}
        assert said["filter"] == 'price > 40 && symbol == "GMC"'
        assert said["tree"] == "&& all of"
        assert "├── price > 40" in out
        assert said["attributes"] == "price, symbol"
        assert said["SQL"] == "price > 40 AND symbol = 'GMC'"
        assert said["left over"] == "nothing"

    def test_tools_get_the_same_as_json(self):
        where = 'price > 40 && (price > 50 || !exists(x)) && regex(name, "^G")'
        explained = json.loads(run("explain", "--json", where)[1])
        assert explained["filter"] == where
        assert explained["attributes"] == ["name", "price", "x"]
        assert explained["reduced"].startswith('(regex(name, "^G") && price > 50) || ')
        assert explained["tree"]["parts"][1] == {
            "node": "|| any of",
            "parts": [
                {"node": "price > 50", "parts": []},
                {"node": "! not", "parts": [{"node": "exists(x)", "parts": []}]},
            ],
        }
        assert explained["sql"] == {
            "columns": {"name": "VARCHAR", "price": "BIGINT", "x": "VARCHAR"},
            "condition": "price > 40 AND (price > 50 OR x IS NULL) AND name IS NOT NULL",
            "residual": 'regex(name, "^G")',
        }

    @pytest.mark.parametrize(
        ("where", "reduced"),
        [
            ("a > 1 && a < 1", "nothing: none can match"),
            ("exists(a) || !exists(a)", "everything: every event matches"),
        ],
    )
    def test_filters_that_choose_nothing_are_told(self, where, reduced):
        assert reduced in run("explain", where)[1]

    def test_without_sqlalchemy_the_rest_is_shown(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "infobus.filters.pushdown.sql", raising=False)
        monkeypatch.delattr("infobus.filters.pushdown.sql", raising=False)
        monkeypatch.setitem(sys.modules, "sqlalchemy", None)
        _, output = run("explain", "price > 40")
        assert "pip install '.[sql]'" in " ".join(output.split())
        assert "attributes" in output


class TestTest:
    def test_events_that_do_not_match_say_why(self, shell):
        code, out, err = shell.run("filter", "test", WHERE, stdin=TRADES)
        assert code == 0
        assert out.splitlines()[:3] == [
            "line 2: price > 40: false (price is 12); exists(alert): false",
            'line 3: symbol == "GMC": undefined (no attribute symbol); price > 40: undefined '
            '(price is "high", a string); exists(alert): false',
            'line 7: symbol == "GMC": false (symbol is "IBM")',
        ]
        summary = [line.strip() for line in out.splitlines()[3:] if line.strip()]
        assert summary[0].split() == ["1", "matched"]
        assert summary[1].split() == ["3", "did", "not", "match"]
        assert summary[2] == "2 exists(alert): false"
        assert summary[-1].split() == ["2", "bad", "lines"]
        assert [line.split(":")[0] for line in err.splitlines()] == ["line 4", "line 6"]

    def test_tools_get_one_object_per_event_and_a_summary(self, shell):
        out = shell.run("filter", "test", "--json", WHERE, stdin=TRADES)[1]
        *lines, last = map(json.loads, out.splitlines())
        assert [(line["line"], line["result"]) for line in lines] == [
            (1, True),
            (2, False),
            (3, None),
            (7, False),
        ]
        assert lines[0]["why"] == []
        assert lines[3]["why"] == [
            {"condition": 'symbol == "GMC"', "truth": False, "because": 'symbol is "IBM"'}
        ]
        assert last == {"summary": {"matched": 1, "false": 2, "undefined": 1, "bad": 2}}

    def test_that_none_matched_is_an_exit_code(self):
        assert run("test", "price > 99", stdin=TRADES)[0] == 1
        assert run("test", "price > 99")[0] == 1

    def test_what_sub_printed_can_be_tried(self):
        event = {"subject": "a", "type": None, "data": {"price": 41}, "id": "n:1"}
        line = json.dumps({**event, "sender": "n", "seq": 1, "time": 1.0})
        assert run("test", "price > 40", stdin=line)[0] == 0

    def test_a_hostile_line_does_not_reach_the_terminal(self):
        code, output = run("test", "a > 1", stdin='{"a": "\\u001b[2J"}\n{"\x1b[2J": }\n')
        assert code == 1
        assert "\\x1b[2J" in output
        assert "\x1b" not in output


class TestWhere:
    def test_only_what_the_filter_is_true_of_is_shown(self, shell):
        watching = shell.listen("trades.>", "--where", WHERE, "--json", "--count", "2")
        lines = 'trades.a {"symbol": "GMC", "price": %s}\n' * 3 % (41, 12, 43)
        assert shell.run("pub", "-", stdin=lines)[0] == 0
        events = [json.loads(line) for line in watching.communicate(timeout=60)[0].splitlines()]
        assert [event["data"]["price"] for event in events] == [41, 43]

    def test_what_is_listened_for_is_told(self, shell):
        code, _, err = shell.run("sub", "a", "--where", "40<price", "--seconds", "0")
        assert code == 0
        assert err.startswith("listening on a where price > 40 (bus")

    def test_a_bad_expression_is_shown_with_its_place_and_a_hint(self, shell):
        code, out, err = shell.run("sub", "a", "--where", "40 < price and test")
        assert (code, out) == (2, "")
        assert err == (
            "infobus: expected an operator or the end, got 'and'\n"
            "  40 < price and test\n"
            "             ^\n"
            "hint: write &&\n"
        )
