"""The two halves of invocation, step by step, where the simulator would not point at the cause."""

from collections import Counter
from contextlib import suppress
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames import invocation as wire
from infobus.protocols.frames.invocation import Call, Presence
from infobus.protocols.frames.wire import SERVICE_TAGS, Message
from infobus.protocols.invocation.caller import Caller
from infobus.protocols.invocation.discovery import Arrived, Departed, Directory
from infobus.protocols.invocation.effects import Bound, GivenUp, Outgoing, Returned
from infobus.protocols.invocation.item_flow import Inflow, Outflow
from infobus.protocols.invocation.offers import Offer, RunCall, Stop
from infobus.protocols.invocation.rules import ruled
from infobus.protocols.invocation.server import Server

INF = float("inf")


def presence(id=1, subject="svc.x", **options):
    return Presence(id, 0, subject, "server", 0.0, **options)


def directory(*alive, name="me"):
    return Directory(name, lambda: alive)


class TestWire:
    @given(st.binary(max_size=60), st.integers(30, 49))
    def test_mangled_frames_are_refused_or_skipped(self, junk, tag):
        payload = bytes([0x93, tag]) + junk
        assert payload[1] in SERVICE_TAGS
        with suppress(BadFrame):
            wire.decode(payload)

    @given(st.integers(0, 200))
    def test_a_frame_that_was_cut_off_is_refused(self, length):
        whole = msgspec.msgpack.encode(Call("n", 1, 1, "op", b"args", settled=[1, 2]))
        assert wire.decode(whole) == Call("n", 1, 1, "op", b"args", settled=[1, 2])
        if 1 < length < len(whole):
            with pytest.raises(BadFrame):
                wire.decode(whole[:length])

    def test_a_kind_of_a_newer_version_is_skipped_and_more_fields_too(self):
        assert wire.decode(msgspec.msgpack.encode([45, "n", 1])) is None
        more = msgspec.msgpack.encode([36, "n", 7, "", "new"])
        assert wire.decode(more) == wire.Underway("n", 7)

    def test_no_other_frame_has_one_of_these_tags(self):
        others = [kind.__struct_config__.tag for kind in get_args(Message)]
        assert not set(others).intersection(SERVICE_TAGS)


class TestDirectory:
    def test_what_comes_late_from_a_dead_node_does_not_count(self):
        mine = directory()
        mine.ask("svc.>", "", 0.0)
        assert mine.take_i_am(wire.IAm("ghost", 0, 2, [presence()])) == []

    def test_an_old_answer_does_not_bring_back_who_has_gone(self):
        mine = directory("peer")
        request, _ = mine.ask("svc.>", "", 0.0)
        (arrived,) = mine.take_i_am(wire.IAm("peer", 0, 2, [presence()]))
        (departed,) = mine.take_i_am(wire.IAm("peer", 0, 2, [], [1]))
        assert isinstance(arrived, Arrived)
        assert isinstance(departed, Departed)
        mine.take_i_am(wire.IAm("peer", request, 2, [presence()]))
        assert mine.found("svc.x") == []

    def test_an_answer_that_leaves_somebody_out_says_that_it_is_gone(self):
        mine = directory("peer")
        request, _ = mine.ask("svc.>", "", 0.0)
        mine.take_i_am(wire.IAm("peer", 0, 2, [presence()]))
        mine.take_i_am(wire.IAm("peer", request, 3, [presence(2, "svc.y")]))
        assert [one.presence.subject for one in mine.found("svc.>")] == ["svc.y"]

    def test_but_not_somebody_who_came_after_the_answer(self):
        mine = directory("peer")
        request, _ = mine.ask("svc.>", "", 0.0)
        mine.take_i_am(wire.IAm("peer", 0, 3, [presence(2)]))
        mine.take_i_am(wire.IAm("peer", request, 2, []))
        assert len(mine.found("svc.>")) == 1

    def test_a_question_is_repeated_until_it_is_answered(self):
        mine = directory("peer", "other")
        request, first = mine.ask("svc.>", "", 0.0)
        assert [type(effect) for effect in first] == [ToAll]
        mine.take_i_am(wire.IAm("peer", request, 1))
        assert mine.tick(0.05) == []
        assert [type(effect) for effect in mine.tick(0.2)] == [ToAll]
        mine.take_i_am(wire.IAm("other", request, 1))
        assert mine.tick(60.0) == []

    @pytest.mark.parametrize("subject", ["", "a..b", "svc.*", "x\x00y"])
    def test_nonsense_from_strangers_is_noted_not_kept(self, subject):
        mine = directory("peer")
        mine.ask(">", "", 0.0)
        told = mine.take_i_am(wire.IAm("peer", 0, 2, [presence(subject=subject)]))
        assert [type(effect) for effect in told] == [Complain]
        asked = mine.take_who(wire.Who("peer", 1, "a..b"))
        assert [type(effect) for effect in asked] == [Complain]
        asked = mine.take_who(wire.Who("peer", 1, ">", where="load <"))
        assert [type(effect) for effect in asked] == [Complain]

    def test_one_node_does_not_shut_out_those_of_others(self):
        mine = directory("flood", "honest")
        mine.ask("svc.>", "", 0.0, is_watched=True)
        claimed = [presence(id) for id in range(1, 1200)]
        told = mine.take_i_am(wire.IAm("flood", 0, 1200, claimed))
        assert Counter(map(type, told)) == {Arrived: 1000, Complain: 199}
        (honest,) = mine.take_i_am(wire.IAm("honest", 0, 2, [presence()]))
        assert isinstance(honest, Arrived)

    def test_a_long_filter_is_not_compiled_for_whoever_asks(self):
        where = " && ".join(f"a{n} > {n}" for n in range(1000))
        (answer,) = directory("peer").take_who(wire.Who("peer", 1, ">", where=where))
        assert isinstance(answer, Complain)


class TestServer:
    @pytest.fixture
    def server(self):
        server = Server(directory("c"))
        server.offer(Offer(1, "svc.x", running_count_max=1, queue_count_max=1))
        return server

    def test_a_call_that_comes_again_is_answered_again_not_run_again(self, server):
        call = Call("c", 1, 1, "op", b"")
        assert [type(e) for e in server.take(call, 0.0)] == [RunCall]
        (underway,) = server.take(call, 0.1)
        assert isinstance(underway.message, wire.Underway)
        server.finished(("c", 1), wire.Reply("s", 1, b"result"), 0.2)
        (again,) = server.take(call, 0.3)
        assert again.message.body == b"result"
        server.take(wire.Settled("c", [1]), 0.4)
        (gone,) = server.take(call, 0.5)
        assert gone.message == wire.CallGone("me", 1)

    @given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60))
    def test_no_order_of_frames_makes_a_call_run_twice(self, steps):
        server, ran = Server(directory("c")), []
        server.offer(Offer(1, "svc.x", running_count_max=100, queue_count_max=0))
        for is_call, number in steps:
            frame = Call("c", number, 1, "op", b"") if is_call else wire.Settled("c", [number])
            for effect in server.take(frame, 0.0):
                if isinstance(effect, RunCall):
                    ran.append(effect.id)
                    server.finished(effect.id, wire.Reply("s", number, b""), 0.0)
        assert len(ran) == len(set(ran))

    def test_the_memory_of_a_busy_caller_stays_small(self, server):
        for number in range(1, 5000):
            (run,) = server.take(
                Call("c", number, 1, "op", b"", settled=[number - 1][: number - 1]), 0
            )
            server.finished(run.id, wire.Reply("s", number, b"x"), 0.0)
        caller = server._callers["c"]
        assert (caller.top, len(caller.missing), len(caller.calls)) == (4999, 0, 1)

    def test_one_node_does_not_fill_the_queue_of_all(self):
        server = Server(directory("c", "honest"))
        server.offer(Offer(1, "svc.x", running_count_max=1, queue_count_max=100_000))
        for number in range(1, 10_001):
            server.take(Call("c", number, 1, "op", b""), 0.0)
        (refused,) = server.take(Call("c", 10_001, 1, "op", b""), 0.0)
        assert refused.message.why == wire.BUSY
        assert server.take(Call("honest", 1, 1, "op", b""), 0.0) == []
        server.take(wire.Settled("c", [10_000, 10_001]), 0.0)
        assert server.take(Call("c", 10_002, 1, "op", b""), 0.0) == []

    def test_a_caller_that_jumps_ahead_is_not_followed(self, server):
        (complaint,) = server.take(Call("c", 2**60, 1, "op", b""), 0.0)
        assert isinstance(complaint, Complain)

    def test_a_queued_call_whose_time_is_over_is_not_run(self, server):
        server.take(Call("c", 1, 1, "op", b""), 0.0)
        server.take(Call("c", 2, 1, "op", b"", left_s=1.0), 0.0)
        effects = server.finished(("c", 1), wire.Reply("s", 1, b""), 5.0)
        assert not any(isinstance(effect, RunCall) for effect in effects)

    def test_settling_a_running_call_stops_it(self, server):
        server.take(Call("c", 1, 1, "op", b""), 0.0)
        assert server.take(wire.Settled("c", [1]), 0.1) == [Stop(("c", 1), 1)]

    def test_a_stream_that_begins_after_it_was_stopped_is_stopped_again(self, server):
        server.take(Call("c", 1, 1, "op", b"", credit=1), 0.0)
        server.take(wire.Settled("c", [1]), 0.1)
        for _ in range(3):
            assert server.produced(("c", 1), b"", []) == (True, [Stop(("c", 1), 1)])


class TestCaller:
    @pytest.fixture
    def caller(self):
        mine = directory("s")
        caller = Caller(mine, lambda types: [])
        caller.watch("svc.x", 0.0)
        caller.noted(mine.take_i_am(wire.IAm("s", 0, 2, [presence()])), 0.0)
        return caller

    def call(self, key=1, **options):
        return Outgoing(key, "svc.x", "op", lambda presence: Bound(b""), INF, **options)

    def test_an_answer_that_comes_twice_counts_once(self, caller):
        caller.start(self.call(), 0.0)
        reply = wire.Reply("s", 1, b"r")
        assert caller.take(reply, 0.1) == [Returned(1, b"r", ("s", 1))]
        assert caller.take(reply, 0.2) == []

    def test_answers_to_calls_that_were_never_made_are_noted(self, caller):
        (complaint,) = caller.take(wire.Reply("stranger", 1, b"r"), 0.0)
        assert isinstance(complaint, Complain)

    def test_a_call_without_a_sign_of_life_is_sent_again_as_it_was(self, caller):
        (sent,) = [e for e in caller.start(self.call(), 0.0) if isinstance(e, ToPeer)]
        (again,) = caller.tick(1.5)
        assert (again.message.number, again.peer) == (sent.message.number, "s")

    def test_many_calls_are_not_all_sent_again_at_once(self, caller):
        for key in range(1, 1001):
            caller.start(self.call(key), 0.0)
        assert len(caller.tick(1.5)) <= 50

    def test_the_only_server_does_not_get_what_was_meant_for_another(self, caller):
        (given_up,) = caller.start(self.call(targets=[("t", 1)]), 0.0)
        assert (type(given_up), given_up.why) == (GivenUp, "no server")

    def test_a_call_that_is_late_already_is_not_sent(self, caller):
        late = Outgoing(1, "svc.x", "op", lambda presence: Bound(b""), 1.0)
        (given_up,) = caller.start(late, 2.0)
        assert (type(given_up), given_up.why) == (GivenUp, "late")

    def test_the_server_learns_with_the_next_call_which_ones_are_done(self, caller):
        caller.start(self.call(1), 0.0)
        caller.take(wire.Reply("s", 1, b"r"), 0.1)
        (sent,) = caller.start(self.call(2), 0.2)
        assert sent.message.settled == [1]
        assert caller.tick(0.3) == []

    def test_what_its_server_forgot_may_have_run(self, caller):
        caller.start(self.call(), 0.0)
        (given_up,) = caller.take(wire.CallGone("s", 1), 0.1)
        assert (type(given_up), given_up.why) == (GivenUp, "died")


class TestRules:
    @pytest.mark.parametrize("count", [3, 8])
    def test_lots_elect_all_servers_alike(self, count):
        servers = {(f"node{n}", 1): presence(rule="elected") for n in range(count)}
        elected = Counter(
            ruled("elected", servers, f"caller/{key}", lambda server: 0) for key in range(4000)
        )
        even = 4000 / count
        assert all(0.8 * even < elected[server] < 1.2 * even for server in servers)

    def test_every_node_elects_the_same_server(self):
        servers = {(name, 1): presence(rule="elected") for name in "abc"}
        elected = [ruled("elected", servers, f"n/{key}", lambda server: 0)[0] for key in range(9)]
        assert "".join(elected) == "cbbccbacb"

    def test_a_call_that_a_server_has_refused_does_not_count_as_its_load(self):
        here = directory("s", "t")
        caller = Caller(here, lambda types: [])
        call = Outgoing(1, "svc.x", "op", lambda presence: Bound(b"\x80"), INF)
        caller.start(call, 0.0)
        for node in "st":
            told = wire.IAm(node, 1, 2, [presence(rule="balanced")])
            effects = caller.noted(here.take_i_am(told), 0.0)
        assert [one.peer for one in effects if isinstance(one, ToPeer)] == ["s"]
        caller.take(wire.Refused("s", 1, wire.MOVED, taker=("t", 1)), 0.0)
        assert caller.loads == {("s", 1): 0, ("t", 1): 1}

    @pytest.mark.parametrize("answers", ["all", "one"])
    def test_a_burst_waits_until_balanced_servers_can_be_compared(self, answers):
        """Otherwise the first one that answers would get all of it."""
        here = directory("s", "t", "u")
        caller = Caller(here, lambda types: [], answers_s=0.25)

        def start(*keys):
            calls = [
                Outgoing(key, "svc.x", "op", lambda presence: Bound(b"\x80"), INF) for key in keys
            ]
            return [effect for call in calls for effect in caller.start(call, 0.0)]

        def answer(node):
            told = wire.IAm(node, 1, 2, [presence(rule="balanced")])
            return caller.noted(here.take_i_am(told), 0.1)

        def servers(effects):
            return Counter(effect.peer for effect in effects if isinstance(effect, ToPeer))

        assert servers([*start(1, 2, 3), *answer("s"), *start(4, 5, 6)]) == {}
        if answers == "all":
            assert servers([*answer("t"), *answer("u")]) == {"s": 2, "t": 2, "u": 2}
        else:
            assert servers(caller.tick(0.4)) == {"s": 6}

    def test_a_server_with_too_many_calls_shares_them_evenly(self):
        servers = balanced_servers("abc")
        placed = Counter(place(servers, number) for number in range(1, 31))
        assert sorted(placed.values()) == [9, 10, 11]


def balanced_servers(names):
    """Servers of one subject that know each other, and have told no load since they began."""
    servers = {}
    for name in names:
        here = Directory(name, lambda: names, lambda id, name=name: servers[name].load(id))
        here.announce(presence(rule="balanced"))
        here.ask("svc.x", "server", 0.0, is_watched=True)
        for other in names.replace(name, ""):
            here.take_i_am(wire.IAm(other, 0, 2, [presence(rule="balanced")]))
        servers[name] = Server(here)
        servers[name].offer(Offer(1, "svc.x", 1, 1000, rule="balanced"))
    return servers


def place(servers, number):
    """Send a call to `a`, and from there on as servers say; return which one has it then."""
    at, hops = "a", 0
    while True:
        call = Call("me", number * 10 + hops, 1, "op", b"", lot=number, hops=hops)
        for effect in servers[at].take(call, 0.0):
            if isinstance(effect, ToPeer) and isinstance(effect.message, wire.Refused):
                (at, _), hops = effect.message.taker, hops + 1
                break
        else:
            return at


class TestStreams:
    @given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5)), max_size=40))
    def test_items_come_in_order_and_once_whatever_arrives(self, frames):
        inflow, got = Inflow(20), []
        for first, count in frames:
            got += inflow.add(first, [bytes([n]) for n in range(first, first + count)])
        assert got == [bytes([n]) for n in range(1, len(got) + 1)]

    def test_what_was_received_is_not_kept_and_the_rest_is_sent_again(self):
        outflow = Outflow(3)
        for body in (b"a", b"b", b"c"):
            outflow.add(body)
        assert (outflow.unsent(), outflow.has_room()) == ((1, [b"a", b"b", b"c"]), False)
        outflow.credit(1, 4, again=True)
        assert (outflow.unsent(), outflow.has_room()) == ((2, [b"b", b"c"]), True)
