"""`infobus demo newsroom` as a user runs it: feeds, bus, journal, Spark, repository, report.

Over the real newswire of 1987 where it is at hand, else over the two sample feeds.
"""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from infobus.adapters.reuters import read_files
from infobus.adapters.stories import Bulletin
from infobus.repository import Repository
from tests.cli.running import Shell
from tests.spark.java import needs_java, quick_java

__all__ = ["quick_java"]

NEWSWIRE = Path(__file__).parents[3] / "shared" / "data" / "reuters"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("quick_java"),
    needs_java,
]


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def test_stories_are_stored_annotated_and_reported(shell, tmp_path):
    wire = sorted(NEWSWIRE.glob("*.sgm"))
    given = [argument for path in wire for argument in ("--wire", str(path))]
    demo = shell.start("demo", "newsroom", "--out", "room", "--seconds", "1", *given)
    out, err = demo.communicate(timeout=800)
    assert (demo.returncode, err) == (0, "")
    shown, _, after = out.partition("The newsroom is closed.")
    for phase in ("starting Spark", "live", "ending", "running traffic", "ended"):
        assert f"-- The pipeline: {phase}." in shown
    assert re.search("^keywords for .*: ", shown, re.MULTILINE)
    [told] = re.findall(r"([\d,]+) stories: ", after)
    assert "Classes" in after
    with Repository(f"sqlite:///{tmp_path}/room/news.db") as repository:
        stories = repository.query("Story")
        properties = repository.query("Property")
    assert len(stories) == int(told.replace(",", ""))
    if wire:
        assert len(stories) == sum(isinstance(one, Bulletin) for one in read_files(wire))
    else:
        assert {type(one).__name__ for one in stories} == {"HarborStory", "MeridianStory"}
    annotated = [one for one in stories if "keywords" in stories.properties_of(one)]
    assert len(annotated) == len(properties) > 0
    assert (tmp_path / "room" / "traffic" / "report.md").stat().st_size
    assert (tmp_path / "room" / "traffic" / "traffic.png").read_bytes().startswith(b"\x89PNG")


def test_control_c_ends_all_of_it_at_once(shell, tmp_path):
    demo = shell.start("demo", "newsroom", "--out", "room", start_new_session=True)
    for line in demo.stdout:
        if "The pipeline: starting Spark" in line:
            break
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 3
    os.killpg(demo.pid, signal.SIGINT)
    out, _ = demo.communicate(timeout=60)
    assert "The newsroom is closed before its time" in out
    assert demo.returncode == 0
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
