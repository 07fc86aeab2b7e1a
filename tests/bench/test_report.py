"""Tables, JSON and plots from canned numbers."""

import io
import json

import pytest
from rich.console import Console

from infobus.bench.common.engines import INFOBUS
from infobus.bench.common.findings import Findings, print_findings, write_json
from infobus.bench.common.plots import save
from infobus.bench.pubsub.benchmark import findings_of
from infobus.bench.pubsub.scenario import BenchRun, Scenario
from tests.bench.canned import canned_findings


def printed(findings: Findings) -> str:
    console = Console(file=io.StringIO(), width=160)
    print_findings(findings, {"cores": "2"}, console)
    return console.file.getvalue()


def test_a_report_shows_rates_round_trips_and_bars_with_marks():
    text = printed(canned_findings(quick=True))
    assert "Events delivered to each consumer" in text
    assert "Round trips" in text
    assert "1 to 1, 16 B, 10,000 subjects, 10,000 subscriptions" in text
    # The canned infobus is 7/4 times nats: enough for one consumer, not for fourteen.
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
    assert "1.75" in rows["1 to 1, rate to nats"]
    assert "yes" in rows["1 to 1, rate to nats"]
    assert "no" in rows["1 to 14, rate to nats, each consumer"].split("│")[-2]


def test_a_report_says_what_was_left_out_and_what_failed():
    failed = BenchRun(
        scenario=Scenario(engine=INFOBUS), repetition=0, failure="EngineError: [oh] no"
    )
    text = printed(findings_of([failed], 0.1, {"nats": "nats not installed"}))
    assert "nats left out: nats not installed" in text
    assert "EngineError: [oh] no" in text


def test_the_json_holds_every_run_and_the_marks(tmp_path):
    findings = canned_findings(quick=True)
    read = json.loads(write_json(findings, {"cores": "2"}, tmp_path).read_text())
    runs = findings.values["runs"]
    assert len(read["runs"]) == len(runs)
    assert read["runs"][0]["scenario"]["engine"] == runs[0].scenario.engine
    assert [bar["ok"] for bar in read["bars"]] == [bar.ok for bar in findings.bars]
    assert (read["machine"], read["left_out"]) == ({"cores": "2"}, {})


def test_a_full_run_gives_the_papers_figures_and_the_bars_as_png_and_svg(tmp_path):
    pytest.importorskip("matplotlib", reason="needs information-bus[bench]")
    paths = save(canned_findings().drawings, tmp_path)
    names = {"figure5-latency", "figure6-events", "figure7-bytes", "figure8-subjects", "bars"}
    assert {path.stem for path in paths} == names
    assert {path.suffix for path in paths} == {".png", ".svg"}
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_quick_run_has_one_size_only_and_gives_no_curves(tmp_path):
    pytest.importorskip("matplotlib", reason="needs information-bus[bench]")
    paths = save(canned_findings(quick=True).drawings, tmp_path)
    assert {path.stem for path in paths} == {"bars"}


def test_the_same_numbers_give_the_same_svg(tmp_path):
    pytest.importorskip("matplotlib", reason="needs information-bus[bench]")
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save(canned_findings(quick=True).drawings, tmp_path / name)
        texts.append((tmp_path / name / "bars.svg").read_bytes())
    assert texts[0] == texts[1]
