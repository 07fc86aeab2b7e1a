"""The map of a bus: which hosts there are, what runs on them, and which links join them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from math import ceil, sqrt

from msgspec import Struct

_ROWS_MAX = 14  # programs of a host that are shown one by one
_WIDTH, _HEAD, _ROW, _GAP, _MARGIN = 250, 34, 20, 90, 24
_INK, _GREY, _PAPER = "#1f2933", "#7b8794", "#ffffff"
_HOST, _EDGE, _DAEMON = "#f4f7f9", "#9aa5b1", "#2f6f8f"


class MappedProgram(Struct, frozen=True):
    """A program on the bus, where it runs, and to which other programs it has a link."""

    node: str
    name: str
    host: str
    pid: int
    role: str = "peer"  # of its session: a `router` forwards, a `client` is attached to one
    links: tuple[str, ...] = ()  # nodes

    @property
    def is_daemon(self) -> bool:
        """Whether it links its host with others."""
        return self.role == "router"

    @property
    def way(self) -> str:
        """How it takes part in the bus."""
        if self.role == "client":
            return "attached"
        links = "1 link" if len(self.links) == 1 else f"{len(self.links)} links"
        return "daemon" if self.is_daemon else links


def by_host(places: Iterable[MappedProgram]) -> dict[str, list[MappedProgram]]:
    """The places of each host: its daemon first, then programs by name."""
    ordered = sorted(places, key=lambda one: (one.host, not one.is_daemon, one.name, one.pid))
    return {host: list(found) for host, found in groupby(ordered, key=lambda one: one.host)}


def links_between(places: Iterable[MappedProgram]) -> Counter[tuple[str, str]]:
    """How many links join two hosts. Each is known at both ends, and counts once."""
    host_of = {one.node: one.host for one in places}
    pairs = {
        (min(one.node, other), max(one.node, other))
        for one in places
        for other in one.links
        if host_of.get(other, one.host) != one.host
    }
    ends = (sorted((host_of[one], host_of[other])) for one, other in pairs)
    return Counter((first, second) for first, second in ends)


def hosts_linked(place: MappedProgram, places: Iterable[MappedProgram]) -> Counter[str]:
    """To how many programs of each host a program has a link."""
    host_of = {one.node: one.host for one in places}
    return Counter(host_of[node] for node in place.links if node in host_of)


def draw(places: Iterable[MappedProgram]) -> str:
    """Return the map as SVG: a box for each host, a line where links join two of them."""
    places = list(places)
    hosts = by_host(places)
    columns = max(1, ceil(sqrt(len(hosts))))
    boxes, bottom = _boxes(hosts, columns)
    width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom}" '
        f'width="{width}" height="{bottom}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>',
    ]
    for (one, other), count in sorted(links_between(places).items()):
        lines += _joined(boxes[one], boxes[other], count)
    for host, found in hosts.items():
        lines += _drawn_host(host, found, boxes[host])
    return "\n".join([*lines, "</svg>", ""])


_Box = tuple[int, int, int]  # x, y, height


def _boxes(hosts: dict[str, list[MappedProgram]], columns: int) -> tuple[dict[str, _Box], int]:
    boxes: dict[str, _Box] = {}
    y = _MARGIN
    names = list(hosts)
    for start in range(0, len(names), columns):
        row = names[start : start + columns]
        for column, host in enumerate(row):
            shown = min(len(hosts[host]), _ROWS_MAX + 1)
            x = _MARGIN + column * (_WIDTH + _GAP)
            boxes[host] = (x, y, _HEAD + shown * _ROW + 8)
        y += max(boxes[host][2] for host in row) + _GAP
    return boxes, y - _GAP + _MARGIN


def _joined(one: _Box, other: _Box, count: int) -> Iterator[str]:
    (x1, y1), (x2, y2) = ((box[0] + _WIDTH // 2, box[1] + box[2] // 2) for box in (one, other))
    line = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
    yield f'<line {line} stroke="{_EDGE}" stroke-width="{min(1 + count, 6)}"/>'
    if count > 1:
        middle = f'x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 6}"'
        yield f'<text {middle} text-anchor="middle" fill="{_GREY}">{count} links</text>'


def _drawn_host(host: str, found: list[MappedProgram], box: _Box) -> Iterator[str]:
    x, y, height = box
    frame = f'x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="6"'
    yield f'<rect {frame} fill="{_HOST}" stroke="{_EDGE}"/>'
    yield _text(x + 12, y + 22, host, size=15, weight="bold")
    shown = found if len(found) <= _ROWS_MAX + 1 else found[:_ROWS_MAX]
    for number, place in enumerate(shown):
        baseline = y + _HEAD + number * _ROW + 14
        fill = _PAPER if place.role == "peer" else _DAEMON
        dot = f'cx="{x + 17}" cy="{baseline - 4}" r="{5 if place.is_daemon else 4}"'
        yield f'<circle {dot} fill="{fill}" stroke="{_DAEMON}"/>'
        yield _text(x + 30, baseline, place.name, weight="bold" if place.is_daemon else "")
        yield _text(x + _WIDTH - 12, baseline, place.way, fill=_GREY, anchor="end")
    if len(shown) < len(found):
        baseline = y + _HEAD + len(shown) * _ROW + 14
        yield _text(x + 30, baseline, f"and {len(found) - len(shown)} more", fill=_GREY)


def _text(
    x: int,
    y: int,
    words: str,
    *,
    size: int = 12,
    weight: str = "",
    fill: str = _INK,
    anchor: str = "start",
) -> str:
    if len(words) > 28:
        words = words[:27] + "…"
    bold = f' font-weight="{weight}"' if weight else ""
    style = f'font-size="{size}"{bold} fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'
