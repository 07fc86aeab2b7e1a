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


def test_an_attribute_can_be_indexed(captured):
    assert captured.run("repository", "index", "Story", "published") == (
        0,
        "published is indexed in 2 tables\n",
        "",
    )
    code, _, err = captured.run("repository", "index", "Story", "publishd")
    assert code == 2 and "did you mean published?" in err


def test_objects_can_be_deleted(captured):
    code, out, _ = captured.run("repository", "delete", "Story", "--where", "id == 7", "--yes")
    assert (code, out) == (0, "1 objects deleted\n")
    assert captured.run("repository", "prune", "--keep-days", "1")[1] == "0 objects deleted\n"
    code, _, err = captured.run("repository", "delete", "Story", "--before", "noon", "--yes")
    assert code == 2 and "expected a time" in err
    assert captured.run("repository", "prune", "--keep-days", "0")[1] == "1 objects deleted\n"


def test_a_capture_deletes_what_is_too_old(captured):
    process = start_capture(captured, "--keep-days", "0", "--seconds", "1")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    code, out, _ = captured.run("query", "Story", "--json")
    assert (code, out) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_capture_that_a_script_started_in_the_background_can_be_stopped(shell, number):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `command &`
    try:
        process = start_capture(shell)
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (0, "0 stored")


def test_a_file_that_is_not_of_the_newswire_is_an_error(shell):
    (shell.folder / "notes.txt").write_text("nothing of the kind\n")
    code, _, err = shell.run("feed", "reuters", "notes.txt")
    assert code == 2 and "notes.txt is not of the Reuters newswire" in err


def test_a_story_with_an_impossible_hour_is_told(shell):
    (shell.folder / "wire.sgm").write_text(RECORD.replace("3-MAR-1987 09", "3-MAR-1987 609"))
    code, _, err = shell.run("feed", "reuters", "wire.sgm")
    assert code == 0 and "the hour of" in err and "does not exist" in err
