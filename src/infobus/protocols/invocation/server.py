"""Remote method invocation (paper 000, section 3.3), the serving half, still pure.

A `Server` accepts calls for the offers of its node, runs a bounded number of each offer at a time,
lets a bounded number wait, and refuses the rest. It identifies a call by its caller and number: a
repeated call is not run again, but answered again. For that it remembers the highest number of each
caller, the few below it that have not arrived yet, and the answers that their callers have not
settled.

Servers of one subject may share the calls by a rule that all of them follow: `elected` (each call
has its server, by lot), `balanced` (the least loaded) and `primary` (the first of them, the others
stand by). A server that gets a call meant for another redirects the caller. Servers may see each
other differently for a while; so a call that was redirected often enough is simply accepted.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames import invocation as wire
from infobus.protocols.invocation.discovery import Directory
from infobus.protocols.invocation.item_flow import Outflow
from infobus.protocols.invocation.offers import (
    FINISHED,
    QUEUED,
    RUNNING,
    Acknowledged,
    Answer,
    CallsOfNode,
    Claim,
    Drained,
    Id,
    Incoming,
    Offer,
    Room,
    RunCall,
    ServerEffects,
    Stop,
    use_of,
)
from infobus.protocols.invocation.rules import BALANCED, HOPS_MAX, Key, ruled

SERVER = "server"
CALLS_OF_NODE_MAX = 10_000
"""Calls of one node that it has not settled, so that it does not fill the queues of all."""
MISSING_COUNT_MAX = 100_000
"""How far a caller's numbers may run ahead of what has come."""
ANSWERS_COUNT_MAX, ANSWERS_BYTES_MAX = 100_000, 256 * 1024 * 1024
"""Answers that are kept for callers who have not settled them; then the oldest go."""
CALLERS_COUNT_MAX = 10_000
REMIND_S = 2.0


class Server:
    """The calls that one node serves."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.name = directory.name
        self.offers: dict[int, Offer] = {}
        self._callers: dict[str, CallsOfNode] = {}
        # Calls under way that share one execution, by id and use.
        self._once: dict[tuple[str, str], list[Incoming]] = {}
        self._answers: dict[Id, int] = {}  # finished calls -> bytes, oldest first
        self._answers_bytes = 0
        self._held: dict[Id, float] = {}  # streams without room -> when to remind the caller
        # Server -> calls that were passed on to it since it told its load: (revision, count).
        self._passed_on: dict[Key, tuple[int, int]] = {}

    # What the application does.

    def offer(self, offer: Offer) -> None:
        """Begin to serve; the offer's id is that of its presence."""
        self.offers[offer.id] = offer

    def retire(self, id: int) -> ServerEffects:
        """Accept no new calls, refuse waiting ones, finish running ones; `Drained` follows."""
        offer = self.offers.get(id)
        if offer is None or offer.is_retired:
            return []
        offer.is_retired = True
        effects: ServerEffects = []
        while offer.queue:
            one = offer.queue.popleft()
            effects += self._answer(one, self._refusal(one.call, wire.RETIRED))
        return effects + self._drained(offer)

    def finished(self, id: Id, answer: wire.Reply | wire.Failed, now_s: float) -> ServerEffects:
        """A call is done: store and send its answer, and begin the next one."""
        one = self._get(id)
        if one is None or one.state is not RUNNING:
            return []
        effects: ServerEffects = []
        if one.call.once:
            for other in self._once.pop(one.once, [one]):
                effects += self._answer(other, _addressed(answer, other.id[1]))
        else:
            effects = self._answer(one, answer)
        offer = one.offer
        return effects + self._next(offer, now_s) if offer.queue or offer.is_retired else effects

    def claimed(self, id: Id, answer: Answer | None, now_s: float) -> ServerEffects:
        """The store knows the reply to a call, or (None) it has to be run."""
        one = self._get(id)
        if one is None:
            return []
        if answer is None:
            return [RunCall(id, one.call)]
        if isinstance(answer, wire.Refused):
            effects: ServerEffects = []
            for other in self._once.pop(one.once, [one]):
                effects += self._answer(other, _addressed(answer, other.id[1]))
            return effects + self._next(one.offer, now_s)
        return self.finished(id, answer, now_s)

    def produced(self, id: Id, body: bytes, descriptors: list[bytes]) -> tuple[bool, ServerEffects]:
        """Add an item to a stream; return whether there is room for more, else `Room` follows."""
        one = self._get(id)
        if one is None or one.outflow is None:
            return True, []
        if one.is_settled:
            # It was told to stop, perhaps before it had begun. Nobody will ever make room.
            return True, [Stop(id, one.offer.id)]
        one.outflow.add(body)
        one.descriptors += descriptors
        has_room = one.outflow.has_room()
        if not has_room:
            self._held.setdefault(id, 0.0)
        return has_room, self._stream(one)

    def load(self, presence: int) -> int:
        """Return how many calls of a presence run or wait."""
        offer = self.offers.get(presence)
        return 0 if offer is None else offer.load

    # What the world does.

    def take(self, message: wire.ServiceMessage, now_s: float) -> ServerEffects:
        """Process a caller's message."""
        match message:
            case wire.Call():
                return self._on_call(message, now_s)
            case wire.Settled(sender, numbers, acknowledged):
                done: ServerEffects = [Acknowledged(once) for once in acknowledged]
                return self._settle(sender, numbers) + done
            case wire.Credit():
                return self._on_credit(message)
        return []

    def peer_down(self, name: str) -> ServerEffects:
        """A caller is gone: drop its calls that have not begun, and stop its streams."""
        self._passed_on = {key: told for key, told in self._passed_on.items() if key[0] != name}
        caller = self._callers.get(name)
        if caller is None:
            return []
        effects: ServerEffects = []
        for number, one in list(caller.calls.items()):
            if one.call.once and one.state is not FINISHED:
                continue
            if one.state is not RUNNING or one.outflow is not None:
                effects += self._settle(name, [number])
        return effects

    def tick(self, now_s: float) -> ServerEffects:
        """Time has passed: remind callers that hold up a stream, in case a frame was lost."""
        effects: ServerEffects = []
        for id, remind_at_s in list(self._held.items()):
            one = self._get(id)
            if (
                one is None
                or one.state is not RUNNING
                or one.outflow is None
                or one.outflow.has_room()
            ):
                del self._held[id]
            elif not remind_at_s:
                self._held[id] = now_s + REMIND_S
            elif now_s >= remind_at_s:
                self._held[id] = now_s + REMIND_S
                effects.append(ToPeer(id[0], wire.Underway(self.name, id[1])))
        return effects

    def _on_call(self, call: wire.Call, now_s: float) -> ServerEffects:
        caller = self._callers.get(call.sender) or self._caller(call.sender)
        effects = self._settle(call.sender, call.settled) if call.settled else []
        known = caller.calls.get(call.number)
        if known is not None:
            return effects + self._again(known)
        if call.number - caller.top > MISSING_COUNT_MAX:
            return [*effects, Complain(call.sender, f"jumps to call {call.number}")]
        if not caller.is_new(call.number):
            # Settled before, and late; or dropped when its caller, which still waits,
            # seemed dead.
            return [*effects, ToPeer(call.sender, wire.CallGone(self.name, call.number))]
        offer = self.offers.get(call.presence)
        expires_s = now_s + call.left_s if call.left_s > 0 else float("inf")
        one = Incoming((call.sender, call.number), call, offer or _NOBODY, QUEUED, expires_s)
        caller.calls[call.number] = one
        refusal = self._why_not(call, offer)
        if refusal is not None:
            return effects + self._answer(one, refusal)
        if call.credit:
            one.outflow = Outflow(call.credit)
        if call.once:
            one.once = (call.once, use_of(one.offer.subject, call))
            if one.once in self._once:
                one.state = RUNNING
                self._once[one.once].append(one)
                return effects
        if one.offer.running >= one.offer.running_count_max:
            one.offer.queue.append(one)
            return effects
        return effects + self._begin(one)

    def _why_not(self, call: wire.Call, offer: Offer | None) -> wire.Refused | None:
        if offer is None or offer.is_retired:
            return self._refusal(call, wire.RETIRED)
        if offer.rule and call.hops < HOPS_MAX:
            other = self._ruled(offer, call)
            if other is not None:
                return self._refusal(call, wire.MOVED, to=other)
        if len(self._callers[call.sender].calls) > CALLS_OF_NODE_MAX:
            return self._refusal(
                call, wire.BUSY, f"{call.sender} has too many calls at {self.name}"
            )
        if offer.running >= offer.running_count_max and len(offer.queue) >= offer.queue_count_max:
            return self._refusal(call, wire.BUSY, f"{len(offer.queue)} calls wait at {self.name}")
        return None

    def _ruled(self, offer: Offer, call: wire.Call) -> Id | None:
        """Return the server to which the agreed rule gives a call, if it is another one."""
        if offer.rule == BALANCED and (call.hops or offer.running < offer.running_count_max):
            # The known load of the others is old: a free place here is better. And who passed the
            # call on has more to do than it told, so it must not have the call back.
            return None
        group = {p.key: p.presence for p in self.directory.found(offer.subject, SERVER)}

        def load(key: Key) -> int:
            revision, count = self._passed_on.get(key, (0, 0))
            return group[key].load + (count if revision == group[key].revision else 0)

        chosen = ruled(offer.rule, group, lot_of(call), load)
        if chosen is None or chosen[0] == self.name:
            return None
        if offer.rule == BALANCED:
            if offer.load <= load(chosen) + 1:
                return None
            # Without this, a burst would be passed on as a whole before anyone tells a new load.
            presence = group[chosen]
            self._passed_on[chosen] = (presence.revision, load(chosen) - presence.load + 1)
        return chosen

    def _begin(self, one: Incoming) -> ServerEffects:
        one.state, one.has_slot = RUNNING, True
        one.offer.running += 1
        if one.call.once:
            self._once[one.once] = [one]
            return [Claim(one.id, one.call)]
        return [RunCall(one.id, one.call)]

    def _next(self, offer: Offer, now_s: float) -> ServerEffects:
        """Begin calls that wait, as far as there is room."""
        effects: ServerEffects = []
        while offer.queue and offer.running < offer.running_count_max:
            one = offer.queue.popleft()
            if one.is_settled:
                continue
            if now_s >= one.expires_s:
                why = "it waited for longer than its caller does"
                effects += self._answer(one, self._refusal(one.call, wire.BUSY, why))
            elif one.call.once and one.once in self._once:
                one.state = RUNNING
                self._once[one.once].append(one)
            else:
                effects += self._begin(one)
        return effects + self._drained(offer)

    def _drained(self, offer: Offer) -> ServerEffects:
        if not offer.is_retired or offer.running or self.offers.get(offer.id) is not offer:
            return []
        del self.offers[offer.id]
        return [Drained(offer.id)]

    def _answer(self, one: Incoming, answer: Answer) -> ServerEffects:
        """Finish a call with its answer, which is stored until it is settled."""
        if one.has_slot:
            one.has_slot = False
            one.offer.running -= 1
        one.state = FINISHED
        client, number = one.id
        if one.is_settled:
            self._callers[client].calls.pop(number, None)
            return []
        if not isinstance(answer, wire.Refused):
            offer = one.offer
            answer.sender, answer.load = self.name, offer.running + len(offer.queue)
            if one.outflow is not None:
                answer.count = one.outflow.produced
        one.answer = answer
        self._keep(one)
        effects: ServerEffects = self._stream(one) if one.outflow is not None else []
        return [*effects, ToPeer(client, answer)]

    def _keep(self, one: Incoming) -> None:
        body = one.answer.body if isinstance(one.answer, wire.Reply) else b""
        one.call.arguments = b""  # large ones need not stay in memory until the caller settles
        self._answers[one.id] = len(body)
        self._answers_bytes += len(body)
        while (
            len(self._answers) > ANSWERS_COUNT_MAX or self._answers_bytes > ANSWERS_BYTES_MAX
        ) and len(self._answers) > 1:
            self._drop(next(iter(self._answers)))

    def _drop(self, id: Id) -> None:
        self._answers_bytes -= self._answers.pop(id, 0)
        caller = self._callers.get(id[0])
        if caller is not None:
            caller.calls.pop(id[1], None)

    def _again(self, one: Incoming) -> ServerEffects:
        client = one.id[0]
        if one.answer is None:
            return [ToPeer(client, wire.Underway(self.name, one.id[1]))]
        effects: ServerEffects = []
        if one.outflow is not None:
            one.outflow.sent = one.outflow.received
            effects += self._stream(one)
        return [*effects, ToPeer(client, one.answer, bulk=True)]

    def _settle(self, client: str, numbers: list[int]) -> ServerEffects:
        caller = self._caller(client)
        effects: ServerEffects = []
        for number in numbers:
            one = caller.calls.get(number)
            if one is None:
                if number - caller.top <= MISSING_COUNT_MAX:
                    caller.is_new(number)  # if it still arrives, it is not wanted
            elif one.state is FINISHED:  # as in `_drop`
                self._answers_bytes -= self._answers.pop(one.id, 0)
                del caller.calls[number]
            elif not one.is_settled:
                one.is_settled = True
                if one.state is QUEUED:
                    one.offer.queue.remove(one)
                    del caller.calls[number]
                elif not one.call.once:
                    effects.append(Stop(one.id, one.offer.id))
        return effects

    def _on_credit(self, credit: wire.Credit) -> ServerEffects:
        one = self._get((credit.sender, credit.number))
        if one is None:
            gone = ToPeer(credit.sender, wire.CallGone(self.name, credit.number))
            return [gone] if credit.again else []
        if one.outflow is not None:
            had_room = one.outflow.has_room()
            one.outflow.credit(credit.received, credit.upto, again=credit.again)
            effects = self._stream(one)
            if one.state is RUNNING and not had_room and one.outflow.has_room():
                effects.append(Room(one.id, one.offer.id))
            if effects and one.answer is None:
                return effects
        return self._again(one) if credit.again else []

    def _stream(self, one: Incoming) -> ServerEffects:
        assert one.outflow is not None
        first, bodies = one.outflow.unsent()
        if not bodies:
            return []
        client, number = one.id
        return [ToPeer(client, wire.Streamed(self.name, number, first, bodies, one.descriptors))]

    def _refusal(
        self, call: wire.Call, why: str, detail: str = "", to: Id | None = None
    ) -> wire.Refused:
        return wire.Refused(self.name, call.number, why, detail, to)

    def _get(self, id: Id) -> Incoming | None:
        caller = self._callers.get(id[0])
        return None if caller is None else caller.calls.get(id[1])

    def _caller(self, name: str) -> CallsOfNode:
        caller = self._callers.get(name)
        if caller is None:
            if len(self._callers) >= CALLERS_COUNT_MAX:
                idle = next((n for n, known in self._callers.items() if not known.calls), None)
                if idle is not None:
                    del self._callers[idle]
            caller = self._callers[name] = CallsOfNode()
        return caller


_NOBODY = Offer(1, "", 0, 0, is_retired=True)


def lot_of(call: wire.Call) -> str:
    """Return the text by which a server for this call is elected."""
    return f"{call.sender}/{call.lot}"


def _addressed(answer: Any, number: int) -> Any:
    return replace(answer, number=number)
