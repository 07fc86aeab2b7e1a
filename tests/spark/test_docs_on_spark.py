"""What the pages about Spark show is run, one block after the other, in one session."""

import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

import pytest

from infobus import DataObject, Event
from infobus.pipeline.jobs import options_for
from infobus.pipeline.runner.plan import load_plan
from infobus.pipeline.runner.runner import Pipeline
from tests.spark.java import ENVIRONMENT, needs_java
from tests.stores.journals import NOW_S, write

DOCS = Path(__file__).parents[2] / "docs"


class Told(DataObject, name="news.Story"):
    symbol: str
    price: float
    topics: list[str]


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / f"{page}.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_pipelines_and_rules_in_toml_are_taken_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan, spark_settings = blocks("pipeline", "toml")
    Path("newsroom.toml").write_text(plan)
    Pipeline(load_plan(Path("newsroom.toml")))
    assert set(tomllib.loads(spark_settings)) == {"spark"}
    [rules] = blocks("jobs", "toml")
    assert len(options_for("correlate", tomllib.loads(rules)).rules) == 4


END = """
for query in spark.streams.active:
    query.stop()
print(frame.count(), "above 40")
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_examples_run_as_printed_one_after_the_other(tmp_path):
    own = {"INFOBUS_BUS": uuid.uuid4().hex, "INFOBUS_HOME": str(tmp_path)}
    (tmp_path / "rules.toml").write_text("".join(blocks("jobs", "toml")))
    stories = [
        Event(f"news.{n}", Told(symbol="GMC", price=39.0 + n, topics=["oil"]), "s", n, NOW_S + n, n)
        for n in range(4)
    ]
    doors = [Event("door.a", {"room": "a"}, "s", n, NOW_S + n, n) for n in range(4, 8)]
    write(tmp_path / "JOURNAL", stories, doors)
    program = "".join([*blocks("spark", "python"), *blocks("jobs", "python"), END])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, **own},
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "knocking" in done.stdout  # what a rule has found
    assert done.stdout.splitlines()[-1] == "2 above 40"
    assert (tmp_path / "traffic" / "report.md").exists()
