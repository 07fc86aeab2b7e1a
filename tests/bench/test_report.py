"""Tables, JSON and plots from canned numbers."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from infobus.bench.model import INFOBUS, Run, Scenario
from infobus.bench.report import print_report, write_json
from tests.bench.canned import canned_report


def printed(report) -> str:
    console = Console(file=io.StringIO(), width=160)
    print_report(report, console)
    return console.file.getvalue()


def test_a_report_shows_rates_round_trips_and_bars_with_marks():
    text = printed(canned_report(quick=True))
    assert "Events delivered to each consumer" in text
    assert "Round trips" in text
    assert "1 to 1, 16 B, 10,000 subjects, 10,000 subscriptions" in text
    # The canned infobus is 7/4 times nats: enough for one consumer, not for fourteen.
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
    assert "1.75" in rows["1 to 1, rate to nats"]
    assert "yes" in rows["1 to 1, rate to nats"]
    assert "no" in rows["1 to 14, rate to nats, each consumer"].split("│")[-2]


def test_a_report_says_what_was_left_out_and_what_failed():
    failed = Run(scenario=Scenario(engine=INFOBUS), repetition=0, failure="EngineError: [oh] no")
    report = msgspec.structs.replace(
        canned_report(quick=True), runs=[failed], left_out={"nats": "nats not installed"}
    )
    text = printed(report)
    assert "nats left out: nats not installed" in text
    assert "EngineError: [oh] no" in text


def test_the_json_holds_every_run_and_the_marks(tmp_path):
    report = canned_report(quick=True)
    read = json.loads(write_json(report, tmp_path).read_text())
    assert len(read["runs"]) == len(report.runs)
    assert read["runs"][0]["scenario"]["engine"] == report.runs[0].scenario.engine
    assert [bar["ok"] for bar in read["bars"]] == [bar.ok for bar in report.bars]


def test_a_full_run_gives_the_papers_figures_and_the_bars_as_png_and_svg(tmp_path):
    plots = pytest.importorskip("infobus.bench.plots", reason="needs information-bus[bench]")
    paths = plots.write_plots(canned_report(), tmp_path)
    names = {"figure5-latency", "figure6-events", "figure7-bytes", "figure8-subjects", "bars"}
    assert {path.stem for path in paths} == names
    assert {path.suffix for path in paths} == {".png", ".svg"}
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_quick_run_has_one_size_only_and_gives_no_curves(tmp_path):
    plots = pytest.importorskip("infobus.bench.plots", reason="needs information-bus[bench]")
    paths = plots.write_plots(canned_report(quick=True), tmp_path)
    assert {path.stem for path in paths} == {"bars"}


def test_the_same_numbers_give_the_same_svg(tmp_path):
    plots = pytest.importorskip("infobus.bench.plots", reason="needs information-bus[bench]")
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        plots.write_plots(canned_report(quick=True), tmp_path / name)
        texts.append((tmp_path / name / "bars.svg").read_bytes())
    assert texts[0] == texts[1]
