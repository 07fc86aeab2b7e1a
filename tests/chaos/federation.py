"""Sites that are joined by routers in a ring, while routers, links, hosts and programs fail.

Each host is a site with a bus of its own and a router. A site reaches another one as long as there
is a way between them over routers that work and cables that carry.
"""

from __future__ import annotations

from msgspec import field

from infobus.testing.hosts import HostRouters
from tests.chaos.arena import Program
from tests.chaos.checker import Apart
from tests.chaos.site import HARM, Site

LINK_S = 10.0
"""A way that is there again takes so long until interest has crossed it, on a busy machine."""

BUS_HARM = {name: weight for name, weight in HARM.items() if not name.endswith("daemon")}
ROUTER_HARM = {"kill a router": 6, "freeze a router": 4, "cut a link": 6}

AGREEMENT = """
[[agreement]]
guaranteed = true
services = true
"""


class Federation(Site, kw_only=True):
    """A site for each host, and what is wrong just now."""

    routers: HostRouters | None = None
    back_since: dict[frozenset[str], float] = field(default_factory=dict)

    def join(self) -> None:
        """Lay the ring."""
        self.harms = BUS_HARM | ROUTER_HARM
        hosts = list(self.hosts)
        ring = [*zip(hosts, hosts[1:] + hosts[:1], strict=True)][: 1 if len(hosts) < 3 else None]
        self.routers = HostRouters(f"chaos-{self.folder.name}", ring, self.folder, AGREEMENT)

    def command(self, program: Program) -> list[str]:
        """What fills a place."""
        if program.role != "router":
            return Site.command(self, program)
        assert program.host is not None
        return self.ring.command(program.host)

    @property
    def ring(self) -> HostRouters:
        """The routers, once they are joined."""
        assert self.routers is not None
        return self.routers

    def settings_of(self, program: Program) -> dict[str, str]:
        """Programs are on the bus of their site."""
        assert program.host is not None
        return self.settings | {"INFOBUS_BUS": self.ring.bus(program.host)}

    def do(self, name: str, now_s: float, for_s: float) -> bool:
        """Do that harm to somebody for so long; whether there was somebody to do it to."""
        if name != "cut a link":
            return Site.do(self, name, now_s, for_s)
        busy = {host for trouble in self.troubles for host in trouble.hosts}
        free = [link for link in self.ring.links if busy.isdisjoint(link)]
        return bool(free) and self._harm_cable(name, *self.luck.choice(free), now_s, for_s)

    def look_after(self, now_s: float) -> None:
        """As in any site; and note which sites have no way to each other."""
        Site.look_after(self, now_s)
        cut = {pair for trouble in self.troubles for pair in trouble.apart}
        working = {
            program.host
            for program in self.programs
            if program.role == "router" and self._has_joined(program)
        }
        ways = [
            {one.name, other.name}
            for one, other in self.ring.links
            if {one, other} <= working and frozenset((one.name, other.name)) not in cut
        ]
        for host in self.hosts:
            reached = {host.name} if host in working else set()
            for _ in ways:
                reached |= {name for way in ways if way & reached for name in way}
            for other in self.hosts:
                if other.name > host.name:
                    self._note_way((host.name, other.name), other.name in reached, now_s)

    def _note_way(self, pair: tuple[str, str], is_there: bool, now_s: float) -> None:
        hosts = frozenset(pair)
        if not is_there:
            self.back_since.pop(hosts, None)
            self.unlinked.setdefault(pair, now_s)
        elif pair in self.unlinked:
            since_s = self.back_since.setdefault(hosts, now_s)
            if now_s - since_s >= LINK_S:
                self.apart.append(Apart(hosts, self.unlinked.pop(pair), now_s))
                del self.back_since[hosts]

    def _has_joined(self, router: Program) -> bool:
        """Whether it works: it says so once it has joined both buses."""
        said = (self.folder / "errors" / router.name).read_text(errors="replace")
        return self.is_up(router) and not router.frozen_until_s and "and backbone" in said
