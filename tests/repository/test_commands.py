"""`infobus capture`, `query` and `feed` as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import signal
import time
from pathlib import Path

import pytest

from tests.adapters.test_reuters import RECORD
from tests.cli.running import Shell

FILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "reuters"


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def start_capture(shell, *arguments):
    process = shell.start("capture", "news.>", *arguments)
    line = process.stderr.readline()
    assert line.startswith("capturing news.> into "), line + process.stderr.read()
    return process


def end(process):
    """Its last words."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err.splitlines()[-1]


@pytest.fixture
def captured(shell):
    """A database with two stories of the newswire, and one skipped."""
    two = RECORD + RECORD.replace('NEWID="7"', 'NEWID="8"').replace("tin<", "gold<")
    (shell.folder / "wire.sgm").write_text(two + RECORD.replace("3-MAR", "3-XXX"))
    process = start_capture(shell, "--count", "2")
    code, _, err = shell.run("feed", "reuters", "wire.sgm")
    assert (code, err.splitlines()[-1]) == (1, "2 stories published, 1 skipped")
    assert "skipped the story at line 41: expected a date" in err
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err.splitlines()[-1] == "2 stored"
    return shell


def test_what_was_captured_is_found_under_the_supertype(captured):
    code, out, _ = captured.run("query", "Story", "--where", 'headline matches("TIN")', "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert sorted((row["id"], row["_subject"]) for row in rows) == [
        (7, "news.topic.tin"),
        (8, "news.topic.gold"),
    ]
    assert rows[0]["sources"] == [
        {"_type": "Source", "name": "Reuters", "city": "LA PAZ, Bolivia", "reporter": "Ann Example"}
    ]
    code, out, _ = captured.run("query", "Story", "--order=-published", "--csv", "--limit", "1")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["headline"], row["countries"]) == ("TIN <TIN.L> RISES", '["bolivia","uk"]')
    code, out, _ = captured.run("query", "ReutersStory", "--where", '"gold" in topics')
    assert "ReutersStory" in out and "1 object;" in out
    for wrong, said in (
        (["query", "Storry"], "did you mean Story?"),
        (["query", "Story", "--db", "sqlite:///none.db"], "there is no database none.db"),
        (["query", "Story", "--json", "--csv"], "choose one of them"),
    ):
        code, out, err = captured.run(*wrong)
        assert (code, out) == (2, "") and said in err


def test_a_capture_that_is_told_to_end_stores_what_has_come(shell):
    process = start_capture(shell)
    (shell.folder / "wire.sgm").write_text(RECORD)
    assert shell.run("feed", "reuters", "wire.sgm", "--guaranteed")[0] == 0
    while (said := end(process)) == "0 stored":  # it had not come yet, and waits for the next one
        process = start_capture(shell)
    assert said == "1 stored"
    _, out, _ = shell.run("query", "DataObject", "--json")
    assert json.loads(out)["title"] == "TIN <TIN.L> RISES"


def test_a_capture_answers_queries_from_elsewhere(shell):
    process = start_capture(shell, "--db", "sqlite:///stories.db", "--serve", "svc.stories")
    (shell.folder / "wire.sgm").write_text(RECORD)
    assert shell.run("feed", "reuters", "wire.sgm", "--guaranteed")[0] == 0
    remote = ("--remote", "svc.stories", "--json")
    deadline_s = time.monotonic() + 60
    rows = []
    while not rows:  # until it is stored
        _, out, err = shell.run("query", "Story", "--where", '"tin" in topics', *remote)
        rows = [json.loads(line) for line in out.splitlines()]
        assert rows or time.monotonic() < deadline_s, err
    assert [row["headline"] for row in rows] == ["TIN <TIN.L> RISES"]
    code, out, err = shell.run("query", "Storry", *remote)
    assert (code != 0, out) == (True, "") and "did you mean Story?" in err
    assert end(process) == "1 stored"
    code, _, err = shell.run("query", "Story", *remote)
    assert code != 0 and "nobody served 'svc.stories'" in err


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not FILES.is_dir(), reason="no Reuters files beside the project")
def test_the_real_newswire_goes_through_the_bus_into_tables(shell, url):
    files = sorted(map(str, FILES.glob("*.sgm")))
    process = start_capture(shell, "--db", url, "--count", str(1000 * len(files)))
    feeding = shell.start("feed", "reuters", *files)
    _, err = feeding.communicate(timeout=120)
    assert feeding.returncode == 0, err
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    where = '"cocoa" in topics && published > datetime("1987-02-26T15:00:00Z")'
    _, out, _ = shell.run(
        "query", "Story", "--where", where, "--order=published", "--json", "--db", url
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0]["id"] == 1 and all("cocoa" in row["topics"] for row in rows)
