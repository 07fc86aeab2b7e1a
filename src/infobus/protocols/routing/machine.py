"""A router: carries frames by all shortest paths to the routers that declared their keys.

It talks to its neighbours only. Each router describes itself in a table, which is passed on from
neighbour to neighbour. Every `Hello` has a hash of the tables; a router that lacks one sees it by
the hash, and asks. A frame crosses each link once, with the list of routers for which the next one
is responsible. Each destination is in one list only, so it gets the frame once. A frame carries its
trail and never goes where it has been, whatever fails. Routers do not repair losses: numbers,
repair and confirmation are up to the two ends.

Time comes in as `now_s`. Frames to be sent wait in `links`; `woken` has the neighbours concerned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from infobus.protocols.frames.routing import (
    ANSWERS,
    DATA,
    DECLARED,
    HOPS_COUNT_MAX,
    NEIGHBOURS_COUNT_MAX,
    QUERY,
    TOKEN,
    Hello,
    Parcel,
    Reserve,
    Reserved,
    RouterTable,
    RoutingMessage,
    SeenSoFar,
    TableVersions,
    id_of,
)
from infobus.protocols.routing.effects import Effect, ParcelArrived, TokenChanged, Unacceptable
from infobus.protocols.routing.link import Cargo, Link
from infobus.protocols.routing.paths import Paths, links_of
from infobus.protocols.routing.relays import Relays, Split
from infobus.protocols.routing.reservations import Reservations
from infobus.protocols.routing.reserved import LinkClaim
from infobus.protocols.routing.tables import Tables
from infobus.protocols.routing.terms import RoutingTerms

_INBOXES = "n/"  # keys of nodes' inboxes begin with it
_RESERVED = "reserved"  # in place of a key: what a source has reserved is one flow
_LOCAL = ""
"""In place of a neighbour: what waits for this router itself."""


class RoutingMachine:
    """The machine of one router.

    Args:
        own: The node that it is.
        session: A number that no earlier life of the same node has used.
        terms: Its times and sizes.
        name: What people call it.
        domain: Where it belongs.
        accepts: Whether it has a link to the neighbour of that name.
        rate_of: Bytes a second that the link to the neighbour of that name carries; None: no limit.
    """

    def __init__(
        self,
        own: str,
        session: int,
        terms: RoutingTerms,
        *,
        name: str = "",
        domain: str = "",
        accepts: Callable[[str], bool] = lambda name: True,
        rate_of: Callable[[str], float | None] = lambda name: None,
    ) -> None:
        self.own = own
        self.id = id_of(own)
        self.terms = terms
        self.links: dict[str, Link] = {}
        self.woken: dict[str, None] = {}
        self.tables = Tables(own, name, domain)
        self.relays = Relays()
        self.counts: Counter[str] = Counter()
        self._session = session
        self._ticked_s = self._pruned_s = 0.0
        self.accepts = accepts
        self.rate_of = rate_of
        self._paths = Paths(own, {})
        self._are_paths_old = self.must_look = False
        self._detours: dict[tuple[int, tuple[int, ...]], tuple[str, ...]] = {}
        self._ids = {self.id: own}
        self._shown: dict[str, str] = {}  # tokens of others, and whose they are
        self._added: dict[str, None] = {}  # own entries that are not told yet
        self._removed: dict[str, None] = {}
        self._local = Counter[int]()  # bytes that wait here for callbacks, by rank
        self._local_full: set[int] = set()
        self._full: dict[str, set[str]] = {n: set() for n in terms.classes.names}
        self._reservations = Reservations(
            self.id, name or own, terms, self.links, self._reserved_split, self._wake
        )
        self.tables.change((), ())

    # What this router wants.

    def add_entry(self, entry: str) -> None:
        """Say soon, by `tell_changes`, that there is this entry."""
        if self._removed.pop(entry, self) is self:
            self._added[entry] = None

    def remove_entry(self, entry: str) -> None:
        """Say soon that there is this entry no more."""
        if self._added.pop(entry, self) is self:
            self._removed[entry] = None

    @property
    def has_changes(self) -> bool:
        """Whether there are entries that are not told yet."""
        return bool(self._added or self._removed)

    def tell_changes(self, now_s: float) -> list[Effect]:
        """Tell what was added and removed, and whose paths have changed."""
        if self.has_changes:
            self._tell_own(tuple(self._added), tuple(self._removed))
        return self.look(now_s)

    def put(self, parcel: Cargo, now_s: float, *, must: bool = False) -> bool:
        """Send a frame of this router; with `must`, what finds no room is dropped.

        Returns whether there was room for it on all links; if there was not, it was not sent.
        """
        split = self._split(parcel, now_s)
        full: set[str] = set()
        if parcel.kind == DATA:
            # A node that misses what still waits for a slow link asks for it again and again: once
            # is enough, or repairs would take the room of what they repair.
            if parcel.key.startswith(_INBOXES):
                for hop in [hop for hop in split if self.links[hop].keeps(parcel.payload)]:
                    self.counts["not sent twice"] += 1
                    split = {one: to for one, to in split.items() if one != hop}
            name = self._class_of(parcel.rank)
            full = {h for h in split if not self.links[h].has_room(parcel, name)}
        if full:
            if not must:
                return False
            self.counts["dropped: no room"] += 1
            split = {hop: to for hop, to in split.items() if hop not in full}
        self._offer(parcel, split, now_s, 0.0)
        return True

    def parcel(
        self,
        key: str,
        payload: bytes,
        *,
        kind: int = DATA,
        rank: int = 0,
        number: int = 0,
        to: Iterable[int] | None = None,
    ) -> Cargo | None:
        """A frame of this router for all who want it; None if nobody does."""
        if to is None:
            self.refresh()
            entries = ANSWERS if kind == QUERY else DECLARED
            to = map(id_of, self.tables.with_key(entries, key))
        chosen = tuple(to)
        if not chosen:
            return None
        return Cargo(self.id, key, chosen, (self.id,), rank, kind, number, payload)

    def consumed(self, rank: int, size: int) -> None:
        """What has arrived was handed over."""
        self._local[rank] -= size
        if rank in self._local_full and self._local[rank] <= self.terms.marks.low:
            self._local_full.discard(rank)
            self._mark(self._class_of(rank), _LOCAL, is_full=False)

    def reserve(
        self, number: int, claim: LinkClaim, to: Collection[int], now_s: float
    ) -> list[Effect]:
        """Have so much kept on all hops to these routers; `ReservationTold` says whether it is."""
        return self._reservations.ask(number, claim, to, now_s, sender=self.own)

    def give_back(self, number: int) -> None:
        """Reserve it no more."""
        self._reservations.give_back(number, sender=self.own)

    # Neighbours.

    def neighbour_shown(self, peer: str, is_shown: bool, now_s: float) -> list[Effect]:
        """The token of a neighbour can be seen, or no more."""
        link = self.links.get(peer)
        if link is None:
            if not is_shown or len(self.links) >= NEIGHBOURS_COUNT_MAX:
                return []
            self._session += 1
            link = self.links[peer] = Link(self.own, peer, self._session, self.terms)
        link.is_shown = is_shown
        if is_shown:
            link.must_greet = True
            self._wake(link)
        else:
            link.heard_s = None
        return self._check(link, now_s)

    def take(self, message: RoutingMessage, now_s: float) -> list[Effect]:
        """A message of a neighbour has come."""
        link = self.links.get(message.sender)
        if link is None:
            self.counts["refused: not a neighbour"] += 1
            return []
        if isinstance(message, Hello):
            return self._on_hello(link, message, now_s)
        if link.heard_s is None or link.is_refused:
            self.counts["refused: no hello before"] += 1
            return []
        match message:
            case Parcel():
                return self._on_parcel(link, message, now_s)
            case SeenSoFar(session=session, place=place):
                if session == link.session:
                    link.on_seen(place)
                    self._wake(link)
            case RouterTable():
                return self._on_table(link, message, now_s)
            case TableVersions():
                self._on_versions(link, message)
            case Reserve():
                return self._reservations.on_reserve(link, message, now_s, self.own)
            case Reserved():
                return self._reservations.on_reserved(link, message, self.own)
        return []

    def tick(self, now_s: float) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        if now_s - self._ticked_s > self.terms.lease_s / 2:
            # This router stood still itself: what the neighbours said meanwhile is not read yet.
            for link in self.links.values():
                link.excuse(now_s)
        self._ticked_s = now_s
        for link in list(self.links.values()):
            effects += self._check(link, now_s)
            link.say_seen()
            if now_s - link.greeted_s >= self.terms.beat_s and link.is_shown:
                link.must_greet = True
            if len(link.queues):
                self.counts["dropped: stuck"] += link.tick(now_s)
                self._note_room(link)
            if not link.is_idle or link.must_greet:
                self._wake(link)
            is_over = now_s - max(link.greeted_s, 0.0) > self.terms.forget_s
            if not link.is_shown and is_over:
                del self.links[link.peer]
        effects += self.look(now_s)
        effects += self._reservations.tick(now_s, self.own)
        if now_s - self._pruned_s > self.terms.forget_s:
            self._pruned_s = now_s
            self.relays.prune(now_s)
        for origin in self.tables.lost_before(now_s - self.terms.forget_s):
            self.tables.forget(origin)
            self._ids.pop(id_of(origin), None)
            self._are_paths_old = True
        return effects

    def next(self, peer: str, now_s: float, spent: int = 0) -> RoutingMessage | None:
        """Take what is to leave for a neighbour now; None if nothing may.

        `spent` are the bytes of the frame that has left before.
        """
        link = self.links.get(peer)
        if link is None:
            return None
        if spent:
            link.spent(spent, now_s)
        message = link.next(now_s, self._greet_at(now_s))
        if isinstance(message, Parcel):
            self.counts["sent"] += 1
            self._note_room(link)
        return message

    def pause_s(self, peer: str, now_s: float) -> float:
        """How long events for a neighbour have to wait for the rate of the link."""
        link = self.links.get(peer)
        return 0.0 if link is None else link.pause_s(now_s)

    # Paths.

    @property
    def paths(self) -> Paths:
        """The paths to all routers, as of now."""
        self.refresh()
        return self._paths

    def refresh(self) -> bool:
        """Find the paths anew, if the tables say something else; whether they did."""
        if not self._are_paths_old:
            return False
        self._are_paths_old = False
        tables = self.tables.tables
        self._paths = Paths(self.own, links_of({r: told.neighbours for r, told in tables.items()}))
        self._detours = {}
        self.relays.forget_splits()
        self._reservations.must_renew()
        return True

    def look(self, now_s: float) -> list[Effect]:
        """Tell which tokens came and went with the paths."""
        self.must_look = False
        self.refresh()
        came, went = self.tables.note_reached(self._paths.distances, now_s)
        effects: list[Effect] = []
        for token in [token for token, whose in self._shown.items() if whose in went]:
            del self._shown[token]
            effects.append(TokenChanged(token, False))
        for origin, token in self.tables.entries(TOKEN, sorted(came - {self.own})):
            self._shown[token] = origin
            effects.append(TokenChanged(token, True))
        return effects

    def tokens(self) -> list[str]:
        """The tokens of others that can be seen."""
        return list(self._shown)

    def is_met(self) -> bool:
        """Whether every neighbour that is there has told its tables, or refuses."""
        return all(
            (link.is_synced and link.peer in self.paths.hops) or link.refuses or link.is_refused
            for link in self.links.values()
            if link.is_shown
        )

    # Taking in.

    def _on_hello(self, link: Link, hello: Hello, now_s: float) -> list[Effect]:
        if hello.to != self.own:
            self.counts["refused: not for me"] += 1
            return []
        effects: list[Effect] = []
        link.is_refused = not self.accepts(hello.name)
        link.limit(self.rate_of(hello.name))
        if not link.on_hello(hello, now_s):
            effects += self._down(link, now_s)
        effects += self._check(link, now_s)
        if link.is_up:
            # Frames of tables may be lost. While tables change, they differ without that.
            differs = hello.tables != self.tables.hash
            if differs and link.differed and hello.tables == link.tables_hash:
                link.say(self._versions(whole=True))
            link.differed, link.tables_hash = differs, hello.tables
        self._wake(link)
        return effects

    def _check(self, link: Link, now_s: float) -> list[Effect]:
        """Whether a link came or went."""
        if link.should_be_up(now_s) == link.is_up:
            return []
        if link.is_up:
            return self._down(link, now_s)
        link.is_up, link.is_synced, link.differed = True, False, False
        link.must_greet = True
        self._tell_own((), ())
        link.say(self._versions(whole=True))
        self._wake(link)
        return self.look(now_s)

    def _down(self, link: Link, now_s: float) -> list[Effect]:
        if not link.is_up:
            return []
        link.is_up = link.is_synced = False
        left = link.take_all(now_s)
        self._reservations.link_down(link, self.own)
        self._note_room(link)
        self._tell_own((), ())
        effects = self.look(now_s)
        for parcel in left:  # by another way, at once
            self._offer(parcel, self._split(parcel, now_s), now_s, 0.0)
        return effects

    def _on_table(self, link: Link, table: RouterTable, now_s: float) -> list[Effect]:
        tables = self.tables
        if why := tables.refusal(table):
            self.counts["refused: too large"] += 1
            return [Unacceptable(link.peer, why)]
        if table.origin == self.own:
            # Told by an earlier life of this node, or by a liar: this one has the last word.
            if table.version > tables.mine.version:
                tables.mine.version = table.version
                self._tell_own((), ())
            return []
        if not tables.is_news(table):
            return []
        if tables.has_gap(table):
            link.say(self._versions(only=table.origin))
            self._wake(link)
            return []
        held = tables.tables.get(table.origin)
        neighbours = () if held is None else held.neighbours
        added, removed = tables.take(table, now_s)
        self._ids[id_of(table.origin)] = table.origin
        if neighbours != tuple(table.neighbours):
            self._are_paths_old = self.must_look = True
        self._pass_on(table, beside=link.peer)
        return self._tokens_of(table.origin, added, removed)

    def _tokens_of(
        self, origin: str, added: Collection[str], removed: Collection[str]
    ) -> list[Effect]:
        effects: list[Effect] = []
        if origin in self.tables.reached:
            for entry in sorted(removed):
                if entry[0] == TOKEN and self._shown.pop(entry[1:], None) is not None:
                    effects.append(TokenChanged(entry[1:], False))
            for entry in sorted(added):
                if entry[0] == TOKEN:
                    self._shown[entry[1:]] = origin
                    effects.append(TokenChanged(entry[1:], True))
        return effects

    def _on_versions(self, link: Link, versions: TableVersions) -> None:
        tables, held = self.tables, versions.held
        for origin in tables.newer_than(held, whole=versions.whole):
            link.say(tables.tables[origin].as_frame(self.own, origin))
        if versions.whole:
            mine = tables.tables
            behind = {o: mine[o].version if o in mine else 0 for o in held}
            lacking = {o: version for o, version in behind.items() if version < held[o]}
            link.say(TableVersions(self.own, lacking, answer=True))
        if versions.answer:
            link.is_synced = True
        self._wake(link)

    def _on_parcel(self, link: Link, parcel: Parcel, now_s: float) -> list[Effect]:
        link.on_parcel(parcel.place)
        if link.must_say_seen:
            self._wake(link)
        if parcel.source == self.id or self.id in parcel.trail:
            self.counts["refused: was here before"] += 1
            return [Unacceptable(link.peer, "sends back what was here before")]
        effects: list[Effect] = []
        to = tuple(parcel.to)
        if self.id in to:
            to = tuple(one for one in to if one != self.id)
            size = len(parcel.payload)
            if parcel.kind == DATA:
                self._arrive(parcel.rank, size)
            effects.append(
                ParcelArrived(
                    *(parcel.source, parcel.key, parcel.rank, parcel.kind, parcel.number),
                    parcel.payload,
                )
            )
        if not to:
            return effects
        if len(parcel.trail) >= HOPS_COUNT_MAX - 1:
            self.counts["dropped: too many hops"] += 1
            return effects
        further = Cargo(
            *(parcel.source, parcel.key, to, (*parcel.trail, self.id), parcel.rank, parcel.kind),
            *(parcel.number, parcel.payload),
        )
        self.counts["carried"] += 1
        self._offer(further, self._split(further, now_s), now_s, parcel.raised_s)
        return effects

    # Sending on.

    def _split(self, parcel: Cargo, now_s: float) -> Split:
        """Which neighbour is to be responsible for which destinations."""
        self.refresh()
        is_reserved = parcel.rank == len(self.terms.classes.names)
        key = _RESERVED if is_reserved else f"{parcel.key} {parcel.kind != DATA}"
        flow = (parcel.source, key)
        split = self.relays.split(flow, parcel.to, now_s, self._hops_to, self._load)
        if any(id_of(hop) in parcel.trail for hop in split):
            split = self._around(parcel, split)
        reached = sum(map(len, split.values()))
        if reached < len(parcel.to):
            self.counts["dropped: out of reach"] += len(parcel.to) - reached
        return split

    def _around(self, parcel: Cargo, split: Split) -> Split:
        """The same without the routers where the parcel was already."""
        found: dict[str, list[int]] = {}
        for hop, to in split.items():
            if id_of(hop) not in parcel.trail:
                found.setdefault(hop, []).extend(to)
                continue
            for one in to:
                hops = [h for h in self._hops_to(one) if id_of(h) not in parcel.trail]
                hops = hops or list(self._detour(one, parcel.trail))
                if hops:
                    best = min(hops, key=lambda h: (h not in found, self._load(h), h))
                    found.setdefault(best, []).append(one)
        return {hop: tuple(to) for hop, to in found.items()}

    def _detour(self, to: int, trail: tuple[int, ...]) -> tuple[str, ...]:
        if (to, trail) not in self._detours:
            tables = self.tables.tables
            links = links_of({router: told.neighbours for router, told in tables.items()})
            avoid = {self._ids[one] for one in trail if one in self._ids}
            paths = Paths(self.own, links, avoid - {self.own})
            if len(self._detours) > 1_000:
                self._detours = {}
            self._detours[to, trail] = paths.hops.get(self._ids.get(to, ""), ())
        return self._detours[to, trail]

    def _reserved_split(
        self, source: int, to: tuple[int, ...], trail: tuple[int, ...], now_s: float
    ) -> Split:
        """Where parcels that a source has reserved go."""
        rank = len(self.terms.classes.names)
        return self._split(Cargo(source, _RESERVED, to, trail, rank, DATA, 0, b""), now_s)

    def _hops_to(self, to: int) -> tuple[str, ...]:
        return self._paths.hops.get(self._ids.get(to, ""), ())

    def _load(self, hop: str) -> int:
        link = self.links[hop]
        return link.waiting + link.under_way + link.load

    def _offer(self, parcel: Cargo, split: Split, now_s: float, raised_s: float) -> None:
        for hop, to in split.items():
            link = self.links[hop]
            same = to == parcel.to
            link.offer(parcel if same else _for(parcel, to), now_s, raised_s)
            self._note_room(link)
            self._wake(link)

    # What is full.

    def _arrive(self, rank: int, size: int) -> None:
        self._local[rank] += size
        if self._local[rank] > self.terms.marks.high and rank not in self._local_full:
            self._local_full.add(rank)
            self._mark(self._class_of(rank), _LOCAL, is_full=True)

    def _class_of(self, rank: int) -> str:
        names = self.terms.classes.names
        return names[min(rank, len(names) - 1)]

    def _note_room(self, link: Link) -> None:
        for name, full in self._full.items():
            is_full = link.note_crowd(name)
            if is_full != (link.peer in full):
                self._mark(name, link.peer, is_full=is_full)

    def _mark(self, class_: str, where: str, *, is_full: bool) -> None:
        """A class is full on one link, or no more: neighbours are told when that matters."""
        full = self._full[class_]
        if is_full and not full:
            self.counts["held"] += 1
        (full.add if is_full else full.discard)(where)
        if len(full) <= 2:  # with more, everyone has been told
            for link in self.links.values():
                link.must_greet = True
                self._wake(link)

    def held_for(self, peer: str) -> list[str]:
        """The classes of which a neighbour is to send nothing: they are full on other links."""
        return [name for name, full in self._full.items() if full - {peer}]

    # Telling.

    def _tell_own(self, added: tuple[str, ...], removed: tuple[str, ...]) -> None:
        """Tell a new version of the own table."""
        mine = self.tables.mine
        neighbours = tuple(sorted(peer for peer, link in self.links.items() if link.is_up))
        if neighbours != mine.neighbours:
            self._are_paths_old = True
        mine.neighbours = neighbours
        since = mine.version
        self.tables.change(added, removed)
        for entry in (*added, *removed):
            self._added.pop(entry, None)
            self._removed.pop(entry, None)
        table = RouterTable(
            *(self.own, self.own, mine.version, since, mine.name, mine.domain, list(neighbours)),
            *(list(added), list(removed)),
        )
        self._pass_on(table)

    def _pass_on(self, table: RouterTable, beside: str = "") -> None:
        message = RouterTable(
            *(self.own, table.origin, table.version, table.since, table.name, table.domain),
            *(table.neighbours, table.added, table.removed),
        )
        for link in self.links.values():
            if link.is_up and link.peer != beside:
                link.say(message)
                self._wake(link)

    def _versions(self, *, whole: bool = False, only: str = "") -> TableVersions:
        tables = self.tables
        of = tables.reached if whole else {only}
        held = {o: tables.tables[o].version if o in tables.tables else 0 for o in of}
        return TableVersions(self.own, held, whole)

    def _greet_at(self, now_s: float) -> Callable[[Link], Hello]:
        def greet(link: Link) -> Hello:
            mine = self.tables.mine
            load = sum(one.waiting for one in self.links.values())
            hello = link.greeting(
                now_s, name=mine.name, domain=mine.domain, tables=self.tables.hash, load=load
            )
            hello.held = self.held_for(link.peer)
            return hello

        return greet

    def _wake(self, link: Link) -> None:
        self.woken[link.peer] = None


def _for(parcel: Cargo, to: tuple[int, ...]) -> Cargo:
    return Cargo(
        *(parcel.source, parcel.key, to, parcel.trail, parcel.rank, parcel.kind),
        *(parcel.number, parcel.payload),
    )
