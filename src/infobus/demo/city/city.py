"""The wide-area information service of paper 002, section 10, under too much load.

    supplier   one per region: emergencies, business orders, library updates
    room       one per region: receives all of that, and can serve a fifth of it

Each is a separate program; regions are channels of one bus. This module starts the programs,
shows what they report, and says at the end whether the paper's promises were kept.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live

import infobus
from infobus.demo.city.model import REGIONS, City, CityLimits
from infobus.demo.city.screen import draw, line_of, summary, verdict
from infobus.demo.floor.floor import Floor, RunningProgram, tell_of
from infobus.extras import advice

FRAME_S = 0.25
_LAST_REPORTS_S = 0.5  # after the programs have closed, for their last reports


def run(seconds: float | None, out: Path) -> int:
    """Run the city for `seconds` or until Ctrl-C; returns 0 if all promises held, else 1."""
    console, city, floor = Console(), City(CityLimits.within(seconds)), Floor()
    ended = None
    if city.limits.scale < 1:
        console.print(f"A short run: business events live {city.limits.business_s:.3g} s, not 10.")
    with infobus.connect(floor.bus_name, engine="zenoh") as bus:
        reports = bus.subscribe("reports.>", on_loss="warn")
        with suppress(KeyboardInterrupt), floor:  # the usual way to leave a demo
            for region in REGIONS:
                for role in ("room", "supplier"):
                    scale = str(city.limits.scale)
                    floor.start(f"{role} of the {region}", f"city.{role}", region, scale)
            ended = _watch(floor, reports, city, seconds, console)
        _gather(reports, city, _LAST_REPORTS_S)
    if ended is not None:
        return tell_of(ended, "so the city is closed")
    console.print(summary(city))
    for promise in city.promises():
        console.print(verdict(promise), soft_wrap=True)
    _write_plot(city, out, console)
    return 0 if all(promise.held for promise in city.promises()) else 1


def _watch(
    floor: Floor, reports: infobus.Subscription, city: City, seconds: float | None, console: Console
) -> RunningProgram | None:
    """Show the reports until `seconds` after the first arrival, or until a program ends."""
    end_s = told_s = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not end_s or seconds is None or time.monotonic() < end_s:
            if city.arrivals and seconds is not None and not end_s:
                end_s = time.monotonic() + seconds
            ended = floor.watch(0.0)
            if ended is not None:
                return ended
            _gather(reports, city, FRAME_S)
            if console.is_terminal:
                left_s = end_s - time.monotonic() if end_s else seconds
                live.update(draw(city, left_s, time.time()), refresh=True)
            elif time.monotonic() - told_s >= 1:
                told_s = time.monotonic()
                console.print(line_of(city), soft_wrap=True)
    return None


def _gather(reports: infobus.Subscription, city: City, seconds: float) -> None:
    """Collect reports for `seconds`."""
    end_s = time.monotonic() + seconds
    with suppress(TimeoutError):
        while (left_s := end_s - time.monotonic()) > 0:
            event = reports.receive(left_s)
            city.take(event.subject, event.data)


def _write_plot(city: City, out: Path, console: Console) -> None:
    try:
        from infobus.demo.city.plot import write_plot
    except ImportError:
        console.print(f"No plot: matplotlib is not installed; {advice('bench')}", markup=False)
        return
    out.mkdir(parents=True, exist_ok=True)
    for path in write_plot(city, out):
        console.print(f"Plot: {path}")
