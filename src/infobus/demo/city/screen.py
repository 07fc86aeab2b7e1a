"""The city on screen: a live table of its classes, and a summary at the end."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from infobus.demo.city.model import REGIONS, City, Promise, rates_of

COLOURS = {"emergency": "#b3261e", "business": "#d17b0f", "library": "#0b6e99"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_HISTORY_COUNT = 40  # half seconds


def draw(city: City, left_s: float | None, now_s: float) -> RenderableType:
    """The screen while the city runs."""
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("class", no_wrap=True)
    for column in ("sent", "delivered", "expired", "waiting", "now s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("delivered, each half second", no_wrap=True)
    for name, tally in city.tallies().items():
        latest = next((one for one in reversed(city.arrivals) if one.name == name), None)
        table.add_row(
            Text(name, f"bold {COLOURS[name]}"),
            *(f"{count:,}" for count in (tally.sent, tally.delivered, tally.expired)),
            f"{max(0, tally.waiting):,}",  # below 0 if reports are of different moments
            f"{latest.took:.3f}" if latest else "-",
            Text(_line(rates_of(city.arrivals, name, now_s, _HISTORY_COUNT)), COLOURS[name]),
        )
    state = (
        "The library starves at its watermark: it is raised for a second at a time."
        if city.is_starving
        else "More comes than can be served: the queues fill."
    )
    ending = "Ctrl-C ends" if left_s is None else f"{max(0.0, left_s):.0f} s left · Ctrl-C ends"
    return Panel(
        Group(Text(state, "bold yellow"), Text(), table),
        title=Text(f"The city: {' and '.join(REGIONS)}, one control room each", "bold"),
        title_align="left",
        subtitle=Text(ending, "dim"),
        box=box.HEAVY,
    )


def line_of(city: City) -> str:
    """The same in one line, for output that is not a terminal."""
    tallies = city.tallies().items()
    return " · ".join(
        f"{name} {tally.delivered} of {max(tally.sent, tally.delivered)}"
        + (f", {tally.expired} expired" if tally.expired else "")
        for name, tally in tallies
    )


def summary(city: City) -> Table:
    """The final counts of each class."""
    table = Table(title="The city, all regions", box=box.SIMPLE)
    table.add_column("class")
    for column in ("sent", "delivered", "expired", "waiting", "slowest s"):
        table.add_column(column, justify="right")
    for name, tally in city.tallies().items():
        counts = (tally.sent, tally.delivered, tally.expired, tally.waiting)
        table.add_row(name, *(f"{count:,}" for count in counts), f"{tally.worst_s:.3f}")
    return table


def verdict(promise: Promise) -> Text:
    """Whether a promise was kept."""
    mark = ("held    ", "bold green") if promise.held else ("BROKEN  ", "bold red")
    return Text.assemble(mark, f"{promise.what}: {promise.why}")


def _line(rates: list[int]) -> str:
    highest = max(*rates, 1)
    return "".join(_BLOCKS[-(-rate * (len(_BLOCKS) - 1) // highest)] for rate in rates)
