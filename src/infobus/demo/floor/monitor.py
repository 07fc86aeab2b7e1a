"""The news monitor: a live screen on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

from rich.console import Console
from rich.live import Live

from infobus import Bus, Subscription
from infobus.demo.floor.board import Board
from infobus.demo.floor.keys import Keys
from infobus.demo.floor.screen import draw
from infobus.demo.programs import on_the_floor
from infobus.pipeline.runner.progress import read_status, summary

FRAME_S = 0.2


def main() -> None:
    """Watch `news.>` until the demo ends, or until someone presses q.

    If you name the state folder of a pipeline, the screen also shows its progress.
    """
    state = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    with on_the_floor() as (bus, over):
        news = bus.subscribe("news.>", on_loss="quit_and_recover")
        if sys.stdout.isatty():
            _show_screen(bus, news, over, state)
        else:
            _show_lines(bus, news, over, state)


def _show_lines(bus: Bus, news: Subscription, over: Event, state: Path | None) -> None:
    board = Board()
    try:
        while not over.is_set():
            for line in _gather(bus, news, board, state):
                print(line, flush=True)
    except BrokenPipeError:  # the reader is gone; without this, Python complains again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_screen(bus: Bus, news: Subscription, over: Event, state: Path | None) -> None:
    board, console = Board(), Console()
    with Keys(sys.stdin) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set():
            _gather(bus, news, board, state)
            for key in keys.pressed():
                match key:
                    case "up" | "k":
                        board.move(-1)
                    case "down" | "j":
                        board.move(1)
                    case "f":
                        board.is_following = True
                    case "q":
                        return
            live.update(draw(board, *console.size), refresh=True)


def _gather(bus: Bus, news: Subscription, board: Board, state: Path | None) -> list[str]:
    """Collect the events of one frame; returns the news as lines."""
    lines: list[str] = []
    end_s = time.monotonic() + FRAME_S
    if state is not None and (status := read_status(state)) is not None:
        lines += board.tell_of_pipeline(status.phase, summary(status), end_s)
    while (left_s := end_s - time.monotonic()) > 0:
        event = None
        with suppress(TimeoutError):
            event = news.receive(left_s)
        now_s = time.monotonic()
        lines += board.count_programs(1 + len(bus.stats().peers), now_s)
        if event is not None:
            lines += board.take(event, now_s)
        board.tick(now_s)
    return lines


if __name__ == "__main__":
    main()
