"""Writes the traffic report: what was sent, how it arrived, and the recommended watermarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from infobus.pipeline.jobs.traffic.marks import Advice, backlogs
from infobus.pipeline.jobs.traffic.traffic import (
    Series,
    TrafficOptions,
    recommended,
    series,
    service_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Row

SHOWN_COUNT_MAX = 20
"""Subjects and nodes in a table: the busiest."""

_COLOURS = ("#b3261e", "#d17b0f", "#0b6e99", "#4f8a3c", "#8d6aa8")
_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "svg.hashsalt": "infobus",
}


def write_report(rows: list[Row], options: TrafficOptions, folder: Path) -> Path:
    """Write `report.md`, and `traffic.svg` and `.png` if there is something to draw."""
    folder.mkdir(parents=True, exist_ok=True)
    found = series(rows, options)
    advice = recommended(rows, options)
    parts = ["# Traffic", *_summary(rows)]
    span_s = _span_s(rows) if rows else 0.0
    if found is not None:
        draw(found, advice, options, folder / "traffic")
        parts.append("![Arrivals of each class, and what would wait](traffic.svg)")
    for by, title in (("class", "Classes"), ("subject", "Subjects"), ("node", "Nodes")):
        parts += [f"## {title}", _table([row for row in rows if row["by"] == by], span_s)]
    parts += ["## Watermarks", *_advice(advice, found, options)]
    path = folder / "report.md"
    path.write_text("\n\n".join(parts) + "\n", "utf-8")
    return path


def _summary(rows: list[Row]) -> list[str]:
    classes = [row for row in rows if row["by"] == "class"]
    if not classes:
        return ["There are no events."]
    events, measured = (sum(row[name] for row in classes) for name in ("events", "measured"))
    first, last = min(row["first"] for row in classes), max(row["last"] for row in classes)
    return [
        f"{events:,} events of {sum(row['bytes'] for row in classes):,} bytes, published from "
        f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}.",
        f"Latency and depth are those of {measured:,} events whose arrival in the journal is "
        "known: from publication, by the publisher's clock, to the disk. Rates per second are over "
        f"the whole time of the report, {_span_s(classes):,.1f} s.",
    ]


_HEADINGS = "events|per s|peak per s|bytes each|largest|median s|95 % s|99 % s|longest s|depth"


def _span_s(rows: list[Row]) -> float:
    """Return the time between the first and the last event of all rows."""
    first, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
    return float((last - first).total_seconds())


def _table(rows: list[Row], span_s: float) -> str:
    rows = sorted(rows, key=lambda row: (-row["events"], row["name"]))
    lines = [f"| |{_HEADINGS}|", "|---|" + "---:|" * (_HEADINGS.count("|") + 1)]
    for row in rows[:SHOWN_COUNT_MAX]:
        latency = row["latency_s"] or [None] * 4
        numbers = [
            f"{row['events']:,}",
            _number(row["events"] / span_s if span_s else None),
            _number(row["per_s_peak"]),
            _number(row["bytes"] / row["events"]),
            f"{row['bytes_max']:,}",
            *map(_number, latency),
            _number(row["depth_max"]),
        ]
        name = row["name"].replace("|", "\\|")
        lines.append(f"|`{name}`|{'|'.join(numbers)}|")
    if len(rows) > SHOWN_COUNT_MAX:
        lines.append(f"|and {len(rows) - SHOWN_COUNT_MAX:,} more|{'|' * _HEADINGS.count('|')}|")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _advice(advice: list[Advice], found: Series | None, options: TrafficOptions) -> list[str]:
    if found is None:
        return ["Without events there is nothing to learn from."]
    service = service_of(found, options)
    whence = "as given" if options.service_per_s else "the most that were seen in one bin of time"
    parts = [
        f"Arrivals were played, in bins of {found.bin_s:g} s, through queues that are served as "
        f"the bus serves them: the highest class first, {service.events_per_s:,.1f} events per "
        f"second in all ({whence}).",
        "\n".join(
            [
                "|class|high|low|",
                "|---|---:|---:|",
                *(f"|{one.name}|{one.marks.high:,}|{one.marks.low:,}|" for one in advice),
            ]
        ),
    ]
    for one in advice:
        parts.append(f"**{one.name}**")
        parts.append("\n".join(f"- {reason}" for reason in one.reasons))
    return parts


def draw(found: Series, advice: list[Advice], options: TrafficOptions, path: Path) -> None:
    """Draw arrivals and what would wait, by class, as SVG and PNG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    waiting = backlogs(found.sent, found.bin_s, service_of(found, options))
    times = np.arange(len(found.sent[0])) * found.bin_s
    with rc_context(_STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for rank, name in enumerate(found.names):
            colour = _COLOURS[rank % len(_COLOURS)]
            above.step(times, found.sent[rank] / found.bin_s, color=colour, label=name)
            below.step(times, waiting[rank], color=colour, label=f"{name}: waiting")
            high = advice[rank].marks.high
            below.axhline(high, color=colour, linestyle=":", label=f"{name}: high mark {high:,}")
        above.set_ylabel("events per second")
        below.set_ylabel("events that wait")
        below.set_yscale("symlog")
        below.set_xlabel("seconds")
        for axes in (above, below):
            axes.set_ylim(bottom=0)
            axes.legend(loc="upper right")
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=120)
