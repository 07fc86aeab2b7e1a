"""Shaking hands with every node that appears, and again before keys or certificates grow old.

Of two nodes that see each other, the one with the lesser name begins; the other one does if it
hears nothing for a while. If both have begun, that of the lesser one counts. Whoever begins repeats
its message until an answer comes, and uses the new seal once the other one has proven that it has
it, too. So a seal that anyone uses can be opened at the other side. Former seals open what was
under way for `FORMER_S` more.

Anybody can put a frame in anybody's name. So what fails changes nothing: a handshake goes on as if
the forgery had not come, and a seal stays until a whole new handshake has replaced it.
Everything is bounded: what is begun, what is answered, and who is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import get_args

from infobus.errors import BadCredential, BadFrame, BusError
from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.security import (
    ATTEMPT_BYTES,
    Greeting,
    GreetingBack,
    GreetingDone,
    GreetingHeard,
    GreetingRefused,
    HandshakeMessage,
    RefusalWhy,
)
from infobus.protocols.security.effects import Effects, Met, Unmet
from infobus.protocols.security.introduction import (
    Identity,
    be_introduced,
    introduce,
    is_bound,
    prologue,
)
from infobus.protocols.security.seals import Seal, seal_of
from infobus.security.noise import KEY_BYTES, Handshake

SEAL_S = 24 * 3600.0
SEAL_FRAMES_MAX = 2**32
FORMER_S = 60.0
SEALS_COUNT_MAX = 4  # with one peer: the one in use, former ones, and one that is just being made
_LATE_S = 0.5  # the node with the greater name begins after so long
_RETRY_S = 0.1
_RETRY_S_MAX = 2.0
_PENDING_S = 10.0
_PENDING_OF_ONE_MAX = 4
_PENDING_MAX = 1_024
_AGAIN_S = 5.0  # between attempts to make a new seal before the old one ends
_BEGUN_PER_S = 1_000
_ANSWERED_PER_S = 500
_STRANGERS_PER_S = 100  # names that cannot be seen; none of them is kept
_NODES_OF_ONE_MAX = 1_000
_FORGET_S = 60.0  # who cannot be seen, and is not heard of
_PARTNERS_MAX = 100_000
_WHYS = get_args(RefusalWhy)


@dataclass
class _Attempt:
    """A handshake that this node has begun."""

    name: bytes
    handshake: Handshake
    message: HandshakeMessage  # the last one, to be repeated
    began_s: float
    retry_at_s: float
    retry_s: float = _RETRY_S
    seal: Seal | None = None  # once the other one has answered


@dataclass
class _Pending:
    """A handshake that this node has answered."""

    handshake: Handshake
    greeting: bytes
    answer: GreetingBack
    at_s: float


@dataclass
class _Partner:
    """What this node knows of another one."""

    seen_at_s: float
    is_seen: bool = False
    begin_at_s: float | None = None
    attempt: _Attempt | None = None
    pending: dict[bytes, _Pending] = field(default_factory=dict)
    current: Seal | None = None
    seals: tuple[Seal, ...] = ()  # that can be opened, the latest first
    former: dict[bytes, float] = field(default_factory=dict)  # ids of seals, and since when
    refusal: RefusalWhy | None = None  # what is said in its name; it may be a lie

    def knows(self, attempt: bytes) -> bool:
        """Whether a handshake was begun with it, by either side, and may still count."""
        begun = self.attempt is not None and self.attempt.name == attempt
        return begun or attempt in self.pending or any(s.attempt == attempt for s in self.seals)


@dataclass
class _Budget:
    """So many a second, and no more."""

    per_s: float
    left: float
    at_s: float = 0.0

    def take(self, now_s: float) -> bool:
        self.left = min(self.per_s, self.left + max(0.0, now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class Handshakes:
    """The handshakes of one node. Times are `now_s` of its clock, and `wall_s` since 1970.

    Args:
        name: What this node is called; bound to its static key.
        bus: The bus that it is on.
        static: Its private static key.
        identity: Whom it acts for. It may be replaced at any time; then call `renew`.
        draw: Returns so many random bytes.
        is_name_of: Whether a name is that of the node with this static key.
    """

    def __init__(
        self,
        name: str,
        bus: str,
        static: bytes,
        identity: Identity,
        draw: Callable[[int], bytes],
        is_name_of: Callable[[str, bytes], bool] = is_bound,
    ) -> None:
        self.name = name
        self.identity = identity
        self.policy = 0
        """The version of the policy that others are told."""
        self.seals: dict[str, tuple[Seal, ...]] = {}
        """By peer, the seals that can be opened, the latest first."""
        self.version = 0
        """Grows whenever a seal is made, used or dropped."""
        self.frames = 0
        """How many frames this node has sealed; whoever seals counts them."""
        self._bus = bus
        self._static = static
        self._draw = draw
        self._is_name_of = is_name_of
        self._partners: dict[str, _Partner] = {}
        self._pending_count = 0
        self._begun = _Budget(_BEGUN_PER_S, _BEGUN_PER_S)
        self._answered = _Budget(_ANSWERED_PER_S, _ANSWERED_PER_S)
        self._strangers = _Budget(_STRANGERS_PER_S, _STRANGERS_PER_S)

    # What others ask.

    def seal_with(self, peer: str) -> Seal | None:
        """What frames for a peer are sealed with."""
        partner = self._partners.get(peer)
        return None if partner is None else partner.current

    def sealed_with(self) -> list[Seal]:
        """What frames for everyone are sealed with."""
        return [one.current for one in self._partners.values() if one.current is not None]

    def is_met(self, peer: str) -> bool:
        """Whether a peer can be seen, and has shown who it is."""
        partner = self._partners.get(peer)
        return partner is not None and partner.is_seen and partner.current is not None

    def unmet(self) -> list[str]:
        """The peers that can be seen and have not shown who they are."""
        return [n for n, one in self._partners.items() if one.is_seen and one.current is None]

    # What happens.

    def peer_up(self, peer: str, now_s: float) -> Effects:
        """A peer can be seen (again)."""
        if peer == self.name:
            return []
        partner = self._partner(peer, now_s)
        if partner is None or partner.is_seen:
            return []
        partner.is_seen = True
        if partner.current is not None:
            return [Met(peer)]
        partner.begin_at_s = now_s if self.name < peer else now_s + _LATE_S
        return self._begin(peer, partner, now_s)

    def peer_down(self, peer: str, now_s: float) -> Effects:
        """A peer can no longer be seen. It keeps its seal, should it be back soon."""
        partner = self._partners.get(peer)
        if partner is None or not partner.is_seen:
            return []
        partner.is_seen, partner.seen_at_s = False, now_s
        partner.attempt = partner.begin_at_s = partner.refusal = None
        return [Unmet(peer)] if partner.current is not None else []

    def take(self, message: HandshakeMessage, now_s: float, wall_s: float) -> Effects:
        """A frame of a handshake has come, in somebody's name."""
        peer = message.sender
        if peer == self.name:
            return []
        try:
            match message:
                case Greeting():
                    return self._on_greeting(peer, message.message, now_s)
                case GreetingBack():
                    return self._on_back(peer, message, now_s, wall_s)
                case GreetingDone():
                    return self._on_done(peer, message, now_s, wall_s)
                case GreetingHeard():
                    return self._on_heard(peer, message, now_s)
                case GreetingRefused():
                    return self._on_refused(peer, message)
        except BadCredential as error:
            assert isinstance(message, GreetingBack | GreetingDone)
            complaint = Complain(peer, f"could not shake hands: {error}")
            return [complaint, *self._refusal(peer, message.attempt, error)]
        except BusError as error:
            return [Complain(peer, f"could not shake hands: {error}")]

    def tick(self, now_s: float, wall_s: float) -> Effects:
        """Time has passed: begin, repeat, renew and forget what is due."""
        effects: Effects = []
        for peer, partner in list(self._partners.items()):
            effects += self._begin(peer, partner, now_s)
            attempt = partner.attempt
            if attempt is not None and attempt.seal and now_s - attempt.began_s >= _PENDING_S:
                # The other one knows nothing of it any more: begin anew.
                partner.former[attempt.seal.own_id] = now_s
                partner.attempt, partner.begin_at_s = None, now_s
            elif attempt is not None and now_s >= attempt.retry_at_s:
                attempt.retry_s = min(_RETRY_S_MAX, 2 * attempt.retry_s)
                attempt.retry_at_s = now_s + attempt.retry_s
                effects.append(ToPeer(peer, attempt.message))
            if partner.former or partner.pending:
                self._forget_old(peer, partner, now_s)
            if partner.current is not None:
                effects += self._look_at_age(peer, partner, partner.current, now_s, wall_s)
            elif not partner.is_seen and now_s - partner.seen_at_s > _FORGET_S:
                self._forget(peer)
        return effects

    def renew(self, now_s: float) -> None:
        """This node has another certificate: show it to everyone, a few at a time."""
        for partner in self._partners.values():
            if partner.current is not None:
                partner.attempt = None
                partner.begin_at_s = now_s

    def drop(self, peer: str, why: str) -> Effects:
        """A peer does not count any more: nothing of it is opened, nothing sealed for it."""
        partner = self._partners.get(peer)
        if partner is None or not (partner.seals or partner.pending or partner.attempt):
            return []
        is_told = self.is_met(peer)
        self._pending_count -= len(partner.pending)
        partner.pending, partner.attempt, partner.current = {}, None, None
        partner.begin_at_s = None  # it may begin itself, if it may come in
        self._keep(peer, partner, ())
        return [Complain(peer, why), *([Unmet(peer)] if is_told else [])]

    def recheck(self, wall_s: float) -> Effects:
        """What this node believes has changed: drop those who would not be let in now."""
        effects: Effects = []
        for peer, partner in list(self._partners.items()):
            for seal in partner.seals[:1]:
                try:
                    self.identity.check(seal.bearer.certificate, wall_s)
                except BusError as error:
                    effects += self.drop(peer, str(error))
                    if isinstance(error, BadCredential):
                        effects += self._refusal(peer, seal.attempt, error)
        return effects

    # Saying that a certificate does not count. It is not proven, so nothing follows from it but
    # that people are told.

    def _refusal(self, peer: str, attempt: bytes, error: BadCredential) -> Effects:
        if error.why not in _WHYS:
            return []
        why: RefusalWhy = error.why  # type: ignore[assignment]
        return [ToPeer(peer, GreetingRefused(self.name, attempt, why))]

    def _on_refused(self, peer: str, refused: GreetingRefused) -> Effects:
        partner = self._partners.get(peer)
        if partner is None or not partner.knows(refused.attempt):
            return []
        if partner.refusal == refused.why:
            return []
        partner.refusal = refused.why
        alike = sum(one.refusal == refused.why for one in self._partners.values())
        who = "1 node refuses" if alike == 1 else f"{alike} nodes refuse"
        whose = "the credential of this node"
        return [Complain("credential", f"{who} {whose}: {_SAID[refused.why]}")]

    # Beginning.

    def _begin(self, peer: str, partner: _Partner, now_s: float) -> Effects:
        is_due = partner.begin_at_s is not None and now_s >= partner.begin_at_s
        if not is_due or partner.attempt is not None or not self._begun.take(now_s):
            return []
        partner.begin_at_s = None
        handshake = self._handshake(peer, is_initiator=True)
        greeting = Greeting(self.name, handshake.write(b""))
        name = _attempt_of(greeting.message)
        partner.attempt = _Attempt(name, handshake, greeting, now_s, now_s + _RETRY_S)
        return [ToPeer(peer, greeting)]

    def _on_back(self, peer: str, message: GreetingBack, now_s: float, wall_s: float) -> Effects:
        partner = self._partners.get(peer)
        attempt = None if partner is None else partner.attempt
        if partner is None or attempt is None or attempt.name != message.attempt or attempt.seal:
            return []
        if not self._answered.take(now_s):
            return []
        handshake = attempt.handshake.copy()  # this may be a forgery, and the true one follow
        bearer, said = be_introduced(handshake, message.message, self.identity, wall_s)
        self._check_name(peer, handshake)
        done = introduce(handshake, self.identity, _WIRE, self.policy)
        seal = attempt.seal = seal_of(
            handshake,
            peer,
            bearer,
            policy=said.policy,
            wire=said.wire,
            attempt=attempt.name,
            is_initiator=True,
            is_lessers=self.name < peer,
            now_s=now_s,
        )
        self._keep(peer, partner, (seal, *partner.seals))
        attempt.message = GreetingDone(self.name, attempt.name, done)
        attempt.retry_s, attempt.retry_at_s = _RETRY_S, now_s + _RETRY_S
        return [ToPeer(peer, attempt.message)]

    def _on_heard(self, peer: str, message: GreetingHeard, now_s: float) -> Effects:
        partner = self._partners.get(peer)
        attempt = None if partner is None else partner.attempt
        if partner is None or attempt is None or attempt.seal is None:
            return []
        if attempt.name != message.attempt or not attempt.seal.is_proof(message.proof):
            return []
        partner.attempt = None
        return self._use(peer, partner, attempt.seal, now_s)

    # Answering.

    def _on_greeting(self, peer: str, message: bytes, now_s: float) -> Effects:
        attempt = _attempt_of(message)
        partner = self._partners.get(peer)
        known = None if partner is None else partner.pending.get(attempt)
        if known is not None:
            return [ToPeer(peer, known.answer)]
        is_seen = partner is not None and partner.is_seen
        if not (self._answered if is_seen else self._strangers).take(now_s):
            return []
        partner = self._partner(peer, now_s)
        if partner is None:
            return []
        handshake = self._handshake(peer, is_initiator=False)
        handshake.read(message)
        answer = GreetingBack(
            self.name, attempt, introduce(handshake, self.identity, _WIRE, self.policy)
        )
        self._make_room(partner)
        partner.pending[attempt] = _Pending(handshake, message, answer, now_s)
        self._pending_count += 1
        return [ToPeer(peer, answer)]

    def _on_done(self, peer: str, message: GreetingDone, now_s: float, wall_s: float) -> Effects:
        partner = self._partners.get(peer)
        if partner is None:
            return []
        digest = sha256(message.message).digest()
        for seal in partner.seals:
            if seal.attempt == message.attempt and seal.done == digest:
                return [ToPeer(peer, GreetingHeard(self.name, seal.attempt, seal.proof()))]
        pending = partner.pending.get(message.attempt)
        if pending is None or not self._answered.take(now_s):
            return []
        handshake = pending.handshake.copy()
        bearer, said = be_introduced(handshake, message.message, self.identity, wall_s)
        self._check_name(peer, handshake)
        seal = seal_of(
            handshake,
            peer,
            bearer,
            policy=said.policy,
            wire=said.wire,
            attempt=message.attempt,
            is_initiator=False,
            is_lessers=peer < self.name,
            now_s=now_s,
        )
        seal.done = digest
        del partner.pending[message.attempt]
        self._pending_count -= 1
        self._keep(peer, partner, (seal, *partner.seals))
        heard = ToPeer(peer, GreetingHeard(self.name, seal.attempt, seal.proof()))
        return [heard, *self._use(peer, partner, seal, now_s)]

    # Seals.

    def _use(self, peer: str, partner: _Partner, seal: Seal, now_s: float) -> Effects:
        if seal not in partner.seals:
            return []
        if partner.current is None and self._has_too_many(seal.bearer.principal):
            return self.drop(peer, f"{seal.bearer.principal} has too many nodes here")
        was_met = self.is_met(peer)
        current = partner.current
        if current is not None:
            is_crossing = abs(seal.began_s - current.began_s) < _PENDING_S
            if is_crossing and current.is_lessers and not seal.is_lessers:
                # Both have begun at once, and must not end with different ones.
                partner.former[seal.own_id] = now_s
                return []
            partner.former[current.own_id] = now_s
        partner.former.pop(seal.own_id, None)
        seal.used_since = self.frames
        partner.current, partner.begin_at_s, partner.refusal = seal, None, None
        self.version += 1
        return [Met(peer)] if partner.is_seen and not was_met else []

    def _look_at_age(
        self, peer: str, partner: _Partner, seal: Seal, now_s: float, wall_s: float
    ) -> Effects:
        if wall_s >= seal.bearer.until_s:
            return self.drop(peer, f"the certificate of {seal.bearer.principal} has expired")
        if not partner.is_seen:
            if now_s - partner.seen_at_s > _FORGET_S:
                self._forget(peer)
            return []
        is_old = now_s - seal.began_s >= SEAL_S or self.frames - seal.used_since >= SEAL_FRAMES_MAX
        if is_old and partner.attempt is None and partner.begin_at_s is None:
            partner.begin_at_s = now_s if self.name < peer else now_s + _AGAIN_S
        return []

    def _forget_old(self, peer: str, partner: _Partner, now_s: float) -> None:
        ended = {one for one, at_s in partner.former.items() if now_s - at_s >= FORMER_S}
        if ended:
            for one in ended:
                del partner.former[one]
            kept = tuple(seal for seal in partner.seals if seal.own_id not in ended)
            self._keep(peer, partner, kept)
        for attempt, pending in list(partner.pending.items()):
            if now_s - pending.at_s >= _PENDING_S:
                del partner.pending[attempt]
                self._pending_count -= 1

    def _keep(self, peer: str, partner: _Partner, seals: tuple[Seal, ...]) -> None:
        if len(seals) > SEALS_COUNT_MAX:
            # The one in use stays, whatever is begun beside it.
            others = [one for one in seals if one is not partner.current][: SEALS_COUNT_MAX - 1]
            seals = tuple(one for one in seals if one is partner.current or one in others)
        partner.seals = seals
        if seals:
            self.seals[peer] = seals
        else:
            self.seals.pop(peer, None)
        self.version += 1

    # Who there is.

    def _partner(self, peer: str, now_s: float) -> _Partner | None:
        partner = self._partners.get(peer)
        if partner is None and len(self._partners) < _PARTNERS_MAX:
            partner = self._partners[peer] = _Partner(now_s)
        return partner

    def _forget(self, peer: str) -> None:
        partner = self._partners.pop(peer)
        self._pending_count -= len(partner.pending)
        if self.seals.pop(peer, None) is not None:
            self.version += 1

    def _has_too_many(self, principal: str) -> bool:
        if len(self._partners) < _NODES_OF_ONE_MAX:
            return False
        of_it = sum(one.bearer.principal == principal for one in self.sealed_with())
        return of_it >= _NODES_OF_ONE_MAX

    def _make_room(self, partner: _Partner) -> None:
        while len(partner.pending) >= _PENDING_OF_ONE_MAX:
            del partner.pending[next(iter(partner.pending))]
            self._pending_count -= 1
        if self._pending_count < _PENDING_MAX:
            return
        for other in self._partners.values():  # those that cannot be seen, and then the oldest
            if other.pending and not other.is_seen:
                break
        else:
            other = next(one for one in self._partners.values() if one.pending)
        self._pending_count -= len(other.pending)
        other.pending = {}

    def _handshake(self, peer: str, *, is_initiator: bool) -> Handshake:
        names = (self.name, peer) if is_initiator else (peer, self.name)
        return Handshake(
            is_initiator=is_initiator,
            prologue=prologue(self._bus, *names, wire.WIRE_MAJOR),
            static=self._static,
            ephemeral=self._draw(KEY_BYTES),
        )

    def _check_name(self, peer: str, handshake: Handshake) -> None:
        if not self._is_name_of(peer, handshake.remote_static):
            raise BadFrame("it has not the key that its name is bound to")


_SAID: dict[RefusalWhy, str] = {
    "authority": "it is of no authority that counts there",
    "bus": "it is for another bus",
    "use": "it is for another use",
    "early": "it does not count yet",
    "expired": "it has expired",
    "revoked": "it was revoked",
}
_WIRE = (wire.WIRE_MAJOR, wire.WIRE_MINOR)


def _attempt_of(message: bytes) -> bytes:
    """What names a handshake: nobody can make another first message of this name."""
    return sha256(message).digest()[:ATTEMPT_BYTES]
