"""What the documentation shows is run."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

import pytest

from infobus import Bounds, Patience
from infobus.bus.settings import Settings, load_settings

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = [
    pytest.param(block, id=f"{page}{number}")
    for page in (
        "quickstart",
        "guaranteed",
        "limits",
        "membership",
        "payloads",
        "qos",
        "repository",
        "services",
    )
    for number, block in enumerate(
        re.findall(r"```python\n(import .*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    )
]

PACKAGE = DOCS.parent / "src" / "infobus"
PLAN = (DOCS / "architecture.md").read_text()
MAPS = {
    tuple(re.findall(r"`(\w+)`", heading)): text
    for heading, text in re.findall(r"^### (`.*)\n([^#]*)", PLAN, re.MULTILINE)
}


@pytest.mark.world
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


def test_the_quick_start_shows_every_setting_and_a_node_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "quickstart.md").read_text()
    text = page[page.index("## Settings") :].split("```toml\n")[1].split("```")[0]
    shown = tmp_path / "infobus.toml"
    shown.write_text(text)
    monkeypatch.setenv("INFOBUS_SETTINGS", str(shown))
    load_settings()
    assert set(tomllib.loads(text)) == set(Settings.__struct_fields__)


def test_every_room_is_on_the_plan_of_the_house() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {path.stem for path in PACKAGE.glob("[!_]*.py")}
    assert rooms == {room for names in MAPS for room in names}


@pytest.mark.parametrize("rooms", MAPS, ids="+".join)
def test_the_map_of_a_room_shows_its_folders_and_nothing_that_is_not_there(
    rooms: tuple[str, ...],
) -> None:
    shown = {
        name
        for cell in re.findall(r"^\| (`.*?) \|", MAPS[rooms], re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cell)
    }
    homes = [PACKAGE / room for room in rooms] + [PACKAGE]
    assert not [name for name in shown if not any((home / name).exists() for home in homes)]
    if shown:  # else the room is told of in a sentence
        folders = {
            f"{path.parent.name}/"
            for room in rooms
            for path in PACKAGE.glob(f"{room}/*/__init__.py")
        }
        assert folders <= shown


def test_every_path_on_the_plan_of_the_house_leads_somewhere() -> None:
    paths = set(re.findall(r"`([\w/]+/[\w./]+|\w+\.(?:py|md|svg))`", PLAN))
    assert "bus/deliver/full_queue.py" in paths  # the search finds what is there
    homes = [PACKAGE, DOCS.parent, *(PACKAGE / room for names in MAPS for room in names)]
    assert not [path for path in paths if not any((home / path).exists() for home in homes)]


def locks_on_the_plan() -> set[tuple[str, str]]:
    """Every path in the part about locks, with each name behind it."""
    locks = PLAN.partition("## Locks")[2].partition("\n## ")[0]
    parts = re.split(r"`([\w/]+\.py)`", locks)[1:]
    return {
        (path, name)
        for path, text in zip(parts[::2], parts[1::2], strict=True)
        for name in re.findall(r"`(\w+)`", text)
    }


def test_every_lock_on_the_plan_of_the_house_is_where_it_says() -> None:
    named = locks_on_the_plan()
    assert ("bus/runtime/runtime.py", "lock") in named  # the search finds what is there
    assert not [
        f"{path}: {name}"
        for path, name in named
        if not re.search(rf"\b{name}\b.* = .*R?Lock\(", (PACKAGE / path).read_text())
    ]


@pytest.mark.parametrize("room", ["bus", "services", "stores", "engines"])
def test_every_lock_of_a_node_is_on_the_plan_of_the_house(room: str) -> None:
    made = re.compile(r"^ +self\.(\w+) = (?:threading\.)?R?Lock\(", re.MULTILINE)
    locks = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.glob(f"{room}/**/*.py")
        for name in made.findall(path.read_text())
    }
    assert locks  # the search finds what is there
    assert locks <= locks_on_the_plan()


def test_every_thread_of_a_node_is_on_the_plan_of_the_house() -> None:
    """Their names end in what they do: `infobus-NODE-tick`, `infobus-links`."""
    of_node = r"\{[\w.]*(?:name|node)\}-"
    made = re.compile(rf'"(?:infobus-(?:{of_node})?|{of_node})([a-z]+(?:-[a-z]+)?)(?:-\{{.*)?"')
    rooms = ("bus", "services", "engines", "stores/sqlite/group_commit.py", "daemon", "router")
    files = [p for room in rooms for p in [PACKAGE / room, *(PACKAGE / room).rglob("*.py")]]
    names = {n for path in files if path.is_file() for n in made.findall(path.read_text())}
    [_, part] = PLAN.split("## Threads")
    told = set(re.findall(r"^\| `([a-z-]+)` \|", part, re.MULTILINE))
    assert {"tick", "delivery", "commits", "endpoints"} <= names  # the search finds what is there
    assert names - told == set()
    assert told - names == set()


def test_the_plan_of_the_house_says_what_every_simulator_runs() -> None:
    simulators = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.glob("testing/simulation/*.py")
        if "\ndef simulate(" in path.read_text()
    }
    proven = PLAN.partition("## How it is proven")[2]
    assert simulators == set(re.findall(r"`(testing/simulation/\w+\.py)`", proven))


def test_the_picture_of_the_house_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, DOCS.parent / "scripts" / "house", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


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


def rows_of(page: str, heading: str) -> dict[str, str]:
    """The first two columns of the table under a heading."""
    [part] = re.findall(rf"^## {heading}.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| \S.* \|$", part, re.MULTILINE)
    assert len(rows) == part.count("\n| `"), "every row has a name, a default and a reason"
    return dict(rows)


@pytest.mark.parametrize("kind", [Patience, Bounds])
def test_the_page_of_limits_lists_each_with_its_default(kind: type) -> None:
    limits = (DOCS / "limits.md").read_text()
    defaults = {name: str(getattr(kind(), name)) for name in kind.__struct_fields__}
    assert rows_of(limits, kind.__name__) == defaults


BOUNDED = [
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for room in (
        *("subjects.py", "headers.py", "objects", "tdl", "filters/language", "filters/algebra"),
        *("protocols", "engines", "stores", "services", "bus", "daemon"),
    )
    for path in (
        [PACKAGE / room] if room.endswith(".py") else sorted((PACKAGE / room).rglob("*.py"))
    )
]

PROTECTS_NOTHING = {
    # What people see on a screen.
    ("objects.data", "_SHOWN_COUNT_MAX"),
    ("objects.printer", "TEXT_LENGTH_MAX"),
    ("objects.printer", "ITEM_COUNT_MAX"),
    ("objects.printer", "LINE_COUNT_MAX"),
    ("filters.language.explanation", "VALUE_LENGTH_MAX"),
    ("tdl.library.instances", "SLOTS_SHOWN_MAX"),
    ("tdl.machine", "KEYWORDS_SHOWN_MAX"),
    ("tdl.text", "SHORT_LENGTH_MAX"),
    # What Python, SQLite or a file format bears.
    ("bus.deliver.subscription", "_TIMEOUT_S_MAX"),
    ("filters.language.values", "INT32_MAX"),
    ("filters.language.values", "INT64_MAX"),
    ("objects.kinds", "INT_MAX"),
    ("services.client", "TIMEOUT_S_MAX"),
    ("tdl.library.strings", "DIGIT_COUNT_MAX"),
    ("stores.journal.columns", "_TIME_US_MAX"),
    ("stores.sqlite.salvage", "_ROW_BYTES_MAX"),
    # Where another way becomes the faster one.
    ("bus.publish.gather", "RECEIVERS_COUNT_MAX"),
    ("bus.publish.publisher", "_RUN_BODY_BYTES_MAX"),
    ("filters.algebra.merge", "_HOMES_MAX"),
    ("filters.algebra.merge", "_PASSES_MAX"),
    ("filters.algebra.union", "_BEGINNING_CHARS_MAX"),
    ("filters.language.compiler", "GENERATED_NODES_MAX"),
    ("objects.flat", "_COUNT_MAX"),
    ("stores.journal.parquet", "BATCH_COUNT_MAX"),
    ("stores.journal.pruning", "TEXT_LIMIT_MAX"),
}


def test_the_page_of_limits_lists_what_nobody_can_change() -> None:
    [_, part] = (DOCS / "limits.md").read_text().split("## What you cannot change")
    rows = re.findall(r"^\| `([\w.]+)` \| `(\w+)` \| (\S+) \| \S.* \|$", part, re.MULTILINE)
    assert len(rows) == part.count("\n| `"), "every row has a module, a name, a value and a reason"
    for module, name, value in rows:
        found = getattr(importlib.import_module(f"infobus.{module}"), name, None)
        assert str(found) == value, f"{module}.{name} is {found}"
    listed = {(module, name) for module, name, _ in rows}
    bounds = {(module, name) for module in BOUNDED for name in bounds_in(module)}
    assert ("protocols.invocation.server", "ANSWERS_COUNT_MAX") in bounds  # pairs are found, too
    assert not bounds - listed - PROTECTS_NOTHING


def bounds_in(module: str) -> list[str]:
    """The constants of a module whose names say that they are the most of something."""
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text())
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    names = [name for target in targets for name in ast.walk(target)]
    return [one.id for one in names if isinstance(one, ast.Name) and one.id.endswith("_MAX")]
