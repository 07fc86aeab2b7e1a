"""The map of routers: which sites there are beyond, which links join them, and their load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from infobus import EngineError
from infobus.bus.settings import load_settings
from infobus.cli.options import WhichBus
from infobus.cli.terminal import console, note, table, warn, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.router.status import RouterStatus

_SIZE, _RING, _BOX = 640, 230, (130, 46)
_INK, _GREY, _PAPER = "#1f2933", "#7b8794", "#ffffff"
_ROUTER, _EDGE, _DOWN, _HELD = "#f4f7f9", "#2f6f8f", "#c9d2da", "#b3541e"


class RouterLink(NamedTuple):
    """A link between two routers, as both its ends tell of it."""

    one: str
    other: str
    is_up: bool
    waiting_bytes: int
    held: tuple[str, ...]

    @property
    def told(self) -> str:
        """Its state in a few words."""
        if not self.is_up:
            return "down"
        waits = f"{self.waiting_bytes:,} B wait" if self.waiting_bytes else "up"
        return f"{waits}, {', '.join(self.held)} held" if self.held else waits


def show_routers(which: WhichBus, svg: Path | None, as_json: bool) -> None:
    """Show all routers that can be reached from the one of this host and bus."""
    found = _statuses(load_settings(bus=which.bus).bus)
    if as_json:
        write_json(*map(msgspec.to_builtins, found))
    else:
        drawn = table("router", "site", "domain", "links")
        links = links_of(found)
        for one in found:
            own = [link for link in links if one.name in (link.one, link.other)]
            ends = "\n".join(
                printable(f"{link.other if link.one == one.name else link.one}: {link.told}")
                for link in own
            )
            site = f"{one.inside} on {one.host}" + (", stands by" * (not one.is_carrying))
            drawn.add_row(*map(printable, (one.name, site, one.domain)), ends)
        console().print(drawn)
    for name in sorted({each.name for one in found for each in one.routers}):
        if name not in {one.name for one in found}:
            warn(f"router {name} is known, and does not answer")
    if svg is not None:
        svg.write_text(draw_routers(found), encoding="utf-8")
        note(f"map drawn to {svg}")


def _statuses(bus: str) -> list[RouterStatus]:
    from infobus.router.control import ask_router, routers_here
    from infobus.router.status import RouterStatus

    for name in routers_here():
        if ask_router(name, "status")["inside"] == bus:
            return msgspec.convert(ask_router(name, "map"), list[RouterStatus])
    raise EngineError(
        f"no router of this user on this host joins bus {bus!r} with others: start one with "
        "`infobus router run`, or look from the host where it runs"
    )


def links_of(found: Iterable[RouterStatus]) -> list[RouterLink]:
    """Each link once; what waits at both ends is added up."""
    links: dict[tuple[str, str], RouterLink] = {}
    for one in found:
        for each in one.neighbours:
            pair = min(one.name, each.name), max(one.name, each.name)
            known = links.get(pair, RouterLink(*pair, True, 0, ()))
            links[pair] = known._replace(
                is_up=known.is_up and each.is_up,
                waiting_bytes=known.waiting_bytes + each.waiting_bytes,
                held=tuple(sorted({*known.held, *each.held})),
            )
    return [links[pair] for pair in sorted(links)]


def draw_routers(found: Iterable[RouterStatus]) -> str:
    """Return the map as SVG: routers in a ring, a line for each link, thicker with what waits."""
    found = list(found)
    links = links_of(found)
    names = sorted({name for link in links for name in link[:2]} | {one.name for one in found})
    places = {
        name: (
            _SIZE / 2 + _RING * math.sin(2 * math.pi * at / len(names)),
            _SIZE / 2 - _RING * math.cos(2 * math.pi * at / len(names)),
        )
        for at, name in enumerate(names)
    }
    told = {one.name: one for one in found}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" '
        f'width="{_SIZE}" height="{_SIZE}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>',
        *(line for link in links for line in _drawn_link(link, places)),
        *(line for name in names for line in _drawn_router(name, told.get(name), places[name])),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


_Places = dict[str, tuple[float, float]]


def _drawn_link(link: RouterLink, places: _Places) -> Iterator[str]:
    (x1, y1), (x2, y2) = places[link.one], places[link.other]
    colour = _HELD if link.held else _EDGE if link.is_up else _DOWN
    width = 1.5 + min(4.0, math.log10(1 + link.waiting_bytes / 1024))
    dashes = "" if link.is_up else ' stroke-dasharray="5 5"'
    yield (
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" '
        f'stroke="{colour}" stroke-width="{width:.1f}"{dashes}/>'
    )
    if link.told != "up":
        yield (
            f'<text x="{(x1 + x2) / 2:.0f}" y="{(y1 + y2) / 2 - 6:.0f}" text-anchor="middle" '
            f'fill="{colour}">{escape(link.told)}</text>'
        )


def _drawn_router(name: str, one: RouterStatus | None, place: tuple[float, float]) -> Iterator[str]:
    (x, y), (width, height) = place, _BOX
    yield (
        f'<rect x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width}" '
        f'height="{height}" rx="6" fill="{_ROUTER}" stroke="{_EDGE if one else _DOWN}"/>'
    )
    yield (
        f'<text x="{x:.0f}" y="{y - 3:.0f}" text-anchor="middle" font-weight="bold" '
        f'fill="{_INK}">{escape(_short(name))}</text>'
    )
    below = "does not answer" if one is None else " · ".join(filter(None, (one.inside, one.domain)))
    yield (
        f'<text x="{x:.0f}" y="{y + 14:.0f}" text-anchor="middle" '
        f'fill="{_GREY}">{escape(_short(below))}</text>'
    )


def _short(words: str) -> str:
    return words if len(words) <= 18 else f"{words[:17]}…"
