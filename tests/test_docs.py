"""What the documentation shows is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = [
    pytest.param(block, id=f"{page}{number}")
    for page in ("quickstart", "guaranteed", "qos", "repository", "services")
    for number, block in enumerate(
        re.findall(r"```python\n(import .*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_run_as_printed(block: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block)
    # A bus and a home of its own: what others published must not come here.
    own = {"INFOBUS_BUS": uuid.uuid4().hex, "INFOBUS_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | own,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "an example should show something"
    assert not done.stderr


def test_every_room_is_on_the_plan_of_the_house() -> None:
    package = DOCS.parent / "src" / "infobus"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    rooms |= {path.stem for path in package.glob("[!_]*.py")}
    plan = (DOCS / "architecture.md").read_text()
    lines = re.findall(r"^\| (`.*?) \|", plan, re.MULTILINE)
    assert rooms == {room for line in lines for room in re.findall(r"`(\w+)`", line)}


def test_contributors_are_told_how_long_a_test_may_take() -> None:
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())
    timeout_s = settings["tool"]["pytest"]["ini_options"]["timeout"]
    told = " ".join((DOCS.parent / "CONTRIBUTING.md").read_text().split())
    assert f"each test has {timeout_s} seconds" in told


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
