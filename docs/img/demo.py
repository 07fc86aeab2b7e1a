"""Draws the picture of the demo: `python docs/img/demo.py` writes demo.svg beside this file."""

from datetime import date
from io import StringIO
from itertools import chain
from pathlib import Path

from rich.console import Console

import infobus
from infobus.demo import harbor, keywords, meridian
from infobus.demo.adapter import sample_lines
from infobus.demo.board import Board
from infobus.demo.feeds import read_feed
from infobus.demo.screen import draw

STORY_COUNT = 9  # of each vendor
WIDTH, HEIGHT = 100, 30


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
    console.save_svg(
        str(Path(__file__).with_suffix(".svg")), title="infobus demo", unique_id="demo"
    )


main()
