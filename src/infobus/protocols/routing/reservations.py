"""Reservations along paths: each hop keeps room on its links, or says what it could keep.

The router of the source keeps room on the links to its next hops, and asks these, which do the same
for theirs. A hop answers when all behind it have. If one refuses, or does not answer, all give back
what they have kept. It is asked again and again, along the paths of that moment: so what nobody
asks for any more is let go, and what has lost its path is admitted on another one, or its source is
told. What is reserved takes the same way as the parcels, which are one flow for each source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct, field

from infobus.protocols.frames.routing import Reserve, Reserved
from infobus.protocols.routing.effects import Effect, ReservationTold
from infobus.protocols.routing.link import Link
from infobus.protocols.routing.relays import Split
from infobus.protocols.routing.reserved import Holding, LinkClaim, Refusal, fits
from infobus.protocols.routing.terms import RoutingTerms

RESERVATIONS_COUNT_MAX = 10_000
"""Of all sources, at one router."""

SplitFor = Callable[[int, tuple[int, ...], tuple[int, ...], float], Split]
"""From a source, destinations, a trail and the time to what each next hop is responsible for."""

_OWN = ""  # in place of the neighbour that asked
_WORDS = 120


class _Booking(Struct):
    claim: LinkClaim
    to: tuple[int, ...]
    trail: tuple[int, ...]
    round: int = 0
    asked_s: float = 0.0
    hops: dict[str, tuple[int, ...]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)  # of these, who has not answered this round
    told: Refusal | str | None = ""  # what its source knows of an own one; "": nothing yet


class Reservations:
    """What a router has reserved, and what it keeps for others.

    Args:
        own: The id of the router.
        name: What people call it.
        terms: Its times.
        links: Its links, by neighbour.
        split: Where parcels of a source go.
        wake: Called with a neighbour to which something is to be said.
    """

    def __init__(
        self,
        own: int,
        name: str,
        terms: RoutingTerms,
        links: Mapping[str, Link],
        split: SplitFor,
        wake: Callable[[Link], None],
    ) -> None:
        self._own, self._name, self._terms = own, name, terms
        self._links, self._split, self._wake = links, split, wake
        self._bookings: dict[Holding, _Booking] = {}
        self._must_renew = False

    # Of this router itself.

    def ask(
        self, number: int, claim: LinkClaim, to: Collection[int], now_s: float, *, sender: str
    ) -> list[Effect]:
        """Reserve, or go on with what was reserved; `ReservationTold` says how it stands.

        A smaller or greater claim, or other destinations, replace the earlier ones.
        """
        key = (self._own, number, _OWN)
        known = self._bookings.get(key)
        ordered = tuple(sorted(set(to) - {self._own}))
        if known is not None and (known.claim, known.to) == (claim, ordered):
            return []
        booking = known or _Booking(claim, ordered, ())
        booking.claim, booking.to = claim, ordered
        self._bookings[key] = booking
        return self._renew(key, booking, now_s, sender)

    def give_back(self, number: int, *, sender: str) -> None:
        """Reserve this no more, on any hop."""
        self._end((self._own, number, _OWN), sender)

    def must_renew(self) -> None:
        """Paths have changed: ask at the next tick."""
        self._must_renew = True

    def tick(self, now_s: float, sender: str) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        terms, must_renew, self._must_renew = self._terms, self._must_renew, False
        for key, booking in list(self._bookings.items()):
            age_s = now_s - booking.asked_s
            if key[2] != _OWN:
                if age_s >= terms.keep_s:
                    self._end(key, sender)
            elif booking.silent and age_s >= terms.renew_s:
                hop = self._links[min(booking.silent)].name or min(booking.silent)
                effects += self._refuse(key, Refusal(hop, "", why="it does not answer"), sender)
            elif age_s >= terms.renew_s or must_renew:
                effects += self._renew(key, booking, now_s, sender)
        return effects

    # What neighbours say.

    def on_reserve(self, link: Link, asked: Reserve, now_s: float, sender: str) -> list[Effect]:
        """A neighbour asks for room, or gives it back."""
        key = (asked.source, asked.number, link.peer)
        if not asked.to or asked.bytes_per_s <= 0:
            self._end(key, sender)
            return []
        booking = self._bookings.get(key)
        if booking is None:
            if len(self._bookings) >= RESERVATIONS_COUNT_MAX:
                why = f"it keeps {RESERVATIONS_COUNT_MAX} already"
                self._answer(link, asked, Refusal(self._name, "", why=why), sender)
                return []
            booking = self._bookings[key] = _Booking(LinkClaim(0.0, 0.0), (), ())
        booking.claim = LinkClaim(asked.bytes_per_s, asked.buffer_bytes)
        booking.to, booking.trail = tuple(asked.to), (*asked.trail, self._own)
        booking.round = asked.round
        return self._renew(key, booking, now_s, sender)

    def on_reserved(self, link: Link, told: Reserved, sender: str) -> list[Effect]:
        """A neighbour answers."""
        effects: list[Effect] = []
        for key, booking in list(self._bookings.items()):
            is_meant = key[:2] == (told.source, told.number) and booking.round == told.round
            if not is_meant or link.peer not in booking.silent:
                continue
            if told.hop:
                refusal = Refusal(
                    told.hop, told.toward, told.bytes_per_s, told.buffer_bytes, told.why
                )
                effects += self._refuse(key, refusal, sender)
                continue
            booking.silent.discard(link.peer)
            if not booking.silent:
                effects += self._tell(key, booking, None, sender)
        return effects

    def link_down(self, link: Link, sender: str) -> None:
        """A link is down: what its neighbour asked for ends, and what led there is asked anew."""
        for key, booking in list(self._bookings.items()):
            if key[2] == link.peer:
                self._end(key, sender)
            elif link.peer in booking.hops:
                del booking.hops[link.peer]
                booking.silent.discard(link.peer)
                link.reserved.release(key)
        self._must_renew = True

    # Keeping room.

    def _renew(self, key: Holding, booking: _Booking, now_s: float, sender: str) -> list[Effect]:
        booking.asked_s = now_s
        if key[2] == _OWN:
            booking.round += 1
        to = tuple(one for one in booking.to if one != self._own)
        split = self._split(key[0], to, booking.trail or (self._own,), now_s) if to else {}
        for hop in booking.hops.keys() - split.keys():
            self._let_go(key, hop, sender)
        booking.hops, booking.silent = dict(split), set()
        reached = {one for ones in split.values() for one in ones}
        # A site that cannot be reached is not on any path of its source; later hops should know.
        if len(reached) < len(to) and not (key[2] == _OWN and reached):
            return self._refuse(key, Refusal(self._name, "", why="no path leads there"), sender)
        for hop in split:
            link = self._links[hop]
            free = link.reserved.free(key, link.bytes_per_s, link.marks.high)
            if not fits(booking.claim, free):
                named = (self._name, link.name or hop)
                room = min(free.bytes_per_s, 1e15), min(free.buffer_bytes, 1e15)
                return self._refuse(key, Refusal(*named, *room), sender)
            link.reserved.keep(key, booking.claim)
        for hop in split:
            booking.silent.add(hop)
            # Two neighbours may have asked for it, for different destinations.
            ones = {one for b in self._same(key) for one in b.hops.get(hop, ())}
            self._links[hop].say(
                Reserve(
                    *(sender, key[0], key[1], booking.round, sorted(ones)),
                    list(booking.trail or (self._own,)),
                    *(booking.claim.bytes_per_s, booking.claim.buffer_bytes),
                )
            )
            self._wake(self._links[hop])
        return [] if split else self._tell(key, booking, None, sender)

    def _refuse(self, key: Holding, refusal: Refusal, sender: str) -> list[Effect]:
        """Keep it nowhere from here on, and say so. An own one is asked for again later."""
        booking = self._bookings[key]
        for hop in booking.hops:
            self._let_go(key, hop, sender)
        booking.hops, booking.silent = {}, set()
        effects = self._tell(key, booking, refusal, sender)
        if key[2] != _OWN:
            del self._bookings[key]
        return effects

    def _tell(
        self, key: Holding, booking: _Booking, refusal: Refusal | None, sender: str
    ) -> list[Effect]:
        """Tell the source, or the neighbour that asked."""
        if key[2] == _OWN:
            if booking.told == refusal:
                return []
            booking.told = refusal
            return [ReservationTold(key[1], refusal)]
        link = self._links.get(key[2])
        if link is not None:
            asked = Reserve(sender, key[0], key[1], booking.round)
            self._answer(link, asked, refusal, sender)
        return []

    def _answer(self, link: Link, asked: Reserve, refusal: Refusal | None, sender: str) -> None:
        answer = Reserved(sender, asked.source, asked.number, asked.round)
        if refusal is not None:
            answer.hop, answer.toward = refusal.hop[:_WORDS], refusal.toward[:_WORDS]
            answer.bytes_per_s, answer.buffer_bytes = refusal.bytes_per_s, refusal.buffer_bytes
            answer.why = refusal.why[:_WORDS]
        link.say(answer)
        self._wake(link)

    def _end(self, key: Holding, sender: str) -> None:
        booking = self._bookings.pop(key, None)
        if booking is not None:
            for hop in booking.hops:
                self._let_go(key, hop, sender)

    def _let_go(self, key: Holding, hop: str, sender: str) -> None:
        link = self._links.get(hop)
        if link is not None:
            link.reserved.release(key)
            if link.is_up and not any(hop in other.hops for other in self._same(key, but=key)):
                link.say(Reserve(sender, key[0], key[1], 0))
                self._wake(link)

    def _same(self, key: Holding, but: Holding | None = None) -> list[_Booking]:
        """What is kept of a reservation, whoever has asked."""
        return [b for k, b in self._bookings.items() if k[:2] == key[:2] and k != but]
