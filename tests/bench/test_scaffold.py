"""What all benchmarks share: turns, ratios within a round, and how findings are shown."""

import io
import json
import sys
from collections import Counter
from importlib import import_module
from itertools import count

import pytest
from rich.console import Console
from typer.testing import CliRunner

from infobus.bench.common.bar import Bar
from infobus.bench.common.findings import Findings, perform
from infobus.bench.common.rounds import (
    Rounds,
    ignore_step,
    ratios,
    rounds_of,
    take_shuffled_turns,
    take_warm_turns,
)
from infobus.bench.common.tables import table_of
from infobus.cli import bench


def noted(names):
    """Turns that note their name, and give the number of the turn."""
    order, numbers = [], count()

    def turn(name):
        return lambda: (order.append(name), next(numbers))[1]

    return order, {name: turn(name) for name in names}


def test_every_round_takes_each_turn_once_in_an_order_that_changes():
    order, turns = noted("abcde")
    taken = take_shuffled_turns(turns, rounds=20, on_step=ignore_step)
    rounds = [tuple(order[start : start + 5]) for start in range(0, 100, 5)]
    assert all(Counter(one) == Counter("abcde") for one in rounds)
    assert len(set(rounds)) > 1
    assert {name: len(values) for name, values in taken.items()} == dict.fromkeys("abcde", 20)


def test_the_round_that_warms_up_does_not_count():
    order, turns = noted("ab")
    taken = take_warm_turns(turns, rounds=2, on_step=ignore_step)
    assert "".join(order) == "ababab"
    assert taken == {"a": [2, 4], "b": [3, 5]}


def test_steps_tell_what_is_measured_and_how_far_it_is():
    heard = []
    turns = {("full", "infobus"): int, ("full", "Spark"): int}
    take_warm_turns(turns, rounds=0, on_step=lambda *step: heard.append(step))
    assert heard == [("full, infobus", 0, 2), ("full, Spark", 1, 2)]


def test_ratios_are_taken_within_a_round():
    found = rounds_of(
        {
            ("load", "ours"): [{"rate": 200.0}, {"rate": 20.0}],
            ("load", "theirs"): [{"rate": 100.0}, {"rate": 10.0}],
        }
    )
    assert ratios(found, ("load", "ours"), ("load", "theirs"), "rate") == [2.0, 2.0]
    assert ratios(found, ("load", "ours"), ("load", "nobody"), "rate") == []
    assert ratios(found, ("load", "ours"), ("load", "theirs"), "p99_s") == []


def found():
    rounds = Rounds(load="echo", engine="infobus", values={"rate": [1.0, 3.0, 2.0]})
    return Findings(
        name="echo",
        tables=[table_of("Echoes", ["load"], ["rate"], [("echo", "2")])],
        values={"found": [rounds]},
        bars=[Bar.over_rounds("echoes", [1.0, 3.0, 2.0], 1.5)],
        notes=["none was [lost]"],
        left_out={"nats": "pip install 'information-bus[bench]'"},
        drawings={"echo": lambda: None},
    )


def performed(out):
    console = Console(file=io.StringIO(), width=120)
    perform(lambda quick, folder, on_step: found(), quick=True, out=out, console=console)
    return console.file.getvalue()


def test_findings_are_printed_and_written_with_every_round_and_verdict(tmp_path):
    text = performed(tmp_path / "new")
    for words in ("Echoes", "none was [lost]", "echoes", "repetitions disagree", "cores: "):
        assert words in text
    assert "nats left out: pip install 'information-bus[bench]'" in text
    written = json.loads((tmp_path / "new" / "echo.json").read_text())
    assert written["found"][0]["values"] == {"rate": [1.0, 3.0, 2.0]}
    assert [(bar["what"], bar["measured"], bar["ok"]) for bar in written["bars"]] == [
        ("echoes", 2.0, True)
    ]
    assert written["left_out"] == {"nats": "pip install 'information-bus[bench]'"}
    assert "cores" in written["machine"]


def test_without_matplotlib_the_numbers_are_still_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = performed(tmp_path)
    assert "pip install '.[bench]'" in text
    assert (tmp_path / "echo.json").exists()


def test_a_narrow_terminal_cuts_no_number():
    words, numbers = ("two suppliers, quick consumer",), ("1,234,567.8", "1.5 / 10.1", "30,717.2")
    columns = ["subscriptions", "from publish to handler", "microseconds"]
    console = Console(file=io.StringIO(), width=45)
    console.print(table_of("Numbers", ["load"], columns, [(*words, *numbers)]))
    text = console.file.getvalue()
    assert all(cell in text for cell in numbers)
    assert all(word in text for word in words[0].split())


COMMANDS = "match guaranteed qos call elvin routers pipeline repository backtest".split()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_benchmark_is_a_command_that_prints_and_writes(name, tmp_path, monkeypatch):
    if name in ("pipeline", "backtest"):
        pytest.importorskip("pyspark")
    asked = []
    module = import_module(f"infobus.bench.{bench.BENCHMARKS[name].module}")
    monkeypatch.setattr(
        module, "run", lambda quick, out, on_step: (asked.append((quick, out)), found())[1]
    )
    result = CliRunner().invoke(bench.app, [name, "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert asked == [(True, tmp_path)]
    assert "Echoes" in result.output
    assert (tmp_path / "echo.json").exists()
