"""Shaking hands: who meets whom, and that nobody meets anyone else's name."""

import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames.security import (
    Greeting,
    GreetingBack,
    GreetingDone,
    GreetingHeard,
    GreetingRefused,
    decode_handshake,
    encode,
)
from infobus.protocols.security import handshakes
from infobus.protocols.security.effects import Met, Unmet
from infobus.protocols.security.handshakes import FORMER_S, SEAL_S, Handshakes
from infobus.protocols.security.introduction import bound_name, is_bound
from infobus.security.noise import public_of
from tests.members import TestIdentity

WALL_S = 1e9
_seeds = count(1)


class Party:
    """One node, and what came of its handshakes."""

    def __init__(self, stem="host-1", identity=None, bus="plant", **options):
        chance = random.Random(next(_seeds))
        static = chance.randbytes(32)
        self.name = options.pop("name", None) or bound_name(stem, public_of(static))
        self.identity = identity or TestIdentity(stem)
        self.machine = Handshakes(
            self.name, bus, static, self.identity, chance.randbytes, **options
        )
        self.outbox: list[ToPeer] = []
        self.met: set[str] = set()
        self.complaints: list[Complain] = []

    def do(self, effects):
        for one in effects:
            match one:
                case ToPeer():
                    self.outbox.append(one)
                case Met(peer):
                    assert peer not in self.met
                    self.met.add(peer)
                case Unmet(peer):
                    self.met.remove(peer)
                case Complain():
                    self.complaints.append(one)


class Pair:
    """Two nodes, a clock, and a network that does what a test says."""

    def __init__(self, one=None, other=None):
        self.parties = (one or Party("one-1"), other or Party("two-2"))
        self.now_s, self.wall_s = 100.0, WALL_S
        self.sent: list[tuple[Party, Party, object]] = []
        self.pass_on = lambda message: [message]

    def see(self):
        one, other = self.parties
        one.do(one.machine.peer_up(other.name, self.now_s))
        other.do(other.machine.peer_up(one.name, self.now_s))

    def run(self, for_s=0.0):
        until_s = self.now_s + for_s
        while True:
            self.deliver()
            if self.now_s >= until_s:
                return
            self.now_s += 0.1
            self.wall_s += 0.1
            for party in self.parties:
                party.do(party.machine.tick(self.now_s, self.wall_s))

    def jump(self, by_s):
        self.now_s += by_s
        self.wall_s += by_s

    def deliver(self):
        while any(party.outbox for party in self.parties):
            for party, other in (self.parties, self.parties[::-1]):
                outbox, party.outbox = party.outbox, []
                for one in outbox:
                    for message in self.pass_on(one.message):
                        self.sent.append((party, other, message))
                        self.give(other, message)

    def give(self, party, message):
        received = decode_handshake(encode(message))
        party.do(party.machine.take(received, self.now_s, self.wall_s))

    def have_met(self):
        one, other = self.parties
        return one.met == {other.name} and other.met == {one.name}

    def agree(self):
        """Whether what either one seals, the other one opens."""
        for party, other in (self.parties, self.parties[::-1]):
            seal = party.machine.seal_with(other.name)
            theirs = [one.own_id for one in other.machine.seals.get(party.name, ())]
            if seal is None or seal.peer_id not in theirs:
                return False
        return True


def test_two_nodes_that_see_each_other_meet_in_one_and_a_half_round_trips():
    pair = Pair()
    pair.see()
    pair.run()
    assert pair.have_met() and pair.agree()
    kinds = [type(message) for _, _, message in pair.sent]
    assert kinds == [Greeting, GreetingBack, GreetingDone, GreetingHeard]
    one, other = pair.parties
    assert one.machine.seal_with(other.name).bearer.principal == "two-2"
    assert other.machine.seal_with(one.name).bearer.principal == "one-1"
    assert sorted([one.name, other.name])[0] == pair.sent[0][0].name  # the lesser one began


def test_a_node_that_only_the_greater_one_sees_is_met_all_the_same():
    pair = Pair()
    lesser, greater = sorted(pair.parties, key=lambda party: party.name)
    greater.do(greater.machine.peer_up(lesser.name, pair.now_s))
    pair.run(2.0)
    assert greater.met == {lesser.name} and pair.agree()
    lesser.do(lesser.machine.peer_up(greater.name, pair.now_s))
    assert pair.have_met()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_they_meet_whatever_is_lost_doubled_or_late(seed):
    chance, late = random.Random(seed), []

    def pass_on(message):
        if chance.random() < 0.3:
            late.append(message)
            return []
        waiting = [late.pop(chance.randrange(len(late)))] if late and chance.random() < 0.3 else []
        own = [one for one in waiting if one.sender == message.sender]
        late.extend(one for one in waiting if one.sender != message.sender)
        return [message] * chance.choice([0, 1, 1, 2]) + own

    pair = Pair()
    pair.pass_on = pass_on
    pair.see()
    pair.run(8.0)
    pair.pass_on = lambda message: [message]
    pair.run(15.0)
    assert pair.have_met() and pair.agree()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_forgeries_beside_a_handshake_change_nothing(data):
    """Anyone may put any frame in anyone's name: changed, repeated, reflected, of another one."""
    old = Pair()
    old.see()
    old.run()
    recorded = [message for _, _, message in old.sent]
    pair = Pair()

    def harm(message):
        kind = data.draw(st.sampled_from(["flip", "old", "reflect", "cut"]))
        forged = recorded[data.draw(st.integers(0, 3))] if kind == "old" else message
        copy = decode_handshake(encode(forged))
        copy.sender = data.draw(st.sampled_from([party.name for party in pair.parties]))
        if kind in ("flip", "cut") and not isinstance(copy, GreetingHeard):
            place = data.draw(st.integers(0, len(copy.message) - 1))
            flipped = bytes([copy.message[place] ^ 1]) + copy.message[place + 1 :]
            copy.message = copy.message[:place] + (flipped if kind == "flip" else b"")
        if hasattr(message, "attempt") and hasattr(copy, "attempt"):
            copy.attempt = message.attempt
        return copy

    def pass_on(message):
        for party in pair.parties:
            pair.give(party, harm(message))
        return [message]

    pair.pass_on = pass_on
    pair.see()
    pair.run(0.3)
    assert pair.have_met() and pair.agree()
    for party, other in (pair.parties, pair.parties[::-1]):
        assert party.machine.seal_with(other.name).bearer.principal == other.identity.principal


def outcome(one, other, for_s=3.0):
    pair = Pair(one, other)
    pair.see()
    pair.run(for_s)
    return pair


def test_a_node_cannot_take_the_name_of_another():
    victim = Party("victim-1")
    pair = outcome(Party("honest-2"), Party("mallory-3", name=victim.name))
    assert not pair.parties[0].met
    assert any("name is bound to" in one.what for one in pair.parties[0].complaints)


def test_a_certificate_is_of_no_use_without_its_key():
    class Thief(TestIdentity):
        def __init__(self):
            super().__init__("mallory")
            self.certificate = TestIdentity("alice").certificate

    pair = outcome(Party("honest-2"), Party("thief-3", Thief()))
    assert not pair.parties[0].met
    assert any("which is not its own" in one.what for one in pair.parties[0].complaints)


def test_a_signature_is_of_no_use_in_another_handshake():
    """Mallory lets alice shake hands with it, and shows bob what alice said."""

    class Relay(TestIdentity):
        def __init__(self):
            super().__init__("mallory")
            self.certificate, self.said = TestIdentity("alice").certificate, b""

        def sign(self, message):
            return self.said

    alice, mallory, bob = TestIdentity("alice"), Relay(), Party("bob-2")
    seen = []
    sign = alice.sign
    alice.sign = lambda message: seen.append(sign(message)) or seen[-1]
    outcome(Party("alice-1", alice), Party("mallory-3"))
    for mallory.said in seen:
        pair = outcome(bob, Party("mallory-4", mallory))
        assert not bob.met and not pair.have_met()


@pytest.mark.parametrize(
    "stranger",
    [
        lambda: Party("late-1", TestIdentity("late", until_s=WALL_S - 1)),
        lambda: Party("early-1", TestIdentity("early", from_s=WALL_S + 60)),
        lambda: Party("other-1", TestIdentity("other", authority=b"\x09" * 32)),
        lambda: Party("bus-1", bus="harbor"),
    ],
    ids=["expired", "not yet valid", "of another authority", "of another bus"],
)
def test_whoever_does_not_count_is_not_met(stranger):
    honest = Party("honest-2")
    outcome(honest, stranger())
    assert not honest.met and honest.complaints


def test_whoever_is_revoked_is_dropped_and_not_met_again():
    pair = outcome(Party("one-1"), Party("two-2"))
    one, other = pair.parties
    one.identity.revoked.add("two-2")
    one.do(one.machine.recheck(pair.wall_s))
    assert not one.met and other.name not in one.machine.seals
    other.machine.renew(pair.now_s)
    pair.run(3.0)
    assert not one.met and any("revoked" in complaint.what for complaint in one.complaints)


def refusals(party):
    return [one.what for one in party.complaints if one.peer == "credential"]


@pytest.mark.parametrize("revoked", ["one-1", "two-2"])
def test_whoever_is_refused_is_told_whichever_of_the_two_begins(revoked):
    one, other = Party("one-1"), Party("two-2")
    refused, host = (one, other) if revoked == "one-1" else (other, one)
    host.identity.revoked.add(revoked)
    outcome(one, other)
    assert not host.met
    assert refusals(refused) == ["1 node refuses the credential of this node: it was revoked"]
    assert not refusals(host)


def test_whoever_is_revoked_is_told_by_all_who_drop_it():
    bob, hosts = Party("bob-9"), [Party(f"host-{n}") for n in range(3)]
    for host in hosts:
        outcome(host, bob)
        host.identity.revoked.add("bob-9")
        host.outbox.clear()
        host.do(host.machine.recheck(WALL_S))
        for one in host.outbox:
            bob.do(bob.machine.take(decode_handshake(encode(one.message)), 200.0, WALL_S))
    assert refusals(bob)[-1] == "3 nodes refuse the credential of this node: it was revoked"
    assert len(bob.met) == 3  # it acts on nothing of this: anybody could have said it


def test_a_refusal_of_a_handshake_that_never_was_says_nothing():
    pair = outcome(Party("one-1"), Party("two-2"))
    one, other = pair.parties
    lie = GreetingRefused(other.name, b"x" * 16, "revoked")
    one.do(one.machine.take(lie, pair.now_s, pair.wall_s))
    one.do(one.machine.take(GreetingRefused("stranger-3", b"x" * 16, "revoked"), 0.0, WALL_S))
    assert not one.complaints and pair.have_met()


def test_a_certificate_counts_until_it_expires_and_its_successor_goes_on():
    brief = Party("brief-2", TestIdentity("brief-2", until_s=WALL_S + 100))
    pair = outcome(Party("one-1"), brief)
    assert pair.have_met()
    pair.jump(50)
    brief.machine.identity = TestIdentity("brief-2", until_s=WALL_S + 1000, seed=2)  # another key
    brief.machine.renew(pair.now_s)
    pair.run(1.0)
    pair.jump(60)
    pair.run(0.5)
    assert pair.have_met() and pair.agree()
    pair.jump(1000)
    pair.run(0.5)
    assert not pair.parties[0].met


def test_seals_are_renewed_and_former_ones_open_for_a_while():
    pair = outcome(Party("one-1"), Party("two-2"))
    one, other = pair.parties
    first = one.machine.seal_with(other.name)
    pair.jump(SEAL_S)
    pair.run(1.0)
    second = one.machine.seal_with(other.name)
    assert second is not first and pair.agree() and pair.have_met()
    assert first in one.machine.seals[other.name]
    pair.jump(FORMER_S)
    pair.run(0.5)
    assert one.machine.seals[other.name] == (second,)
    one.machine.frames += handshakes.SEAL_FRAMES_MAX
    pair.run(1.0)
    assert one.machine.seal_with(other.name) is not second and pair.agree()


def test_a_node_that_is_back_soon_goes_on_with_its_seal():
    pair = outcome(Party("one-1"), Party("two-2"))
    one, other = pair.parties
    seal = one.machine.seal_with(other.name)
    one.do(one.machine.peer_down(other.name, pair.now_s))
    assert not one.met
    pair.run(30.0)
    one.do(one.machine.peer_up(other.name, pair.now_s))
    assert one.met and one.machine.seal_with(other.name) is seal


def test_names_that_never_shake_hands_cost_little_and_are_not_kept():
    honest = Party("honest-1")
    greeting = Party("x-1").machine
    answers = 0
    for number in range(2_000):
        message = greeting._handshake(honest.name, is_initiator=True).write(b"")
        effects = honest.machine.take(Greeting(f"ghost-{number}", message), 100.0, WALL_S)
        answers += len(effects)
    assert answers <= 100
    honest.machine.tick(100.0 + 2 * 60, WALL_S)
    honest.machine.tick(100.0 + 3 * 60, WALL_S)
    assert not honest.machine._partners and honest.machine._pending_count == 0
    # And who is honest comes in meanwhile.
    pair = Pair(honest, Party("two-2"))
    pair.see()
    pair.run(2.0)
    assert pair.have_met()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([91, 92, 93, 94]))
def test_bytes_that_are_no_handshake_raise_bad_frame_or_do_nothing(noise, tag):
    honest = Party("honest-1")
    for payload in (noise, b"\x93" + bytes([tag]) + b"\xa1a" + noise):
        try:
            message = decode_handshake(payload)
        except BadFrame:
            continue
        honest.machine.take(message, 1.0, WALL_S)
    assert not honest.machine.seals


def test_a_name_is_bound_to_one_key():
    name = bound_name("floor7-42", bytes(32))
    assert is_bound(name, bytes(32))
    assert not is_bound(name, b"\1" + bytes(31))
    assert not is_bound(name.replace("floor7", "floor8"), bytes(32))
