"""What docs/tdl.md shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infobus.errors import TdlError
from infobus.tdl import Interpreter
from infobus.tdl.compiler import BUILTINS, SPECIAL

PAGE = (Path(__file__).parents[2] / "docs" / "tdl.md").read_text("utf-8")


def test_the_session_is_as_printed():
    [session] = re.findall(r"```text\n\$ infobus tdl\n(.*?)```", PAGE, re.DOTALL)
    turns = re.findall(r"tdl> (.*)\n((?:(?!tdl> ).*\n)*)", session)
    assert len(turns) > 5
    tdl = Interpreter()
    for form, answer in turns:
        try:
            said = tdl.show(form)
        except TdlError as error:
            said = error.report()
        assert f"{said}\n" == answer


@pytest.mark.world
def test_the_program_in_python_runs():
    [program] = re.findall(r"```python\n(import infobus\n.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1.5 13.5\ntype shop.Item")


def test_the_program_for_a_host_can_be_read():
    [program] = re.findall(r"```lisp\n(.*?)```", PAGE, re.DOTALL)
    definitions = program[: program.index("(serve")].replace("plant.", "tdl_page.")
    tdl = Interpreter()
    tdl.run(definitions)
    thermostat = tdl.classes["tdl_page.Thermostat"]()
    assert (thermostat.set_target(25), thermostat.set_target(21)) == (20.0, 25.0)


def test_the_page_names_all_of_the_language():
    section = PAGE[PAGE.index("## The language") :]
    told = set(re.findall(r"[^\s`()|]+", section))
    short = {"find-if", "position-if", "count-if", "remove-if"}  # "(also `-if`)"
    names = {name for name in [*SPECIAL, *BUILTINS] if not name.startswith("(")}
    assert names - short - told - {"function", "quote"} == set()
