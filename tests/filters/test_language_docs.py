"""What the page about filters shows is true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from infobus.errors import BadFilter
from infobus.filters import compile
from infobus.filters.language import functions, parser, typecheck

PAGE = (Path(__file__).parents[2] / "docs" / "filters.md").read_text("utf-8")
RESULTS = {"true": True, "false": False, "undefined": None}


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables of a section, without the headings of the tables."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) ?\| ?", line.strip("| ")) for line in lines]
    return [[cell.replace("\\|", "|").strip("`") for cell in row] for row in cells]


EXAMPLES = rows("Examples")[1:]


@pytest.mark.parametrize(("text", "event", "result"), EXAMPLES, ids=[row[0] for row in EXAMPLES])
def test_every_example_says_what_the_page_says(text: str, event: str, result: str) -> None:
    assert compile(text).evaluate(json.loads(event)) is RESULTS[result]


def test_the_first_example_gives_what_its_comments_say() -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    shown = re.findall(r"^(\w.*?) +# ([^:\n]+)", code, re.MULTILINE)
    names: dict[str, object] = {}
    exec(code, names)
    assert len(shown) == 4
    assert [repr(eval(expression, names)) for expression, _ in shown] == [r for _, r in shown]


def test_the_truth_table_is_that_of_the_language() -> None:
    (_, _, *conditions), *lines = rows("True, false, undefined")
    for a, b, *results in lines:
        event = {"a": RESULTS[a], "b": RESULTS[b]}
        assert [compile(text).evaluate(event) for text in conditions] == [
            RESULTS[result] for result in results
        ]


def test_every_function_is_explained() -> None:
    explained = set(re.findall(r"`([a-z0-9-]+)(?:\(|`)", PAGE.split("## Functions")[1]))
    assert set(functions.FUNCTION_NAMES) - {"datetime"} <= explained
    assert "datetime('2026-11-15T10:00:00Z')" in PAGE


def test_the_error_looks_as_shown() -> None:
    shown = re.search(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert shown
    with pytest.raises(BadFilter) as caught:
        compile(shown[1].splitlines()[1].strip())
    assert str(caught.value) == shown[1]


def test_the_bounds_are_those_of_the_program() -> None:
    for bound in (parser.TEXT_MAX, typecheck.DEPTH_MAX, functions.REGEX_SIZE_MAX):
        assert f"{bound:,} " in PAGE.replace("\n", " ")
