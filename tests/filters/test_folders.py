"""The folders of the filters depend on each other in one direction only."""

import ast
from pathlib import Path

import pytest

import infobus.filters

ROOM = Path(infobus.filters.__file__).parent
# `domain.py` lies beside the folders, because matching and algebra both build on it.
MAY_IMPORT = {
    "language": {"language"},
    "domain.py": {"language"},
    "matching": {"language", "domain", "matching"},
    "algebra": {"language", "domain", "algebra"},
    "pushdown": {"language", "pushdown"},
}


def imported(module):
    """The parts of the room that a module imports when it is itself imported."""
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("infobus.filters."):
            yield str(node.module).split(".")[2]


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_every_folder_imports_only_those_below_it(part):
    modules = [ROOM / part] if part.endswith(".py") else list((ROOM / part).glob("*.py"))
    assert modules
    for module in modules:
        assert set(imported(module)) <= MAY_IMPORT[part], module.name


def test_every_module_is_in_one_of_the_folders():
    found = {
        path.name for path in ROOM.iterdir() if path.name not in ("__init__.py", "__pycache__")
    }
    assert found == set(MAY_IMPORT)
