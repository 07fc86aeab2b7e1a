"""Pipelines as TOML files, and what they tell about themselves."""

import io
import os
import re
import zipfile

import pytest
from rich.console import Console

from infobus import UsageError
from infobus.pipeline.runner.cluster import pack
from infobus.pipeline.runner.plan import load_plan
from infobus.pipeline.runner.progress import (
    LOCK,
    JobProgress,
    Status,
    draw,
    is_running,
    read_status,
    summary,
    write_status,
)
from infobus.stores.sqlite.locks import FileLock

PLAN = """
[sources.news]
subject = "news.>"
[jobs.decompose]
source = "news"
options.db = "sqlite://"
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "newsroom.toml"
        path.write_text(text)
        return path

    return write


def test_a_plan_is_named_after_its_file_and_keeps_its_state_beside_it(written):
    path = written(PLAN)
    plan = load_plan(path)
    assert (plan.name, plan.master) == ("newsroom", "local[*]")
    assert plan.state_folder == path.with_suffix(".state")
    assert plan.jobs["decompose"].when == "live"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "missing required field `sources`"),
        ("[sources.news]\n[jobs]", "there is no job in it"),
        ("[sources", "newsroom.toml: "),
        (PLAN + "every = '2 parsecs'", "jobs.decompose.every is '2 parsecs', .* '2 seconds'"),
        (PLAN.replace('"news"', '"nws"'), "jobs.decompose.source is 'nws', .* there are: news"),
        (PLAN.replace("jobs.decompose", "jobs.decomp"), "there is no job 'decomp'; there are deco"),
        (PLAN + 'sink = "x"', "jobs.decompose.sink is 'x', which is not described; .*: none"),
        (PLAN + 'when = "later"', "Invalid enum value 'later'"),
        (PLAN + "wen = 1", "unknown field `wen`"),
        (PLAN.replace('"news.>"', "[1]"), r"Expected `.*`, got `array` - at `\$.sources"),
    ],
)
def test_a_plan_that_cannot_be_run_says_why(written, text, complaint):
    with pytest.raises(UsageError, match=complaint):
        load_plan(written(text))


def test_a_plan_that_is_not_there_or_no_text_says_so(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_plan(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"binary\.toml: "):
        load_plan(tmp_path / "binary.toml")


def status_with(**more):
    job = JobProgress(name="keywords", state="running", events=40, offset=40, end=50, **more)
    return Status(
        name="newsroom",
        master="local[*]",
        pid=os.getpid(),
        began_at=100.0,
        at=107.0,
        phase="live",
        jobs=[job],
    )


def test_a_status_is_read_as_it_was_written(tmp_path):
    assert read_status(tmp_path) is None
    write_status(tmp_path, status_with())
    assert read_status(tmp_path) == status_with()
    (tmp_path / "status.json").write_text('{"name": 1')
    assert read_status(tmp_path) is None


def test_a_status_is_shown_with_what_is_wrong():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(draw(status_with(problem="StoreError: no room")))
    shown = console.export_text()
    for text in ("newsroom on local[*], 7 s: live", "keywords", "running", "10", "no room"):
        assert text in shown
    assert summary(status_with()) == "live; keywords: 40 events, 10 behind"


def test_a_pipeline_runs_as_long_as_somebody_holds_its_lock(tmp_path):
    assert not is_running(tmp_path / "nowhere")
    assert not is_running(tmp_path)
    with FileLock(tmp_path / LOCK) as lock:
        assert lock.acquire()
        assert is_running(tmp_path)


def test_the_package_is_packed_with_its_data_and_without_what_python_makes_of_it(tmp_path):
    with zipfile.ZipFile(pack(tmp_path)) as packed:
        names = packed.namelist()
    assert {"infobus/__init__.py", "infobus/demo/data/newsroom.toml"} <= set(names)
    assert not [name for name in names if re.search(r"\.pyc$|^(?!infobus/)", name)]
