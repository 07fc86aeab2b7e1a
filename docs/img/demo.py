"""Draws the picture of the demo: `python docs/img/demo.py` writes demo.svg beside this file."""

import re
from datetime import date
from io import StringIO
from itertools import chain
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

import infobus
from infobus.demo.floor import harbor, keywords, meridian
from infobus.demo.floor.adapter import sample_lines
from infobus.demo.floor.board import Board
from infobus.demo.floor.feeds import read_feed
from infobus.demo.floor.screen import draw

STORY_COUNT = 9  # of each vendor
WIDTH, HEIGHT = 100, 30
# Without the fonts that rich would have a viewer fetch from elsewhere.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main() -> None:
    """Run the demo's parts in this process, until there is something to see."""
    board = Board(programs_count=4)
    feeds = [
        read_feed(sample_lines(format), format, date(1993, 12, 6))
        for format in (meridian.FORMAT, harbor.FORMAT)
    ]
    bulletins = list(chain.from_iterable(zip(*feeds, strict=True)))[: 2 * STORY_COUNT]
    with infobus.connect("picture", engine="memory") as bus:
        news = bus.subscribe("news.>")
        bus.publish_many(bulletins)
        events = [news.receive(1) for _ in bulletins]
        for event in events:
            board.take(event, 0.0)
        for event in events:
            if found := keywords.annotation(event):
                bus.publish(event.subject, found)
                board.take(news.receive(1), 1.0)
        board.tick(100.0)
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=StringIO())
    console.print(draw(board, WIDTH, HEIGHT), height=HEIGHT)
    path = Path(__file__).with_suffix(".svg")
    console.save_svg(str(path), title="infobus demo", unique_id="demo", code_format=FORMAT)


main()
