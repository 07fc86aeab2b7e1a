"""Remote method invocation (paper 000, section 3.3), the calling half, still pure.

A `Caller` finds servers through a `Directory`, sends each call to one of them, point to point, and
reports its outcome exactly once: it returned, it raised, or it was given up, with what is known
about whether it ran.

A call is repeated to the same server under the same number, by which the server recognises it; so
it runs at most once there. It goes to another server only if it cannot have begun at the first
(which refused it, or was never sent it), if its operation is idempotent, or if it has an id under
which servers store its reply (`once`) and the other server uses the same store. Otherwise, if its
server dies, the call is given up as one that may have run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from infobus.patience import DEFAULT_PATIENCE
from infobus.protocols.effects import Complain, Learn, ToPeer
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Presence
from infobus.protocols.invocation.discovery import (
    AllAnswered,
    Arrived,
    Departed,
    Directory,
    DirectoryEffects,
    PresenceUpdated,
)
from infobus.protocols.invocation.effects import (
    BUSY_S_MAX,
    RESEND_S,
    RESEND_S_MAX,
    CallerEffects,
    GivenUp,
    Outgoing,
    Raised,
    Returned,
    Why,
    Yielded,
)
from infobus.protocols.invocation.item_flow import Inflow
from infobus.protocols.invocation.rules import BALANCED, HOPS_MAX, Key, ruled

SERVER = "server"
CREDIT_COUNT = 64
"""Items of a stream that may be on their way or wait for the caller to take them."""
SETTLED_COUNT_MAX = 1000
RESEND_COUNT_MAX = 50
"""How many calls are sent again in one tick."""
_PEERS_COUNT_MAX = 10_000


class _Peer(Struct):
    """What this node has sent to another one."""

    next: int = 1
    outstanding: dict[int, Outgoing] = field(default_factory=dict)
    settled: list[int] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    types: set[int] = field(default_factory=set)


class _Service(Struct):
    """A subject that is called."""

    request: int  # the open question
    is_complete: bool = False  # everyone has answered it
    servers: dict[Key, Presence] = field(default_factory=dict)
    waiting: dict[int, Outgoing] = field(default_factory=dict)


class Caller:
    """All calls of one node. `describe` returns the descriptors of types that calls need."""

    def __init__(
        self,
        directory: Directory,
        describe: Callable[[Iterable[int]], list[bytes]],
        answers_s: float = DEFAULT_PATIENCE.answers_s,
    ) -> None:
        self.directory = directory
        self._answers_s = answers_s
        self.calls: dict[int, Outgoing] = {}
        self.loads: dict[Key, int] = {}  # of servers, as far as known
        self._describe = describe
        self._peers: dict[str, _Peer] = {}
        self._services: dict[str, _Service] = {}

    # What the application does.

    def start(self, call: Outgoing, now_s: float) -> CallerEffects:
        """Begin a call: send it to a server, or let it wait for one."""
        self.calls[call.key] = call
        call.started_s = now_s
        service = self._services.get(call.subject)
        if service is None:
            effects = self.watch(call.subject, now_s)
            return effects + self._place(call, self._services[call.subject], now_s)
        is_any_good = not call.by_load and call.targets is None and not call.once
        if is_any_good and len(service.servers) == 1 and now_s < call.deadline_s:
            # The short path: there is no choice.
            [(server, presence)] = service.servers.items()
            if presence.rule != BALANCED or service.is_complete:
                call.bound = call.bind(presence)
                if call.bound is not None:
                    return self._send(call, server, presence, now_s)
        return self._place(call, service, now_s)

    def watch(self, subject: str, now_s: float) -> CallerEffects:
        """Look for servers of a subject, from now on."""
        if subject in self._services:
            return []
        request, effects = self.directory.ask(subject, SERVER, now_s)
        found = self.directory.found(subject, SERVER)
        servers = {participant.key: participant.presence for participant in found}
        self._services[subject] = _Service(request, servers=servers)
        return self.noted(effects, now_s)

    def servers(self, subject: str) -> tuple[dict[Key, Presence], bool]:
        """Return the servers of a watched subject, and whether every node has answered."""
        service = self._services[subject]
        return service.servers, service.is_complete

    def waiting_count(self, subject: str) -> int:
        """Return how many calls wait for a server to appear."""
        service = self._services.get(subject)
        return len(service.waiting) if service else 0

    def cancel(self, key: int, now_s: float, why: Why = "cancelled") -> CallerEffects:
        """Give up a call, and tell its server."""
        call = self.calls.get(key)
        if call is None:
            return []
        server = call.server
        return [*self._settle_now(call), self._give_up(call, why, server)]

    def taken(self, key: int, count: int) -> CallerEffects:
        """The caller of a stream has taken `count` items in all."""
        call = self.calls.get(key)
        if call is None or call.inflow is None or not call.peer:
            return []
        upto = call.inflow.taken(count)
        return [] if upto is None else [self._credit(call, upto, again=False)]

    # What the world does.

    def noted(self, effects: DirectoryEffects, now_s: float) -> CallerEffects:
        """The directory has changed: continue with calls that wait."""
        result: CallerEffects = list(effects)
        for one in effects:
            match one:
                case Arrived(participant) | PresenceUpdated(participant):
                    service = self._services.get(participant.presence.subject)
                    if service is not None and participant.presence.role == SERVER:
                        service.servers[participant.key] = participant.presence
                        result += self._place_waiting(service, now_s)
                case Departed(participant):
                    service = self._services.get(participant.presence.subject)
                    self.loads.pop(participant.key, None)
                    if service is not None:
                        service.servers.pop(participant.key, None)
                case AllAnswered(request):
                    for service in self._services.values():
                        if service.request == request:
                            service.is_complete = True
                            result += self._place_waiting(service, now_s)
                case _:
                    pass
        return result

    def peer_down(self, name: str, now_s: float) -> CallerEffects:
        """A node is gone: calls there are moved if that is safe, else given up."""
        peer = self._peers.get(name)
        if peer is None:
            return []
        peer.types.clear()
        effects: CallerEffects = []
        for call in list(peer.outstanding.values()):
            peer.settled.append(call.number)
            effects += self._bereaved(call, now_s)
        peer.outstanding.clear()
        return effects

    def _bereaved(self, call: Outgoing, now_s: float) -> CallerEffects:
        server, bound = call.server, call.bound
        assert bound is not None
        has_items = call.inflow is not None and call.inflow.received > 0
        if call.once:
            call.store = call.sent_store
        is_movable = call.once or call.is_idempotent or bound.is_idempotent
        if has_items or not is_movable:
            return [self._give_up(call, "died", server)]
        call.peer, call.has_died = "", True
        return self._place(call, self._services[call.subject], now_s)

    def take(self, message: wire.ServiceMessage, now_s: float) -> CallerEffects:
        """Process a server's message about a call."""
        peer = self._peers.get(message.sender)
        number = message.number  # type: ignore[union-attr]
        if peer is None or number >= peer.next:
            return [Complain(message.sender, f"answers call {number}, which was not made")]
        call = peer.outstanding.get(number)
        if call is None:
            peer.settled.append(number)  # it does not know yet that we have finished with it
            return []
        call.is_underway = True
        match message:
            case wire.Reply() | wire.Failed():
                return self._on_answer(peer, call, message)
            case wire.Underway():
                return []
            case wire.Streamed():
                return self._on_streamed(call, message, now_s)
            case wire.Refused():
                return self._on_refused(peer, call, message, now_s)
            case wire.CallGone():
                del peer.outstanding[number]
                return self._bereaved(call, now_s)
        return []

    def _on_answer(
        self, peer: _Peer, call: Outgoing, answer: wire.Reply | wire.Failed
    ) -> CallerEffects:
        if call.inflow is not None and not call.inflow.ends(answer.count):
            return [self._credit(call, call.inflow.upto, again=True)]  # items are missing
        del peer.outstanding[call.number]
        del self.calls[call.key]
        peer.settled.append(call.number)
        if call.once and not call.keeps_reply:
            peer.acknowledged.append(call.once)
        server = (call.peer, call.presence)
        self.loads[server] = answer.load
        done: Returned | Raised
        if isinstance(answer, wire.Failed):
            done = Raised(call.key, answer.error, server)
        else:
            done = Returned(call.key, answer.body, server)
        if not answer.descriptors:
            return [done]
        return [Learn(answer.descriptors, answer.sender), done]

    def _on_streamed(self, call: Outgoing, items: wire.Streamed, now_s: float) -> CallerEffects:
        if call.inflow is None:
            return [Complain(items.sender, f"streams {call.operation}, which is no stream")]
        bodies = call.inflow.add(items.first, items.bodies)
        call.deadline_s = float("inf")  # its caller watches the time between items
        if bodies:
            call.resend_s, call.resend_at_s = RESEND_S, now_s + RESEND_S
        effects: CallerEffects = []
        if items.descriptors:
            effects.append(Learn(items.descriptors, items.sender))
        return [*effects, Yielded(call.key, bodies)] if bodies else effects

    def _on_refused(
        self, peer: _Peer, call: Outgoing, refused: wire.Refused, now_s: float
    ) -> CallerEffects:
        del peer.outstanding[call.number]
        peer.settled.append(call.number)
        server = (call.peer, call.presence)
        call.peer = ""
        if self.loads.get(server):
            self.loads[server] -= 1  # it was counted there when it was sent
        effects: CallerEffects = []
        if refused.why == wire.DENIED:
            given_up = self._give_up(call, "denied")
            return [replace(given_up, detail=refused.detail, policy=refused.policy)]
        if refused.why == wire.RETIRED:
            effects += self.noted(self.directory.forget(server), now_s)
            self._services[call.subject].servers.pop(server, None)
            call.why = "no server"
        elif refused.why == wire.MOVED and refused.taker is not None:
            call.hops += 1
            presence = self._services[call.subject].servers.get(refused.taker)
            if call.once and presence is not None and not presence.store:
                presence = None
            call.bound = None if presence is None else call.bind(presence)
            if presence is not None and call.bound is not None:
                return self._send(call, refused.taker, presence, now_s)
        else:
            call.refused.add(server)
            call.why = "busy"
        return effects + self._place(call, self._services[call.subject], now_s)

    def tick(self, now_s: float) -> CallerEffects:
        """Time has passed: repeat unanswered calls, give up late ones."""
        effects: CallerEffects = []
        budget = RESEND_COUNT_MAX
        for call in list(self.calls.values()):
            if now_s >= call.deadline_s:
                effects += self.cancel(call.key, now_s, "late")
            elif not call.peer:
                if now_s >= call.resend_at_s:
                    call.refused.clear()
                    effects += self._place(call, self._services[call.subject], now_s)
            elif now_s >= call.resend_at_s and budget:
                budget -= 1  # a slow server must not be buried in repetitions
                call.resend_s = min(RESEND_S_MAX, call.resend_s * 2)
                call.resend_at_s = now_s + call.resend_s
                if call.is_underway:
                    upto = 0 if call.inflow is None else call.inflow.upto
                    effects.append(self._credit(call, upto, again=True))
                elif call.bound is not None:
                    frame = self._frame(call, now_s, call.bound.types, [])
                    effects.append(ToPeer(call.peer, frame, bulk=True))
        for name, peer in self._peers.items():
            if peer.settled or peer.acknowledged:
                effects.append(ToPeer(name, self._settled(peer), bulk=True))
        return effects

    # Choosing a server.

    def _place_waiting(self, service: _Service, now_s: float) -> CallerEffects:
        effects: CallerEffects = []
        for call in list(service.waiting.values()):
            effects += self._place(call, service, now_s)
        return effects

    def _place(self, call: Outgoing, service: _Service, now_s: float) -> CallerEffects:
        """Send a call to a server, or let it wait for one."""
        if now_s >= call.deadline_s:
            return self.cancel(call.key, now_s, "late")
        may_compare = service.is_complete or now_s >= call.started_s + self._answers_s
        has_misfit = False
        # By load, the first one that answers would get a whole burst.
        compares = call.by_load or (
            call.targets is None and any(p.rule == BALANCED for p in service.servers.values())
        )
        while may_compare or not compares:
            server = self._choose(call, service)
            if server is None:
                break
            presence = service.servers[server]
            call.bound = call.bind(presence)
            if call.bound is not None:
                service.waiting.pop(call.key, None)
                return self._send(call, server, presence, now_s)
            call.refused.add(server)
            has_misfit = True
        if has_misfit and may_compare and call.why == "no server":
            return [self._give_up(call, "misfit")]
        targets = None if call.store else call.targets
        if targets is not None and not any(key in service.servers for key in targets):
            return [self._give_up(call, "no server")]
        service.waiting[call.key] = call
        call.resend_at_s = now_s + (
            self._answers_s if compares and not may_compare else call.busy_s
        )
        call.busy_s = min(BUSY_S_MAX, call.busy_s * 2)
        return []

    def _choose(self, call: Outgoing, service: _Service) -> Key | None:
        usable: dict[Key, Presence] = service.servers
        if call.targets is not None and not call.store:
            usable = {key: usable[key] for key in call.targets if key in usable}
        if call.refused:
            usable = {key: one for key, one in usable.items() if key not in call.refused}
        if call.once:
            usable = {
                key: one
                for key, one in usable.items()
                if one.store and call.store in ("", one.store)
            }
        first = next(iter(usable), None)
        if first is None or len(usable) == 1 or call.targets is not None:
            return first
        load = partial(self._load, service)
        if rule := usable[first].rule:  # else the servers would pass it on
            return ruled(rule, usable, f"{self.directory.name}/{call.key}", load)
        return min(usable, key=load) if call.by_load else first

    def _load(self, service: _Service, key: Key) -> int:
        load = self.loads.get(key)
        return service.servers[key].load if load is None else load

    # Sending.

    def _send(self, call: Outgoing, server: Key, presence: Presence, now_s: float) -> CallerEffects:
        bound = call.bound
        assert bound is not None
        peer = self._peers.get(server[0])
        if peer is None:
            peer = self._new_peer(server[0])
        call.peer, call.presence = server
        call.sent_store = presence.store
        call.number, peer.next = peer.next, peer.next + 1
        call.is_underway, call.resend_s = False, RESEND_S
        call.resend_at_s = now_s + RESEND_S
        call.inflow = Inflow(CREDIT_COUNT) if bound.is_stream else None
        peer.outstanding[call.number] = call
        self.loads[server] = self.loads.get(server, presence.load) + 1
        types: Iterable[int] = bound.types
        if types:
            types = [type_ for type_ in types if type_ not in peer.types]
            peer.types.update(types)
        settled, peer.settled = peer.settled, []
        if len(settled) > SETTLED_COUNT_MAX:
            settled, peer.settled = settled[:SETTLED_COUNT_MAX], settled[SETTLED_COUNT_MAX:]
        return [ToPeer(call.peer, self._frame(call, now_s, types, settled))]

    def _frame(
        self, call: Outgoing, now_s: float, types: Iterable[int], settled: list[int]
    ) -> wire.Call:
        bound = call.bound
        assert bound is not None
        return wire.Call(
            self.directory.name,
            call.number,
            call.presence,
            call.operation,
            bound.arguments,
            call.deadline_s - now_s,
            settled,
            0 if call.inflow is None else call.inflow.upto,
            call.once,
            call.key,
            HOPS_MAX if call.store else call.hops,  # only this server knows whether it has run
            self._describe(types) if types else [],
            call.headers,
        )

    def _new_peer(self, name: str) -> _Peer:
        if len(self._peers) >= _PEERS_COUNT_MAX:
            idle = next((n for n, peer in self._peers.items() if not peer.outstanding), None)
            if idle is not None:
                del self._peers[idle]
        peer = self._peers[name] = _Peer()
        return peer

    def _credit(self, call: Outgoing, upto: int, *, again: bool) -> ToPeer[wire.Credit]:
        received = 0 if call.inflow is None else call.inflow.received
        credit = wire.Credit(self.directory.name, call.number, received, upto, again)
        return ToPeer(call.peer, credit)

    def _settled(self, peer: _Peer) -> wire.Settled:
        numbers, peer.settled = peer.settled[:SETTLED_COUNT_MAX], peer.settled[SETTLED_COUNT_MAX:]
        acknowledged, peer.acknowledged = peer.acknowledged, []
        return wire.Settled(self.directory.name, numbers, acknowledged)

    def _settle_now(self, call: Outgoing) -> CallerEffects:
        if not call.peer:
            return []
        peer = self._peers[call.peer]
        peer.outstanding.pop(call.number, None)
        peer.settled.append(call.number)
        return [ToPeer(call.peer, self._settled(peer), bulk=True)]

    def _give_up(self, call: Outgoing, why: Why, server: Key | None = None) -> GivenUp:
        del self.calls[call.key]
        self._services[call.subject].waiting.pop(call.key, None)
        store = call.store or (call.sent_store if server is not None else "")
        detail = "died" if call.has_died else call.why
        return GivenUp(call.key, why, server, detail, store if call.once else "")
