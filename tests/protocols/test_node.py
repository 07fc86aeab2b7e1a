"""A node's conversation, scene by scene: what goes in, and exactly what comes out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.frames.lanes import lane_of
from infobus.protocols.interest.own_rows import reduced_filters
from infobus.protocols.reliable.effects import Events, InterestChanged, Lost, Reduce, Unreachable
from infobus.protocols.reliable.node import Node
from infobus.protocols.reliable.peer import Terms

WIRE = (wire.WIRE_MAJOR, wire.WIRE_MINOR)


def interest(sender, since, version, added=(), removed=(), welcome=0, depth=1, **filters):
    rows = (since, version, list(added), list(removed), welcome)
    return wire.Interest(sender, WIRE, depth, *rows, **filters)


def item(subject, number=1):
    return wire.Item(subject, number, 0.0, 0, b"\x80")


def data(sender, first, count=1, channel="a"):
    items = [item(f"{channel}.x", first + i) for i in range(count)]
    return wire.Data(sender, channel, first, wire.Items.of(items))


def beat(sender, rows=1, **nexts):
    return wire.Beat(sender, WIRE, rows, nexts)


def messages(effects):
    return [e.message for e in effects if isinstance(e, ToPeer | ToAll)]


def numbers(effects):
    """What the subscriptions get: runs of numbers, and losses."""
    return [
        (e.first, e.first + len(e.items) - 1) if isinstance(e, Events) else e
        for e in effects
        if isinstance(e, Events | Lost)
    ]


def publish(node, now_s=0.0, channel="a"):
    """Number one event, as the bus does; nothing if nobody wants it."""
    route = node.route(channel, now_s)
    if node.rows.wanted(f"{channel}.x"):
        route.sent(b"frame", 1)


def subscriber(*patterns, known=(1, {}), **terms):
    """A node whose rows its peer `p` holds: version 2, under the welcome and numbers `known`."""
    node = Node("me", Terms(**terms))
    node.peer_up("p", 0.0)
    node.add_interest(patterns, 0.0)
    node.take(wire.Known("p", 2, *known), 0.0)
    return node


def publisher(*patterns, **terms):
    """A node that holds the rows of its peer `r`."""
    node = Node("me", Terms(**terms))
    node.peer_up("r", 0.0)
    node.take(wire.Known("r", 1, 1), 0.0)
    node.take(interest("r", 0, 2, patterns), 0.0)
    return node


def gone(node, name, at_s):
    """A peer disappears, and stays away for too long."""
    node.peer_down(name, at_s - 3.0)
    return node.tick(at_s)


class Talk:
    """Two nodes whose frames arrive at once, except while they wait in `stopped`."""

    def __init__(self, *nodes):
        self.nodes = {node.name: node for node in nodes}
        self.log = []
        self.stopped = None

    def do(self, node, effects, now_s=0.0):
        for effect in effects:
            match effect:
                case ToPeer(peer, message) if not isinstance(message, bytes):
                    if self.stopped is None:
                        other = self.nodes[peer]
                        self.do(other, other.take(message, now_s), now_s)
                    else:
                        self.stopped.append((peer, message))
                case ToAll(message):
                    for other in self.nodes.values():
                        if other is not node:
                            self.do(other, other.take(message, now_s), now_s)
                case Events() | Lost():
                    self.log.append(effect)


def acquainted():
    """Two nodes that see each other, of which `one` wants a.>, and their talk."""
    one, two = Node("one"), Node("two")
    talk = Talk(one, two)
    one.add_interest(["a.>"], 0.0)
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    return one, two, talk


# Meeting.


def test_two_nodes_that_see_each_other_hold_each_others_rows():
    one, two, _ = acquainted()
    assert one.is_synced()
    assert two.is_synced()
    assert two.rows.wanted("a.x") is True
    assert one.rows.wanted("a.x") is False


def test_a_new_peer_is_told_all_rows():
    node = Node("me")
    node.add_interest(["a.>"], 0.0)
    assert node.peer_up("p", 1.0) == [ToPeer("p", interest("me", 0, 2, ["a.>"], to="p"), bulk=True)]


def test_rows_are_answered_with_the_numbers_at_which_the_peer_starts():
    node = publisher("b.>")
    publish(node, channel="b")
    publish(node, channel="a")
    told = interest("r", 2, 3, ["a.>"], welcome=1)
    assert node.take(told, 0.0) == [
        InterestChanged(),
        ToPeer("r", wire.Known("me", 3, 1, {"b": 1, "a": 1}, [], {"b": 2, "a": 3}, "r")),
    ]
    publish(node, channel="a")
    known = wire.Known("me", 3, 1, {"b": 1, "a": 1}, [], {"b": 2, "a": 3}, "r")
    assert messages(node.take(told, 0.0)) == [known]


def test_descriptors_of_a_route_go_with_the_answer():
    node = Node("me", describe_types=lambda types: [b"%d" % t for t in types])
    node.peer_up("r", 0.0)
    node.route("a", 0.0).types.update({7, 5})
    effects = node.take(interest("r", 0, 2, ["a.>"]), 0.0)
    known = wire.Known("me", 2, 1, {"a": 1}, [b"5", b"7"], {"a": 2}, "r")
    assert ToPeer("r", known, bulk=True) in effects
    assert Node("r").take(known, 0.0)[0] == Learn([b"5", b"7"], "me")


def test_a_peer_that_never_answers_is_told_about_once_a_second():
    """Telling all rows began anew with the shortest pause each time: at every tick, for ever."""
    node = Node("me")
    node.add_interest(["a.>"], 0.0)
    node.peer_up("mute", 0.0)
    told = [
        t for t in range(1, 300) for m in messages(node.tick(t / 10)) if type(m) is not wire.Beat
    ]
    assert len(told) < 40
    assert all(later - earlier >= 10 for earlier, later in pairwise(told[8:]))


def test_a_heartbeat_of_other_rows_is_answered_with_what_is_held():
    node = publisher("a.>")
    assert node.take(beat("r", rows=2), 0.0) == []
    assert messages(node.take(beat("r", rows=3), 0.0)) == [wire.Known("me", 2, 1, to="r")]
    assert messages(node.take(beat("stranger"), 0.0)) == [wire.Known("me", 0, 0, to="stranger")]


def test_a_peer_that_is_heard_but_not_seen_is_told_too():
    node = Node("me")
    node.take(beat("p"), 0.0)
    assert interest("me", 0, 1, to="p") in messages(node.tick(0.1))


def test_only_live_peers_are_waited_for():
    node = Node("me")
    node.add_interest(["a.>"], 0.0)
    node.take(beat("heard"), 0.0)
    assert node.is_known(2)
    node.peer_up("heard", 0.0)
    assert not node.is_known(2)


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        (interest("r", 0, 2, ["a"], depth=2), "has channel depth 2, this node 1"),
        (interest("r", 0, 2, ["a", "b..c"]), "wants something malformed: pattern 'b..c'"),
    ],
)
def test_rows_that_cannot_be_accepted_are_complained_about(told, complaint):
    node = Node("me")
    (effect,) = node.take(told, 0.0)
    assert isinstance(effect, Complain)
    assert complaint in effect.what
    assert not node.rows.records


def test_a_peer_cannot_confirm_rows_that_do_not_exist_yet():
    node = Node("me")
    node.peer_up("p", 0.0)
    node.take(wire.Known("p", 1000, 1), 0.0)
    node.add_interest(["a.>"], 0.0)
    assert not node.is_known(2)


# Events.


def test_events_are_delivered_from_the_baseline_on():
    node = subscriber("a.>", known=(1, {"a": 5}))
    assert numbers(node.take(data("p", 4, 3), 0.0)) == [(5, 6)]


def test_data_that_overtakes_the_answer_waits_for_it():
    node = Node("me")
    node.peer_up("p", 0.0)
    node.add_interest(["a.>"], 0.0)
    assert node.take(data("p", 4, 3), 0.0) == []
    assert numbers(node.take(wire.Known("p", 2, 1, {"a": 5}), 0.0)) == [(5, 6)]


def test_a_channel_that_the_answer_does_not_name_starts_at_1():
    node = subscriber("a.>")
    assert messages(node.take(data("p", 2), 0.0)) == [wire.Ask("me", "a", 1, 1)]


def test_a_tick_confirms_what_came():
    node = subscriber("a.>")
    node.take(data("p", 1, 3), 0.0)
    assert wire.Ack("me", {"a": 4}, to="p") in messages(node.tick(0.1))
    assert not any(isinstance(m, wire.Ack) for m in messages(node.tick(0.2)))


def test_a_channel_held_on_purpose_is_not_confirmed_but_said_to_be_held():
    node = subscriber("a.>")
    node.is_held = lambda peer, channel: channel == "a"
    node.take(data("p", 1, 3), 0.0)
    held = wire.Ack("me", {"a": 2}, True, "p")  # one event, as a sign of good will
    assert held in messages(node.tick(0.1))
    assert held in messages(node.tick(0.2))


def test_a_channel_that_is_paused_is_paused_for_senders_that_come_later():
    """Pausing reached only the senders that had been heard on the channel before."""
    node = subscriber("a.>")
    node.pause("a", True, 0.0)
    assert node.take(data("p", 1, 3), 0.0) == []
    assert messages(node.pause("a", False, 0.0)) == [wire.Ask("me", "a", 1, 3)]


def test_best_effort_events_are_filtered_per_channel():
    """One count for all channels dropped events of one channel that another had overtaken."""
    node = subscriber(">")

    def best_effort(channel, number):
        return wire.Data("p", channel, 0, wire.Items.of([item(f"{channel}.x", number)]))

    assert len(node.take(best_effort("a", 2), 0.0)) == 1
    assert len(node.take(best_effort("b", 1), 0.0)) == 1
    assert len(node.take(best_effort("a", 2), 0.0)) == 0


def test_channels_that_nobody_wants_leave_nothing_behind():
    node = subscriber("a.>")
    for number in range(30_000):
        node.take(data("p", 1, channel=f"c{number}"), 0.0)
    assert not node.peers["p"].receivers
    assert len(node.peers["p"].unwanted) <= 10_000


def noted_count(node):
    peer = node.peers["p"]
    return max(map(len, (peer.receivers, peer.nexts, peer.best_effort, peer.cut_lanes)))


@pytest.mark.parametrize(
    "frame",
    [
        lambda channel: data("p", 1, channel=channel),
        lambda channel: wire.Data("p", channel, 0, wire.Items.of([item(f"{channel}.x", 1)])),
        lambda channel: beat("p", **{channel: 5}),
        lambda channel: wire.Known("p", 2, 1, {channel: 5}),
    ],
    ids=["data", "best effort", "beat", "known"],
)
def test_a_peer_cannot_open_channels_without_end(frame):
    node = subscriber(">", lanes_count_max=3)
    for number in range(3):
        effects = node.take(frame(f"c{number}"), 0.0)
        assert not [e for e in effects if isinstance(e, Complain | Lost)]
    for number in range(3, 9):
        said = [e for e in node.take(frame(f"c{number}"), 0.0) if isinstance(e, Complain | Lost)]
        assert "sends on more than 3 lanes" in said[0].what
        assert said[1:] == ([Lost("p", "", 0, None)] if number == 3 else [])
    assert (noted_count(node), node.peers["p"].refused_count) == (3, 6)
    assert not [e for e in node.take(frame("c1"), 0.0) if isinstance(e, Complain)]


def test_a_peer_with_too_many_channels_is_still_heard_on_those_before():
    node = subscriber(">", known=(1, {"b": 7}), lanes_count_max=2)
    node.take(data("p", 1, channel="a"), 0.0)
    node.take(data("p", 1, channel="c"), 0.0)
    assert numbers(node.take(data("p", 2, channel="a"), 0.0)) == [(2, 2)]
    assert numbers(node.take(data("p", 7, channel="b"), 0.0)) == [(7, 7)]


def test_channels_of_a_stream_that_breaks_off_time_and_again_are_few():
    node = subscriber(">", lanes_count_max=3)
    for turn in range(2, 9):
        node.take(wire.Known("p", 0, turn, {f"{channel}{turn}": 5 for channel in "abc"}), 0.0)
        assert noted_count(node) <= 3


def test_questions_are_answered_from_the_buffer_and_what_is_gone_is_said_first():
    node = publisher("a.>")
    for _ in range(4):
        publish(node)
    node.take(wire.Ack("r", {"a": 3}), 0.0)
    assert messages(node.take(wire.Ask("r", "a", 1, 4), 0.0)) == [
        wire.Gone("me", "a", 1, 2, "r"),
        b"frame",
        b"frame",
    ]


def test_a_repair_is_as_urgent_as_what_it_repairs():
    node = publisher(">")
    lanes = {"a": 0, lane_of("a", "business"): 1, lane_of("a", "emergency"): 2}
    for lane, urgency in lanes.items():
        node.route(lane, 0.0).sent(b"frame", 1)
        [repair] = node.take(wire.Ask("r", lane, 1, 1), 0.0)
        assert (repair.bulk, repair.urgency) == (True, urgency)


def test_gone_events_are_reported_and_the_stream_goes_on():
    node = subscriber("a.>")
    node.take(data("p", 4), 0.0)
    assert numbers(node.take(wire.Gone("p", "a", 1, 3), 0.0)) == [Lost("p", "a", 1, 3), (4, 4)]


def test_a_heartbeat_follows_soon_when_something_is_published_after_a_quiet_time():
    """The next heartbeat was scheduled while nothing was open: a lost tail waited up to 2 s."""
    node = publisher("a.>")
    node.tick(10.0)
    publish(node)
    beats = [(t, m) for t in range(101, 110) for m in messages(node.tick(t / 10))]
    assert [(t, beat.nexts) for t, beat in beats] == [(105, {"a": 2})]


def test_a_receiver_that_stalls_a_full_window_is_named():
    node = publisher("a.>", window_count_max=1)
    publish(node)
    node.tick(0.0)
    assert Complain("r", "confirmed nothing on channel 'a'; not waited for") in node.tick(2.0)


# Coming back.


def test_a_peer_that_disappears_is_not_waited_for_and_keeps_its_place():
    node = publisher("a.>", window_count_max=2)
    publish(node)
    assert node.peer_down("r", 1.0) == []
    assert node.is_confirmed()
    publish(node)
    assert node.rows.wanted("a.x") is True
    assert node.routes["a"].has_room()
    node.tick(3.9)
    effects = node.peer_up("r", 3.9)
    assert {"a": 3} in [m.nexts for m in messages(effects) if isinstance(m, wire.Beat)]
    assert not node.is_confirmed()
    assert messages(node.take(wire.Ask("r", "a", 1, 2), 4.0)) == [b"frame", b"frame"]


def test_the_rows_of_a_peer_that_stays_away_go():
    node = publisher("a.>")
    publish(node)
    node.peer_down("r", 1.0)
    assert InterestChanged() not in node.tick(3.9)
    assert InterestChanged() in node.tick(4.0)
    assert node.rows.wanted("a.x") is False
    assert node.is_confirmed()


def test_a_route_that_begins_while_a_peer_is_absent_does_not_wait_for_it():
    node = publisher("a.>", "b.>", window_count_max=1)
    node.peer_down("r", 1.0)
    publish(node, channel="b")
    assert node.routes["b"].has_room()
    assert node.is_confirmed()
    node.peer_up("r", 2.0)
    assert not node.is_confirmed()


def test_a_peer_that_somebody_says_has_died_is_gone_once_its_token_is():
    node = publisher("a.>")
    node.peer_up("d", 0.0)
    assert node.take(wire.Died("d", "r"), 1.0) == []
    assert node.rows.wanted("a.x") is True
    assert node.peer_down("r", 1.1) == [InterestChanged()]
    assert node.rows.wanted("a.x") is False


def test_a_peer_that_cannot_be_seen_and_has_died_is_gone_at_once():
    node = publisher("a.>")
    node.peer_down("r", 1.0)
    assert node.say_died("r", 1.1) == [ToAll(wire.Died("me", "r")), InterestChanged()]
    assert node.rows.wanted("a.x") is False


def test_a_peer_that_is_still_there_has_not_died():
    node = publisher("a.>")
    node.take(wire.Died("d", "r"), 1.0)
    assert [e.what for e in node.tick(6.0) if isinstance(e, Complain)] == [
        "is still here, though somebody said that it has died"
    ]
    node.peer_down("r", 7.0)
    assert node.rows.wanted("a.x") is True


def unreachable(effects):
    return [effect for effect in effects if isinstance(effect, Unreachable)]


def test_a_sender_that_is_out_of_reach_is_told_once_for_each_time():
    node = subscriber(">")
    node.take(data("p", 1), 0.0)
    node.peer_down("p", 1.0)
    assert unreachable(ticked(node, 1.0, 3.9)) == []
    assert unreachable(ticked(node, 3.9, 20.0)) == [Unreachable("p", ("a",))]
    node.peer_up("p", 20.0)
    node.take(wire.Known("p", node.own.version, 1, {"a": 2}), 20.1)
    node.peer_down("p", 21.0)
    assert unreachable(ticked(node, 21.0, 40.0)) == [Unreachable("p", ("a",))]


def test_a_sender_whose_last_events_come_late_is_told_to_be_out_of_reach_once_more():
    """What it published after them may be lost with it."""
    node = subscriber(">")
    node.take(data("p", 1), 0.0)
    node.peer_down("p", 1.0)
    assert unreachable(ticked(node, 1.0, 4.5)) == [Unreachable("p", ("a",))]
    assert numbers(node.take(data("p", 2), 4.5)) == [(2, 2)]
    assert unreachable(ticked(node, 4.5, 20.0)) == [Unreachable("p", ("a",))]


def test_what_is_held_back_of_a_peer_comes_at_once_when_another_life_of_it_has_begun():
    """And nothing of it later: that would come after what the other life sends."""
    node = subscriber("a.*")
    assert numbers(node.take(data("p", 1), 0.1)) == [(1, 1)]
    assert numbers(node.take(data("p", 4, 2), 0.1)) == []
    assert node.replaced("p", 0.2) == [], "it can still be seen"
    node.peer_down("p", 0.3)
    found = numbers(node.replaced("p", 0.4))
    assert found == [Lost("p", "a", 2, 3), (4, 5), Lost("p", "a", 6, None)]
    assert node.take(data("p", 6), 0.5) == []
    assert numbers(node.tick(60.0)) == []


@pytest.mark.parametrize("word", [wire.Bye("p"), wire.Died("d", "p")], ids=["bye", "died"])
def test_a_sender_that_has_left_or_died_is_not_out_of_reach(word):
    node = subscriber(">")
    node.take(data("p", 1), 0.0)
    node.take(word, 0.9)
    node.peer_down("p", 1.0)
    assert unreachable(ticked(node, 1.0, 20.0)) == []


def test_a_sender_of_which_nothing_came_is_not_missed():
    node = subscriber(">")
    node.peer_down("p", 1.0)
    assert unreachable(ticked(node, 1.0, 20.0)) == []


def test_a_node_that_was_given_up_delivers_nothing_more_before_it_knows():
    """It heard what others wanted, right behind what it had missed itself."""
    node = subscriber("a.>")
    node.take(data("p", 1, 2), 0.0)
    parted = wire.Data("p", "a", 3, data("p", 3).items, [], ("other", "me"))
    assert node.take_next(parted, 10) is None
    effects = node.take(parted, 1.0)
    assert numbers(effects) == []
    assert interest("me", 2, 3, welcome=1, to="p") in messages(effects)
    assert numbers(node.take(data("p", 4), 1.1)) == []
    assert numbers(node.take(wire.Known("p", 2, 1, {"a": 3}), 1.2)) == []  # from before
    assert numbers(node.take(wire.Known("p", 0, 2), 1.3)) == []
    effects = node.take(wire.Known("p", 3, 2, {"a": 5}), 1.4)
    assert numbers(effects + node.take(data("p", 5), 1.5)) == [Lost("p", "a", 3, None), (5, 5)]


def test_a_lie_about_being_given_up_costs_a_question_and_no_event():
    node = subscriber("a.>")
    node.take(data("p", 1, 2), 0.0)
    node.take(wire.Data("p", "a", 3, data("p", 3).items, [], ("me",)), 1.0)
    assert numbers(node.take(wire.Known("p", 3, 1, {"a": 1}), 1.1)) == [(3, 3)]
    again = wire.Data("p", "a", 3, data("p", 3).items, [], ("me",))
    assert node.take(again, 1.2) == []


def test_the_first_frame_after_a_peer_was_given_up_names_it():
    node = publisher("a.>")
    route = node.route("a", 0.0)
    assert route.take_parted() == ()
    gone(node, "r", 4.0)
    late = node.route("b", 4.0)
    assert (route.take_parted(), route.take_parted(), late.take_parted()) == (("r",), (), ("r",))
    node.peer_up("r", 5.0)
    node.take(interest("r", 0, 2, ["a.>"], welcome=2), 5.0)
    assert node.route("c", 5.0).take_parted() == ()


def test_few_names_of_those_that_were_given_up_are_remembered():
    node = Node("me")
    for number in range(300):
        name = f"r{number}"
        node.peer_up(name, 0.0)
        node.take(interest(name, 0, 2, ["a.>"]), 0.0)
        node.peer_down(name, 0.0)
    node.tick(3.0)
    assert len(node.route("a", 3.0).take_parted()) == 100


def test_idle_heartbeats_are_rare_where_there_are_many_nodes():
    """With a hundred nodes, each heard fifty a second."""
    node = Node("me")
    for number in range(100):
        node.peer_up(f"p{number}", 0.0)
    beats = [t for t in range(400) for m in messages(node.tick(t / 10)) if type(m) is wire.Beat]
    assert beats == [0, 100, 200, 300]


def test_a_node_that_was_given_up_reports_a_loss_even_of_events_without_numbers():
    one, two = Node("one"), Node("two")
    talk = Talk(one, two)
    two.add_interest(["a.>"], 0.0)
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    gone(one, "two", 4.0)
    publish(one)  # quenched
    talk.do(one, one.peer_up("two", 5.0), 5.0)
    assert talk.log == [Lost("one", "a", 0, None)]
    assert one.rows.wanted("a.x") is True
    assert one.is_synced()
    assert two.is_synced()


def test_a_sender_that_never_published_there_causes_no_loss():
    one, two = Node("one"), Node("two")
    talk = Talk(one, two)
    two.add_interest(["a.>"], 0.0)
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    publish(one, channel="b")
    gone(one, "two", 4.0)
    talk.do(one, one.peer_up("two", 5.0), 5.0)
    assert talk.log == []


def test_every_channel_in_use_is_reported_also_one_that_was_silent_before():
    """A loss on one channel hid the loss on another, of which nothing had come yet."""
    node = subscriber(">")
    node.take(data("p", 1), 0.0)
    node.take(wire.Known("p", 0, 2), 0.0)
    effects = node.take(wire.Known("p", 2, 2, {"a": 9, "b": 1}), 0.0)
    assert numbers(effects) == [Lost("p", "a", 2, None), Lost("p", "b", 0, None)]
    assert node.take(wire.Known("p", 2, 2, {"a": 9, "b": 1}), 0.0) == []


def test_rows_are_not_taken_back_from_a_node_that_does_not_know_it_was_given_up():
    """A doubled Interest restored the rows; if the answer was lost, nobody heard of the break."""
    node = publisher("a.>")
    gone(node, "r", 4.0)
    doubled = interest("r", 0, 2, ["a.>"])
    assert messages(node.take(doubled, 4.1)) == [wire.Known("me", 0, 2, to="r")]
    assert node.rows.wanted("a.x") is False
    node.peer_up("r", 4.2)
    assert node.rows.wanted("a.x") is False
    node.take(interest("r", 0, 2, ["a.>"], welcome=2), 4.2)
    assert node.rows.wanted("a.x") is True


def test_a_node_that_is_seen_again_hears_that_it_was_given_up():
    node = publisher("a.>")
    gone(node, "r", 4.0)
    assert wire.Known("me", 0, 2, to="r") in messages(node.peer_up("r", 5.0))


def test_a_node_that_asks_after_it_was_given_up_is_told_so():
    node = publisher("a.>")
    publish(node)
    gone(node, "r", 4.0)
    assert messages(node.take(wire.Ask("r", "a", 1, 1), 4.1)) == [wire.Known("me", 0, 2, to="r")]


def test_after_a_break_nothing_is_delivered_twice():
    """The stream was set back to a number that late data had passed already."""
    node = subscriber("a.>")
    node.take(data("p", 1, 5), 0.0)
    node.take(wire.Known("p", 0, 2), 0.0)
    assert numbers(node.take(data("p", 6, 3), 0.0)) == []
    effects = node.take(wire.Known("p", 2, 2, {"a": 8}), 0.0)
    assert numbers(effects) == [Lost("p", "a", 6, None), (8, 8)]
    assert numbers(node.take(data("p", 1, 5), 0.0)) == []


def test_a_late_answer_from_before_the_break_is_ignored():
    node = subscriber("a.>")
    node.take(wire.Known("p", 0, 2), 0.0)
    assert node.take(wire.Known("p", 2, 1, {"a": 3}), 0.0) == []
    assert not node.is_known(2)


@pytest.mark.parametrize("welcome", [1, 9])  # older and newer than the one that was given here
def test_an_answer_to_another_node_moves_no_stream_back(welcome):
    """One that came seconds late set six streams back, and older events followed newer ones."""
    node = subscriber("a.>", known=(5, {"a": 92}))
    effects = node.take(data("p", 92, 2), 0.0)
    node.add_interest(["b"], 0.1)
    effects += node.take(wire.Known("p", 3, welcome, {"a": 27}, to="other"), 0.1)
    effects += node.take(data("p", 27, 21), 0.1)
    effects += node.take(wire.Known("p", 3, 5, {"a": 92}, to="me"), 0.1)
    effects += node.take(data("p", 94), 0.1)
    assert numbers(effects) == [(92, 93), (94, 94)]
    assert [e.peer for e in effects if isinstance(e, Complain)] == ["p"]


def test_what_another_node_has_or_lacks_changes_nothing_here():
    node = publisher("a.>")
    publish(node)
    node.take(wire.Ack("r", {"a": 2}, to="other"), 0.0)
    assert not node.is_confirmed()
    node.take(interest("r", 2, 3, [], ["a.>"], to="other"), 0.0)
    assert node.rows.wanted("a.x") is True
    node = subscriber("a.>", known=(1, {"a": 5}))
    node.take(data("p", 7), 0.0)
    assert numbers(node.take(wire.Gone("p", "a", 5, 6, "other"), 0.0)) == []
    effects = node.take(wire.Gone("p", "a", 5, 6, "me"), 0.0)
    assert numbers(effects) == [Lost("p", "a", 5, 6), (7, 7)]


def test_a_frame_of_an_older_version_does_not_say_whom_it_is_for():
    node = publisher("a.>")
    publish(node)
    node.take(wire.Ack("r", {"a": 2}), 0.0)
    assert node.is_confirmed()


def test_a_newcomer_reports_no_loss_when_it_was_given_up_before_it_was_known():
    node = Node("me")
    node.peer_up("p", 0.0)
    node.take(wire.Known("p", 1, 1), 0.0)
    node.add_interest(["a.>"], 0.0)
    node.take(wire.Known("p", 0, 2), 0.0)
    assert numbers(node.take(wire.Known("p", 2, 2, {"a": 7}), 0.0)) == []
    assert numbers(node.take(data("p", 7), 0.0)) == [(7, 7)]


def test_a_break_is_reported_to_a_narrower_wish_that_a_wider_one_had_covered():
    """The channel counted as wanted since its own row was told; the wider row was forgotten."""
    node = subscriber(">")
    node.add_interest(["a.>"], 0.0)
    node.remove_interest([">"], 0.0)
    node.take(wire.Known("p", 0, 2), 0.0)
    assert numbers(node.take(wire.Known("p", 3, 2, {"a": 1}), 0.0)) == [Lost("p", "a", 0, None)]


def test_a_narrower_wish_begins_where_the_wider_one_had():
    """It began anew, and so nobody heard of what was on its way."""
    node = subscriber(">")
    node.add_interest(["a.>"], 0.0)
    node.remove_interest([">"], 0.0)
    joined = {"a": 2}  # by the rows that said ">"; it has published two events since
    effects = node.take(wire.Known("p", 3, 1, {"a": 1}, [], joined), 0.0)
    assert not node.peers["p"].restarts
    effects += node.take(data("p", 1, 2), 0.0)
    assert numbers(effects) == [(1, 2)]


def test_a_stream_that_goes_on_under_newer_rows_is_still_reported_as_broken():
    """Rows that came after the last answer hid the break of a stream that had flowed all along."""
    node = subscriber("a.x", known=(1, {"a": 3}))
    node.take(data("p", 3, 2), 0.0)
    node.add_interest(["a.y"], 1.0)
    node.remove_interest(["a.x"], 1.0)
    node.take(wire.Known("p", 0, 2), 2.0)
    assert numbers(node.take(wire.Known("p", 4, 2, {"a": 9}), 2.0)) == [Lost("p", "a", 5, None)]


def test_a_number_told_for_rows_that_were_taken_back_since_is_no_baseline():
    node = subscriber("a.>", known=(1, {"a": 3}))
    node.remove_interest(["a.>"], 1.0)
    node.add_interest(["a.>"], 1.0)
    node.take(data("p", 3, 2), 1.0)
    assert numbers(node.take(wire.Known("p", 2, 1, {"a": 3}), 1.0)) == []
    assert numbers(node.take(wire.Known("p", 4, 1, {"a": 4}), 1.0)) == [(4, 4)]


def test_whoever_leaves_and_comes_back_at_one_stroke_begins_anew():
    one, two, talk = acquainted()
    publish(two, channel="a")
    one.remove_interest(["a.>"], 1.0)  # of which no word gets through
    publish(two, channel="a")
    talk.do(one, one.add_interest(["a.x"], 1.0))
    assert one.is_synced()
    talk.do(one, one.take(data("two", 1, 3), 1.0))
    assert numbers(talk.log) == [(3, 3)]
    assert two.routes["a"].receivers["one"].next == 3


def test_whoever_changes_what_it_wants_of_a_channel_goes_on_where_it_was():
    one, two, talk = acquainted()
    publish(two, channel="a")
    one.add_interest(["a.x"], 1.0)  # of which no word gets through
    talk.do(one, one.remove_interest(["a.>"], 1.0))
    assert one.is_synced()
    talk.do(one, one.take(data("two", 1), 1.0))
    assert numbers(talk.log) == [(1, 1)]


def test_a_peer_that_never_lets_one_begin_anew_is_asked_once():
    node = subscriber("a.>")
    node.remove_interest(["a.>"], 1.0)
    node.add_interest(["a.>"], 1.0)
    told = messages(node.take(wire.Known("p", 4, 1, {"a": 3}, [], {"a": 2}), 1.0))
    assert [(one.version, one.left) for one in told] == [(5, {"a": 5})]
    assert not node.is_known(4)
    assert messages(node.take(wire.Known("p", 4, 1, {"a": 3}, [], {"a": 2}), 1.0)) == []
    assert messages(node.take(wire.Known("p", 5, 1, {"a": 3}, [], {"a": 2}), 1.0)) == []
    assert node.is_known(5)
    assert numbers(node.take(data("p", 3), 1.0)) == [(3, 3)]


def test_a_peer_that_tells_of_countless_old_places_fills_no_memory():
    node = subscriber(">", lanes_count_max=10)
    node.remove_interest([">"], 1.0)
    node.add_interest([">"], 1.0)
    places = {f"c{n}": 1 for n in range(1000)}
    node.take(wire.Known("p", 4, 1, places, [], places), 1.0)
    assert len(node.peers["p"].restarts) <= 10


def test_a_loss_is_reported_if_the_sender_vanishes_before_it_has_the_rows_again():
    node = subscriber("a.>")
    node.take(wire.Known("p", 0, 2), 0.0)
    node.peer_down("p", 1.0)
    assert numbers(node.tick(5.9)) == []
    assert numbers(node.tick(6.0)) == [Lost("p", "", 0, None)]
    assert numbers(node.tick(7.0)) == []


def test_a_sender_that_vanished_before_it_had_the_rows_again_has_gone_on_without_us():
    """Only the loss until then was reported; what it published before it was back was not."""
    node = subscriber("a.>")
    node.take(wire.Known("p", 0, 2), 0.0)
    node.peer_down("p", 1.0)
    assert numbers(node.tick(6.0)) == [Lost("p", "", 0, None)]
    node.peer_up("p", 8.0)
    assert numbers(node.take(wire.Known("p", 2, 2, {"a": 4}), 8.0)) == [Lost("p", "a", 0, None)]


def test_the_holes_of_a_vanished_sender_are_reported():
    node = subscriber("a.>")
    node.take(data("p", 3), 0.0)
    node.peer_down("p", 0.1)
    assert numbers(node.tick(5.1)) == [Lost("p", "a", 1, 2), (3, 3)]


def test_the_holes_of_a_sender_that_was_never_seen_are_asked_for_and_reported():
    """Only senders that had been seen were served: such a hole stayed open without a word."""
    node = Node("me")
    node.add_interest(["a.>"], 0.0)
    node.take(wire.Known("p", 2, 1), 0.0)
    node.take(data("p", 2), 0.0)
    assert wire.Ask("me", "a", 1, 1) in messages(node.tick(0.2))
    effects = [effect for t in range(3, 51) for effect in node.tick(t / 10)]
    assert numbers(effects) == [Lost("p", "a", 1, 1), (2, 2)]


def test_a_sender_that_returns_after_it_was_given_up_goes_on_where_it_was():
    node = subscriber("a.>")
    node.take(data("p", 1, 5), 0.0)
    node.peer_down("p", 0.1)
    node.tick(6.0)
    assert not node.peers["p"].receivers, "of the dead only a number is remembered"
    node.peer_up("p", 7.0)
    assert numbers(node.take(wire.Known("p", 2, 1, {"a": 3}), 7.0)) == []
    assert numbers(node.take(data("p", 4, 3), 7.0)) == [(6, 6)]


def test_rows_of_a_peer_that_is_heard_before_it_is_seen_count_once_it_is_seen():
    node = Node("me")
    assert node.take(interest("r", 0, 2, ["a.>"]), 0.0) == []
    assert node.rows.wanted("a.x") is False
    assert wire.Known("me", 2, 1, to="r") in messages(node.peer_up("r", 0.1))
    assert node.rows.wanted("a.x") is True


def test_a_removal_that_a_peer_missed_while_it_was_away_is_made_good():
    """Its version was kept, the removals were not: the row stayed there for ever."""
    one, two = Node("one"), Node("two")
    talk = Talk(one, two)
    two.add_interest(["a.>"], 0.0)
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    two.peer_down("one", 1.0)  # one sees two all the time
    talk.do(two, two.remove_interest(["a.>"], 1.1), 1.1)
    talk.stopped = []
    talk.do(two, two.peer_up("one", 2.0), 2.0)  # lost
    talk.stopped = None
    talk.do(two, two.tick(2.1), 2.1)
    assert one.rows.wanted("a.x") is False


# Filters.


def is_wanted(node, subject, **attributes):
    wanted = node.wanted(subject)
    return wanted if isinstance(wanted, bool) else wanted(attributes)


def test_rows_are_told_with_their_filters():
    node = Node("me")
    node.add_interest(["a.>", "b"], 0.0, "n > 1")
    node.add_interest(["c"], 0.0)
    told = interest("me", 0, 3, ["a.>", "b", "c"], filters=["n > 1", "n > 1", ""], to="p")
    assert messages(node.peer_up("p", 0.0)) == [told]


def test_a_filter_is_replaced_in_one_frame():
    node = subscriber("a.>")
    effects = node.change_interest([("a.>", "n > 2")], [("a.>", "")], 1.0)
    dropped = [("a.>", "")]
    told = interest("me", 2, 3, ["a.>"], welcome=1, filters=["n > 2"], dropped=dropped, to="p")
    assert messages(effects) == [told]
    assert numbers(node.take(data("p", 1), 1.0)) == [(1, 1)]


def test_what_a_publisher_asks_follows_the_rows():
    node = publisher("b.>")
    assert node.wanted("b.x") is True
    node.take(interest("r", 2, 3, ["a.>", "a.x"], filters=["n > 2", "n == 1"]), 0.0)
    assert is_wanted(node, "a.x", n=1)
    assert not is_wanted(node, "a.y", n=1)
    assert is_wanted(node, "a.y", n=3)
    assert not is_wanted(node, "c", n=3)
    node.take(interest("r", 3, 4, dropped=[("a.>", "n > 2")]), 0.0)
    assert not is_wanted(node, "a.x", n=3)
    node.take(interest("r", 4, 5, removed=["a.x"]), 0.0)
    assert node.wanted("a.x") is False


def test_rows_told_without_filters_are_unfiltered():
    node = Node("me")
    node.peer_up("r", 0.0)
    node.take(wire.Interest("r", (1, 0), 1, 0, 2, ["a.>"]), 0.0)
    assert node.wanted("a.x") is True


def test_what_nobody_wants_by_its_content_takes_no_number():
    one, two = Node("one"), Node("two")
    talk = Talk(one, two)
    two.add_interest(["a.>"], 0.0, "n > 2")
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    for n in (1, 3, 2, 4):
        if is_wanted(one, "a.x", n=n):
            first = one.route("a", 0.0).next
            one.route("a", 0.0).sent(b"frame", 1)
            talk.do(two, two.take(data("one", first), 0.0))
        else:
            one.note_unwanted("a")
    assert numbers(talk.log) == [(1, 1), (2, 2)]


def test_a_node_cut_off_while_its_content_was_not_wanted_yet_hears_of_a_loss():
    one, two = Node("one"), Node("two")
    talk = Talk(one, two)
    two.add_interest(["a.>"], 0.0, "n > 2")
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    gone(one, "two", 4.0)
    assert not is_wanted(one, "a.x", n=3)
    one.note_unwanted("a")
    talk.do(one, one.peer_up("two", 5.0), 5.0)
    assert talk.log == [Lost("one", "a", 0, None)]


def test_many_filters_are_reduced_by_whoever_drives_the_node_and_told_again():
    node = Node("me", Terms(filters_count_max=2))
    node.peer_up("p", 0.0)
    for n in range(3):
        node.add_interest(["a"], 0.0, f"n == {n}")
    (reduction,) = [e.reduction for e in node.tick(0.1) if isinstance(e, Reduce)]
    assert reduction.filters == ["n == 0", "n == 1", "n == 2"]
    node.take(wire.Known("p", 4, 1), 0.1)
    (told,) = messages(node.reduced(reduction, reduced_filters(reduction), 0.2))
    assert told.rows() == [("a", "n in [0, 1, 2]")]
    assert told.dropped == [("a", "n == 0"), ("a", "n == 1"), ("a", "n == 2")]


def test_rows_that_were_let_go_are_asked_for_when_they_matter():
    one, two = Node("one", Terms(spare_count_max=0)), Node("two")
    talk = Talk(one, two)
    two.add_interest(["a.>", "b.>"], 0.0, "n > 2")
    talk.do(one, one.peer_up("two", 0.0))
    talk.do(two, two.peer_up("one", 0.0))
    assert one.is_synced() and not one.rows.count
    assert is_wanted(one, "a.x", n=1), "it is unsure, so it sends"
    assert one.route("a", 0.0).receivers.keys() == {"two"}
    talk.do(one, one.tick(0.1), 0.1)
    talk.do(two, two.tick(0.2), 0.2)
    assert not is_wanted(one, "a.x", n=1)
    assert list(one.rows.records["two"].rows) == ["a.>"]
    assert not any(isinstance(m, wire.WantRows) for m in messages(one.tick(2.0)))


def test_a_peer_with_too_many_rows_is_complained_about_and_known():
    node = Node("me")
    node.rows.rows_count_max = 2
    node.peer_up("r", 0.0)
    effects = node.take(interest("r", 0, 2, ["a", "b", "c"]), 0.0)
    assert Complain("r", "tells too many rows; it is sent more than it wants") in effects
    assert wire.Known("me", 2, 1, to="r") in messages(effects)
    assert node.wanted("c") is True


def test_rows_asked_for_again_and_again_are_told_once_a_tick():
    node = subscriber("a.>")
    for _ in range(100):
        assert node.take(wire.WantRows("p"), 0.0) == []
    told = [m for m in messages(node.tick(0.1)) if isinstance(m, wire.Interest)]
    assert told == [interest("me", 0, 2, ["a.>"], welcome=1, to="p")]


# Standing still.


def ticked(node, since_s, until_s):
    """What a node says that ticks ten times a second."""
    ticks = range(round(10 * since_s), round(10 * until_s) + 1)
    return [effect for t in ticks for effect in node.tick(t / 10)]


def frozen_subscriber(**options):
    """A node that ticks until 1 s, and then stands still until it is called again."""
    node = subscriber("a.>", **options)
    node.take(data("p", 1, 2), 0.0)
    ticked(node, 0.0, 1.0)
    return node


def test_a_peer_that_vanished_while_the_node_stood_still_is_reported_once():
    node = frozen_subscriber()
    node.peer_down("p", 4.0)
    assert numbers(ticked(node, 4.1, 20.0)) == [Lost("p", "", 0, None)]


def test_a_peer_that_may_have_given_this_node_up_and_was_publishing_is_reported_once():
    node = frozen_subscriber()
    node.take(data("p", 3), 1.1)
    node.peer_down("p", 4.0)
    assert numbers(ticked(node, 4.1, 20.0)) == [Lost("p", "", 0, None)]


def test_a_peer_that_was_quiet_and_dies_is_no_loss():
    node = subscriber("a.>")
    node.take(data("p", 1, 2), 0.0)
    ticked(node, 0.0, 3.0)
    node.peer_down("p", 3.1)
    assert numbers(ticked(node, 3.1, 20.0)) == []


def test_a_peer_that_was_publishing_and_dies_may_have_published_more():
    """The end of a killed publisher's stream was lost without a word."""
    node = frozen_subscriber()
    node.take(wire.Died("d", "p"), 1.1)
    node.peer_down("p", 1.1)
    assert numbers(ticked(node, 1.1, 20.0)) == [Lost("p", "a", 3, None)]
    node = frozen_subscriber()
    node.peer_down("p", 1.1)
    said = ticked(node, 1.1, 20.0)
    assert (numbers(said), unreachable(said)) == ([], [Unreachable("p", ("a",))])


def test_a_peer_that_was_publishing_and_is_only_cut_off_for_a_moment_is_no_loss():
    node = frozen_subscriber()
    node.peer_down("p", 1.1)
    node.peer_up("p", 1.2)
    node.take(wire.Known("p", 2, 1, {"a": 3}), 1.3)
    assert numbers(node.take(data("p", 3), 1.4)) == [(3, 3)]
    node.take(wire.Beat("p", WIRE, 1), 3.0)
    assert numbers(ticked(node, 1.4, 20.0)) == []


def test_a_node_that_stood_still_asks_its_peers_whether_they_still_know_it():
    node = frozen_subscriber()
    assert interest("me", 2, 3, welcome=1, to="p") in messages(node.tick(4.0))
    node.take(wire.Known("p", 3, 1, {"a": 3}), 4.0)
    node.take(beat("p"), 4.0)
    node.peer_down("p", 4.0)
    assert numbers(ticked(node, 4.1, 20.0)) == []


def test_a_peer_that_dies_before_it_told_how_far_it_had_got_is_reported():
    """What the frozen node had been sent was lost with the link, and no later event showed it."""
    node = frozen_subscriber()
    node.tick(4.0)
    node.take(wire.Known("p", 3, 1, {"a": 3}), 4.0)
    node.peer_down("p", 4.0)
    assert numbers(ticked(node, 4.1, 20.0)) == [Lost("p", "", 0, None)]


def test_an_answer_from_before_the_node_stood_still_proves_nothing():
    node = frozen_subscriber()
    node.take(wire.Known("p", 2, 1, {"a": 3}), 4.0)
    node.peer_down("p", 4.0)
    assert numbers(ticked(node, 4.1, 20.0)) == [Lost("p", "", 0, None)]


def test_a_peer_that_had_given_up_the_frozen_node_is_reported_once():
    node = frozen_subscriber()
    effects = node.take(wire.Known("p", 0, 2), 4.0)
    effects += node.take(wire.Known("p", 3, 2, {"a": 9}), 4.1)
    node.peer_down("p", 4.2)
    effects += ticked(node, 4.2, 20.0)
    assert numbers(effects) == [Lost("p", "a", 3, None)]


def test_a_publisher_that_began_while_the_node_stood_still_is_reported():
    node = frozen_subscriber()
    node.peer_up("new", 4.0)
    effects = node.take(wire.Known("new", 3, 1, {"a": 8, "b": 9}), 4.1)
    assert numbers(effects) == [Lost("new", "a", 0, None)]
    assert numbers(node.take(data("new", 8), 4.2)) == [(8, 8)]


def test_a_publisher_that_has_published_nothing_yet_is_no_loss():
    node = frozen_subscriber()
    node.peer_up("new", 4.0)
    assert numbers(node.take(wire.Known("new", 3, 1), 4.1)) == []
    assert numbers(node.take(data("new", 1), 4.2)) == [(1, 1)]


def test_a_publisher_that_is_met_long_afterwards_is_no_loss():
    node = frozen_subscriber()
    ticked(node, 4.0, 40.0)
    node.peer_up("new", 40.0)
    assert numbers(node.take(wire.Known("new", 3, 1, {"a": 8}), 40.0)) == []


def test_what_is_subscribed_to_after_standing_still_was_not_missed():
    node = frozen_subscriber()
    node.tick(4.0)
    node.add_interest(["b.>"], 4.1)
    node.peer_up("new", 4.1)
    assert numbers(node.take(wire.Known("new", 4, 1, {"b": 8}), 4.2)) == []


def test_a_goodbye_says_whether_the_node_had_been_given_up():
    for given_up, losses in [([], []), (["me"], [Lost("p", "", 0, None)])]:
        node = frozen_subscriber()
        node.take(wire.Bye("p", {}, given_up), 4.0)
        assert numbers(node.peer_down("p", 4.0)) == losses


def test_a_goodbye_names_those_that_were_given_up_and_not_met_again():
    node = publisher("a.>")
    publish(node)
    node.peer_down("r", 1.0)
    assert node.leave() == [ToAll(wire.Bye("me", {"a": 2}))], "it was absent, its place is held"
    node.tick(4.0)
    assert node.leave() == [ToAll(wire.Bye("me", {}, ["r"]))]


# Leaving.


def test_a_goodbye_tells_what_was_not_confirmed():
    node = publisher("a.>")
    publish(node)
    publish(node)
    assert node.leave() == [ToAll(wire.Bye("me", {"a": 3}))]


def test_a_goodbye_reports_the_tail_that_never_came():
    """Events lost on the way just before a node left were never missed."""
    node = subscriber("a.>")
    node.take(data("p", 1, 2), 0.0)
    assert node.take(wire.Bye("p", {"a": 5}), 0.0) == []
    assert node.peer_down("p", 0.1) == [Lost("p", "a", 3, 4)]


@pytest.mark.parametrize("is_token_first", [False, True])
def test_nothing_that_comes_after_a_goodbye_is_taken(is_token_first):
    """A doubled answer and doubled data delivered the events of a node that had left again."""
    node = subscriber("a.>")
    node.take(data("p", 1, 2), 0.0)
    node.take(interest("p", 0, 2, ["a.>"]), 0.0)
    if is_token_first:
        effects = node.peer_down("p", 0.0) + node.take(wire.Bye("p"), 0.0)
    else:
        effects = node.take(wire.Bye("p"), 0.0) + node.peer_down("p", 0.0)
    assert effects == [InterestChanged()]
    for late in (wire.Known("p", 2, 1, {"a": 1}), data("p", 1, 2), interest("p", 0, 2, ["a.>"])):
        assert node.take(late, 0.1) == []
    assert node.is_known(2)
    assert node.rows.wanted("a.x") is False


def test_a_node_that_says_goodbye_is_not_waited_for():
    node = subscriber("a.>")
    node.take(wire.Bye("p"), 0.0)
    node.add_interest(["b"], 0.1)
    assert node.is_known(node.own.version)


# Bounds.

strange_patterns = st.sampled_from(["a.>", "a.x", "*", ">", "a..b", "", "a.>.b", "\x00", "b"])
strange_filters = st.text(max_size=12) | st.sampled_from(
    ["n == 1", "n ==", "(" * 5000, 'regex(n, "(a+)+$")', "nan(n)", "f(f(f(f)))", "5 > 'x'", ""]
)
strange_rows = st.lists(st.tuples(strange_patterns, strange_filters), max_size=4)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 4), strange_rows, strange_rows, st.integers(0, 2)
        ),
        max_size=6,
    )
)
def test_rows_of_any_kind_do_no_harm(told):
    node = Node("me", Terms(spare_count_max=2))
    for since, version, rows, dropped, welcome in told:
        patterns, filters = [p for p, _ in rows], [where for _, where in rows]
        removed = [pattern for pattern, _ in dropped[:1]]
        rest = {"filters": filters, "dropped": dropped}
        node.take(interest("r", since, version, patterns, removed, welcome, **rest), 0.0)
        node.take(wire.WantRows("r"), 0.0)
        is_wanted(node, "a.x", n=1)
        node.tick(1.0)
    node.peer_up("r", 2.0)
    gone(node, "r", 6.0)
    assert not (node.rows.records or node.rows.count or node.rows.patterns)


def test_a_node_does_not_listen_to_itself():
    node = subscriber(">")
    assert node.peer_up("me", 0.0) == []
    assert node.take(data("me", 1), 0.0) == []


def test_the_dead_are_remembered_within_bounds():
    node = Node("me", Terms(peers_count_max=10))
    for number in range(100):
        node.take(interest(f"p{number}", 0, 2, ["a.>"]), 10.0 * number)
        node.tick(10.0 * number + 9.9)
    assert len(node.peers) <= 10
    assert not node.rows.records


class TestTheSteadyState:
    """A frame that is just the next one is taken by a short way that says the same."""

    def begun(self, **terms):
        """A node that has got event 1 of `p` on the lane `a`."""
        node = subscriber("a.>", **terms)
        node.take(data("p", 1), 0.0)
        return node

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 12),  # the first number
                st.integers(1, 3),  # how many events
                st.sampled_from("aab"),
                st.sampled_from("ppq"),
                st.booleans(),  # whether time passes after it
            ),
            max_size=40,
        ),
        st.sampled_from([1, 2, 5, 8192]),
        st.sampled_from([60, 8 * 1024 * 1024]),
    )
    def test_it_delivers_and_confirms_what_the_long_way_does(self, frames, ack_count, ack_bytes):
        said: list[list[object]] = []
        confirmed: list[dict[object, int]] = []
        for is_short in (False, True):
            node = subscriber("a.>", "b.>", ack_count=ack_count, ack_bytes=ack_bytes)
            node.peer_up("q", 0.0)
            node.take(wire.Known("q", 2, 1), 0.0)
            got: list[object] = []
            acked: dict[object, int] = {}
            for at, (first, count, lane, sender, is_tick) in enumerate(frames):
                frame = data(sender, first, count, lane)
                effects = node.take_next(frame, 50) if is_short else None
                if effects is None:
                    effects = node.take(frame, at / 10)
                else:
                    got.append((sender, lane, first, first + count - 1))
                effects = [*effects, *(node.tick(at / 10) if is_tick else [])]
                for e in effects:
                    if isinstance(e, Events):
                        run = (e.first, e.first + len(e.items) - 1)
                        got.append((e.sender, e.lane, *run))
                    elif isinstance(e, Lost):
                        got.append(e)
                    elif isinstance(e, ToPeer) and isinstance(e.message, wire.Ack):
                        acked |= {(e.peer, lane): n for lane, n in e.message.nexts.items()}
            for e in node.tick(100.0):  # whatever is due is confirmed with the next tick
                if isinstance(e, ToPeer) and isinstance(e.message, wire.Ack):
                    acked |= {(e.peer, lane): n for lane, n in e.message.nexts.items()}
            said.append(got)
            confirmed.append(acked)
        assert said[0] == said[1]
        assert confirmed[0] == confirmed[1]

    def test_it_confirms_as_soon_as_enough_has_come(self):
        node = self.begun(ack_count=3)
        confirmed = [messages(node.take_next(data("p", n), 50)) for n in range(2, 7)]
        ack = wire.Ack("me", {"a": 5}, to="p")
        assert confirmed == [[], [], [ack], [], []]

    def test_it_confirms_large_events_sooner(self):
        node = self.begun(ack_bytes=100)
        confirmed = [messages(node.take_next(data("p", n), 60)) for n in (2, 3)]
        assert confirmed == [[], [wire.Ack("me", {"a": 4}, to="p")]]

    def test_a_lane_that_is_held_is_not_confirmed(self):
        node = self.begun(ack_count=1)
        node.is_held = lambda peer, lane: True
        assert [node.take_next(data("p", n), 50) for n in (2, 3, 4)] == [[], [], []]

    @pytest.mark.parametrize(
        "frame",
        [
            data("p", 1),
            data("p", 3),
            data("p", 2, channel="b"),
            data("stranger", 2),
            data("p", 0),
            wire.Data("p", "a", 2, wire.Items.of([item("a.x")]), [b"descriptor"]),
        ],
        ids=["again", "a hole", "another lane", "a stranger", "best effort", "with a new type"],
    )
    def test_what_is_not_just_the_next_frame_is_for_the_long_way(self, frame):
        assert self.begun().take_next(frame, 50) is None

    def test_a_peer_that_is_not_seen_is_for_the_long_way(self):
        node = self.begun()
        node.peer_down("p", 0.0)
        assert node.take_next(data("p", 2), 50) is None

    def test_nothing_is_taken_in_while_there_is_no_room(self):
        node = self.begun()
        assert node.take_next(data("p", 2), 50) == []
        node.pause("a", True, 0.0)
        assert node.take_next(data("p", 3), 50) is None


def test_peers_learn_the_name_of_a_program():
    node = Node("me")
    node.application = "oven-3"
    (told,) = messages(node.peer_up("p", 1.0))
    assert told.application == "oven-3"
    node.take(wire.Interest("p", WIRE, 1, 0, 1, [], application="press-1"), 1.1)
    assert node.peers["p"].application == "press-1"
