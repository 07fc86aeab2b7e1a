"""Text from strangers is spelled out wherever people or programs read it."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.printable import printable, printable_cell, printable_json, printable_lines

NASTY = "h\x1b]0;owned\x07\x9b31m\u202ex\u2028\nINJECTED"


@given(st.text())
def test_what_is_spelled_out_prints(text: str) -> None:
    assert printable(text).isprintable()
    assert printable_lines(text).replace("\n", "").isprintable()
    assert printable(text) == text or not text.isprintable()


@given(st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_json_means_what_it_meant_and_prints(value: object) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == value


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_a_cell_of_a_spreadsheet_is_never_a_formula(formula: str) -> None:
    assert printable_cell(formula)[0] in ("'", "\\")
    assert printable_cell("a=b") == "a=b"


@pytest.mark.parametrize("name", ["infobus", "infobus.engine"])
def test_a_stranger_adds_no_line_to_the_log(name: str) -> None:
    seen = io.StringIO()
    handler = logging.StreamHandler(seen)
    log = logging.getLogger(name)
    log.addHandler(handler)
    try:
        raise ValueError(NASTY)
    except ValueError:
        log.exception("node %s", NASTY)
    finally:
        log.removeHandler(handler)
    lines = seen.getvalue().splitlines()
    assert lines[0] == f"node {printable(NASTY)}"
    assert lines[1].startswith("Traceback")
    assert all(line.isprintable() for line in lines)
