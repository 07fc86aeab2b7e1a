"""What the monitor knows and shows, without a bus."""

import ast
import re
from pathlib import Path

import pytest
from rich.console import Console

from infobus import DataObject, Event, Property
from infobus.demo.floor import board as board_module
from infobus.demo.floor.board import HOLD_S, Board
from infobus.demo.floor.keywords import annotation, keywords_in
from infobus.demo.floor.screen import draw
from infobus.objects import identify

DEMO = Path(board_module.__file__).parent


class Bulletin(DataObject, name="monitor_test.Bulletin"):
    headline: str
    body: str = ""


class Flash(Bulletin, name="monitor_test.Flash"):
    color: str = "red"


def event_of(data, id=None):
    if id:
        identify(data, id)
    return Event(subject="news.x", data=data, sender="n", seq=1, time=0.0, number=1)


def keywords_for(id, *words):
    return event_of(Property(name="keywords", value=list(words), ref=id), f"property of {id}")


def shown(board, width=80, height=24):
    console = Console(width=width, height=height)
    with console.capture() as capture:
        console.print(draw(board, width, height), height=height)
    return capture.get()


def test_the_monitor_does_not_know_the_stories_types():
    for name in ("monitor.py", "board.py", "screen.py"):
        tree = ast.parse((DEMO / name).read_text("utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {f"infobus.demo.{m}" for m in ("story", "meridian", "harbor")}


def test_a_type_is_new_once():
    board = Board()
    assert board.take(event_of(Flash(headline="a"), "1"), 0.0) == [
        "-- A type never seen before: monitor_test.Flash, a kind of monitor_test.Bulletin.",
        "news.x monitor_test.Flash: a",
    ]
    assert board.take(event_of(Flash(headline="b"), "2"), 0.0) == ["news.x monitor_test.Flash: b"]


def test_an_object_that_comes_again_is_shown_once():
    board = Board()
    board.take(event_of(Flash(headline="a"), "1"), 0.0)
    assert board.take(event_of(Flash(headline="a"), "1"), 0.0) == []
    assert len(board.entries) == 1


def test_a_property_attaches_to_an_object_on_the_screen():
    board = Board()
    board.take(event_of(Flash(headline="a"), "1"), 0.0)
    assert board.take(keywords_for("1", "x", "y"), 1.0) == [
        "-- Properties (keywords) now attach to stories already on the screen.",
        "keywords for a: x, y",
    ]
    assert re.search("keywords +x, y", shown(board))


def test_a_property_that_comes_before_its_object_waits_for_it():
    board = Board()
    assert board.take(keywords_for("1", "x"), 0.0) == []
    board.take(event_of(Flash(headline="a"), "1"), 0.0)
    assert board.entries["1"].properties == {"keywords": ["x"]}


def test_the_board_holds_a_bounded_number_of_objects_and_early_properties():
    board = Board()
    for number in range(board_module.ENTRY_COUNT_MAX + 10):
        board.take(event_of(Flash(headline="a"), f"{number}"), 0.0)
        board.take(keywords_for(f"nobody {number}", "x"), 0.0)
    assert len(board.entries) == board_module.ENTRY_COUNT_MAX
    assert "9" not in board.entries
    assert len(board._early) == board_module.ENTRY_COUNT_MAX


def test_the_selection_follows_the_news_but_not_in_haste():
    board = Board()
    board.take(event_of(Flash(headline="a"), "1"), 0.0)
    board.take(event_of(Flash(headline="b"), "2"), 1.0)
    assert board.selected == "1"
    board.tick(HOLD_S)
    assert board.selected == "2"


def test_a_selection_by_hand_stays():
    board = Board()
    for number in range(3):
        board.take(event_of(Flash(headline="a"), f"{number}"), 0.0)
    board.selected = "2"
    board.move(1)
    board.tick(10 * HOLD_S)
    assert board.selected == "1"
    board.move(5)
    assert board.selected == "0"
    board.move(-5)
    assert board.selected == "2"


def test_programs_that_come_and_go_are_announced():
    board = Board()
    assert board.count_programs(2, 0.0) == ["-- A program has come on-line: 2 on the bus now."]
    assert board.count_programs(2, 0.0) == []
    assert board.count_programs(1, 0.0) == ["-- A program has left: 1 on the bus now."]
    assert board.caption == "A program has left: 1 on the bus now.", "no stale number stays"
    assert board.count_programs(2, 0.0) != []


def board_of(count):
    board = Board()
    for number in range(count):
        board.take(event_of(Flash(headline=f"headline {number}", body="b" * 50), f"{number}"), 0.0)
    return board


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40), (40, 12), (200, 60), (10, 4)])
def test_the_screen_fills_the_terminal_whatever_its_size(width, height):
    lines = shown(board_of(100), width, height).splitlines()
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 40)])
def test_the_list_shows_the_newest_or_what_was_selected_by_hand(width, height):
    board = board_of(100)
    assert "headline 99" in shown(board, width, height)
    board.move(0)  # by hand: what was selected, the oldest
    text = shown(board, width, height)
    assert "headline 99" not in text
    assert (
        len(re.findall("headline +headline 0|headline 0 ", text)) == 2
    )  # in the list, and in full


def test_the_screen_shows_every_attribute_by_introspection():
    board = Board()
    board.take(event_of(Flash(headline="Big news", body="All of it.", color="blue"), "1"), 0.0)
    text = shown(board)
    assert "monitor_test.Flash < monitor_test.Bulletin" in text
    assert "All of it." in text
    assert re.search("color +blue", text)


def test_an_empty_screen_says_what_it_waits_for():
    assert "waiting for stories" in shown(Board())


def test_keywords_are_whole_words_each_once():
    assert keywords_in("The UNION and the reunion: union!") == ["union"]


def test_the_generator_annotates_any_object_but_not_properties():
    found = annotation(event_of(Flash(headline="Strike", body="A union."), "7"))
    assert (found.name, found.value, found.ref) == ("keywords", ["strike", "union"], "7")
    assert annotation(event_of(Flash(headline="nothing of note"), "8")) is None
    assert annotation(keywords_for("7", "strike")) is None
    assert annotation(event_of({"headline": "Strike"})) is None
