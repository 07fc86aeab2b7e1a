# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import io
from typing import Annotated, Any

from hypothesis import given

from infobus.objects import DataObject, define_type, describe, identify, type_of
from infobus.objects.codec import decode, encode
from tests.objects import worlds
from tests.objects.worlds import text_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def described(obj: object) -> list[str]:
    return text_of(obj).splitlines()


class Part(DataObject):
    """Something small."""

    label: Annotated[str, "what is written on it"]
    tags: list[str] = []

    def weigh(self, unit: str = "kg") -> float:
        """Put it on the scales."""
        return 0.0


class Machine(Part):
    parts: dict[str, Part | None] = {}
    extra: Any = None


def test_an_object_is_shown_with_types_supertypes_and_everything_inside():
    machine = Machine(label="m", tags=["a"], parts={"left": Part(label="p"), "right": None})
    identify(machine, "machine-1")
    assert described(machine) == [
        "Machine (supertypes: Part) id machine-1",
        "  label: str = 'm'",
        "  tags: list[str] = list of 1",
        "    [0]: 'a'",
        "  parts: dict[str, Part | None] = dict of 2",
        "    'left': Part",
        "      label: str = 'p'",
        "      tags: list[str] = []",
        "    'right': None",
        "  extra: any = None",
    ]


def test_a_type_is_shown_with_what_it_inherits_and_can_do():
    lines = described(type_of(Machine))
    assert lines == described(Machine)
    assert lines[0] == f"type Machine {type_of(Machine).fingerprint:016x}"
    assert lines[1:] == [
        "  supertypes: Part",
        "  label: str (from Part)  what is written on it",
        "  tags: list[str] = [] (from Part)",
        "  parts: dict[str, Part | None] = {}",
        "  extra: any = None",
        "  weigh(unit: str = 'kg') -> float (from Part)  Put it on the scales.",
    ]
    assert "  Something small." in described(type_of(Part))


def test_what_came_unknown_is_shown_and_marked():
    with worlds.another_process():
        Newer = define_type("Part", [], {"label": str, "weight": int})
        sent = encode(Newer(label="p", weight=3))
        newer = type_of(Newer).descriptor
    generic = decode(sent[0], sent[1])
    assert described(generic)[0].endswith("(type not known here)")
    assert "  weight = 3" in described(generic)
    with worlds.another_process():
        define_type("Part", [], {"label": str, "height": (int, 0)})
        from infobus.objects.codec import learn

        learn(newer)
        lines = described(decode(sent[0], sent[1]))
    assert lines[1:] == [
        "  label: str = 'p'",
        "  weight (unknown attribute) = 3",
        "  height (not sent) = 0",
    ]


def test_cycles_end():
    machine = Machine(label="m")
    machine.parts["self"] = machine
    assert "    'self': (contains itself: already shown above)" in described(machine)
    loop: list[Any] = []
    loop.append(loop)
    assert described(loop)[1] == "  [0]: (contains itself: already shown above)"


def test_long_values_are_shortened_and_say_how_long_they_are():
    assert described("x" * 5000)[0].endswith("'... (5000 characters)")
    assert described(b"x" * 5000)[0].endswith("'... (5000 bytes)")
    assert described(list(range(1000)))[-1] == "  ... and 900 more"


def test_any_python_value_is_shown_even_a_broken_one():
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert described(5) == ["5"]
    assert described({}) == ["{}"]
    assert described([Broken()])[1] == "  [0]: <Broken whose repr failed: RuntimeError>"


def test_control_characters_from_strangers_do_not_reach_the_terminal():
    payload = encode({"\x1b[2J": "\x1b[2J\ud7ff"})[1]
    text = text_of(decode(77, payload))
    assert "\x1b" not in text and "\\x1b[2J = '\\x1b[2J" in text


def test_a_terminal_gets_colours_and_a_file_plain_text():
    terminal, part = Terminal(), Part(label="[red]p[/red]")
    describe(part, terminal)
    assert "\x1b[" in terminal.getvalue() and "\x1b[" not in text_of(part)
    assert "[red]p[/red]" in terminal.getvalue()


def test_standard_output_is_the_default(capsys):
    part = Part(label="p")
    assert describe(part) is None  # or a prompt would show everything twice
    assert capsys.readouterr().out == text_of(part)


@given(worlds.anything)
def test_anything_that_can_be_sent_can_be_shown(value):
    assert described(value)
