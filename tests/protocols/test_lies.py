"""Frames in another node's name: whatever they say, nothing is lost without a word."""

import pytest

from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.reliable.effects import Events, Lost
from infobus.protocols.reliable.node import Node
from infobus.protocols.reliable.peer import Terms

WIRE = (wire.WIRE_MAJOR, wire.WIRE_MINOR)


class Two:
    """A publisher and a subscriber of `a.>` whose frames arrive at once, and a liar beside them."""

    def __init__(self, **terms):
        self.now_s = 0.0
        self.publisher = Node("pub", Terms(**terms))
        self.subscriber = Node("sub", Terms(**terms))
        self.nodes = {"pub": self.publisher, "sub": self.subscriber}
        self.got, self.losses, self.complaints = [], [], []
        self.number = 0
        self.subscriber.add_interest(["a.>"], 0.0)
        for node, other in ((self.publisher, "sub"), (self.subscriber, "pub")):
            self.carry_out(node.name, node.peer_up(other, 0.0))
        self.pass_time(1.0)

    def carry_out(self, name, effects):
        for effect in effects:
            match effect:
                case ToPeer(peer, bytes() as frame):
                    self.take(peer, wire.decode(frame))
                case ToPeer(peer, message):
                    self.take(peer, message)
                case ToAll(message):
                    self.take("sub" if name == "pub" else "pub", message)
                case Events(_, _, _, items):
                    self.got += [bytes(item.body) for item in items]
                case Lost():
                    self.losses.append(effect)
                case Complain():
                    self.complaints.append(effect)

    def take(self, name, message):
        if name not in self.nodes:
            return
        node = self.nodes[name]
        if isinstance(message, wire.Data):
            effects = node.take_next(message, 1)
            if effects is not None:
                self.got += message.items.bodies
                self.carry_out(name, effects)
                return
        self.carry_out(name, node.take(message, self.now_s))

    def pass_time(self, seconds):
        for _ in range(round(seconds * 10)):
            self.now_s = round(self.now_s + 0.1, 3)
            for name, node in self.nodes.items():
                self.carry_out(name, node.tick(self.now_s))

    def publish(self, body, count=1):
        """Publish as the bus does: quenched unless somebody wants it."""
        if self.publisher.wanted("a.x") is False:
            self.publisher.note_unwanted("a")
            return
        route = self.publisher.route("a", self.now_s)
        data = self.data(route.next, body, count)
        route.sent(wire.encode(data), count)
        self.take("sub", data)

    def data(self, first, body, count=1, time_s=None):
        items = []
        for _ in range(count):
            self.number += 1
            at_s = 1000 + self.number / 8 if time_s is None else time_s
            items.append(wire.Item("a.x", self.number, at_s, 0, body))
        return wire.Data("pub", "a", first, wire.Items.of(items))


def test_a_goodbye_in_anothers_name_ends_no_stream():
    two = Two()
    two.publish(b"1")
    two.take("sub", wire.Bye("pub", {"a": 2**62}))
    two.publish(b"2")
    two.pass_time(6.0)
    two.publish(b"3")
    assert (two.got, two.losses) == ([b"1", b"2", b"3"], [])
    assert any("goodbye" in one.what for one in two.complaints)


def test_a_goodbye_in_the_name_of_a_node_that_cannot_be_seen_ends_nothing_for_good():
    two = Two()
    two.publish(b"1")
    two.carry_out("sub", two.subscriber.peer_down("pub", two.now_s))
    two.take("sub", wire.Bye("pub", {"a": 2**62}))
    assert two.losses
    two.publish(b"2")
    two.carry_out("sub", two.subscriber.peer_up("pub", two.now_s))
    two.pass_time(2.0)
    two.publish(b"3")
    two.pass_time(2.0)
    assert two.got == [b"1", b"2", b"3"]


def test_a_goodbye_in_a_subscribers_name_takes_nothing_from_it():
    two = Two()
    two.take("pub", wire.Bye("sub"))
    two.publish(b"1")
    assert (two.got, two.losses) == ([b"1"], [])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_event_whose_number_somebody_else_took_is_reported(count):
    two = Two()
    two.publish(b"1")
    two.take("sub", two.data(2, b"lie", count))
    for number in range(2, 10):
        two.publish(b"%d" % number)
    assert two.losses == [Lost("pub", "a", 0, None)]
    assert two.got == [b"1", *[b"lie"] * count, *(b"%d" % n for n in range(2 + count, 10))]


def test_an_event_in_a_frame_that_begins_with_a_number_taken_is_reported():
    two = Two()
    two.take("sub", two.data(1, b"lie"))
    two.publish(b"true", count=3)
    assert two.got == [b"lie", b"true", b"true"]
    assert two.losses == [Lost("pub", "a", 0, None)]


def test_a_lie_that_waits_for_its_turn_is_found_out_when_the_true_event_comes():
    two = Two()
    two.publish(b"1")
    two.take("sub", two.data(3, b"lie"))
    two.publish(b"2")
    two.publish(b"3")
    assert two.got == [b"1", b"2", b"lie"]
    assert two.losses == [Lost("pub", "a", 0, None)]


def test_events_that_were_never_sent_are_found_out_by_their_confirmation():
    two = Two()
    two.publish(b"1")
    two.take("sub", two.data(2, b"lie", count=100))
    two.pass_time(1.0)
    assert two.losses == [Lost("pub", "a", 102, None)]
    two.publish(b"2")
    assert two.got[-1] == b"2"


@pytest.mark.parametrize(
    "lie",
    [
        wire.Beat("pub", WIRE, 1, {"a": 2**62}),
        wire.Known("pub", 2, 1, {"a": 2**62}),
        wire.Gone("pub", "a", 1, 2**62),
    ],
    ids=lambda lie: type(lie).__name__,
)
@pytest.mark.parametrize("has_begun", [False, True])
def test_numbers_that_jump_end_no_stream_for_good(lie, has_begun):
    two = Two()
    if has_begun:
        two.publish(b"0")
    two.take("sub", lie)
    two.publish(b"1")
    two.pass_time(10.0)
    two.publish(b"2")
    two.pass_time(10.0)
    assert two.got[-1] == b"2"
    assert b"1" in two.got or two.losses


@pytest.mark.parametrize("flaps", [False, True])
def test_a_welcome_that_was_never_given_ends_no_stream_for_good(flaps):
    two = Two()
    two.publish(b"1")
    two.take("sub", wire.Known("pub", two.subscriber.own.version, 2**62))
    if flaps:
        two.carry_out("sub", two.subscriber.peer_down("pub", two.now_s))
        two.carry_out("sub", two.subscriber.peer_up("pub", two.now_s))
    two.publish(b"2")
    two.pass_time(10.0)
    two.publish(b"3")
    two.pass_time(10.0)
    assert two.got[-1] == b"3"
    assert b"2" in two.got or two.losses
    two.subscriber.add_interest(["b"], two.now_s)
    two.pass_time(3.0)
    assert two.subscriber.is_known(two.subscriber.own.version)


def test_an_event_that_comes_twice_is_no_lie():
    two = Two()
    two.publish(b"1")
    again = two.data(1, b"1", time_s=1000 + 1 / 8)
    two.take("sub", again)
    two.take("sub", again)
    assert (two.got, two.losses) == ([b"1"], [])


def test_a_best_effort_number_that_jumps_shuts_out_nobody_for_good():
    two = Two()
    lie = wire.Items.of([wire.Item("a.x", 2**62, 0.0, 0, b"lie")])
    two.take("sub", wire.Data("pub", "a", 0, lie))
    true = wire.Items.of([wire.Item("a.x", 7, 0.0, 0, b"true")])
    two.take("sub", wire.Data("pub", "a", 0, true))
    two.take("sub", wire.Data("pub", "a", 0, true))
    assert two.got == [b"lie", b"true"]


@pytest.mark.parametrize("jump", [1, 1000, 2**40, 2**63 - 100])
def test_rows_in_anothers_name_are_disowned_and_the_time_between_is_reported(jump):
    two = Two()
    two.publish(b"1")
    stopped, two.nodes = two.nodes, {"pub": two.publisher}
    version = two.subscriber.own.version
    two.take("pub", wire.Interest("sub", WIRE, 1, 0, version + jump, []))
    two.publish(b"2")  # quenched
    two.nodes = stopped
    two.pass_time(3.0)
    assert two.losses == [Lost("pub", "a", 2, None)]
    two.publish(b"3")
    assert two.got == [b"1", b"3"]
    assert Complain("sub", "did not tell the rows held of it") in two.complaints


def test_a_doubled_word_of_rows_that_were_disowned_changes_nothing():
    two = Two()
    version = two.subscriber.own.version
    word = wire.Interest("sub", WIRE, 1, 0, version, ["a.>"], welcome=1, disowned=version + 5)
    two.take("pub", word)
    two.publish(b"1")
    assert (two.got, two.losses) == ([b"1"], [])


def test_names_without_a_token_are_few_and_have_no_rows():
    node = Node("me", Terms(strangers_count_max=5))
    for number in range(100):
        told = wire.Interest(f"ghost-{number}", WIRE, 1, 0, 2, [">"], window=1)
        assert not [e for e in node.take(told, 0.0) if not isinstance(e, ToPeer)]
        node.take(wire.WantRows(f"ghost-{number}"), 0.0)
    assert len(node.peers) == 5
    assert node.wanted("a.x") is False
    assert sum(isinstance(e, ToPeer) for e in node.tick(0.1)) <= 5
    node.peer_up("honest", 0.2)
    node.take(wire.Interest("honest", WIRE, 1, 0, 2, [">"]), 0.2)
    assert node.wanted("a.x") is True
    node.tick(6.0)
    node.take(wire.WantRows("another"), 6.1)
    assert "another" in node.peers, "those that said no more were forgotten"


def test_a_node_that_does_not_answer_is_waited_for_once():
    node = Node("me")
    node.peer_up("mute", 0.0)
    node.add_interest(["a"], 0.0)
    assert not node.is_known(node.own.version)
    assert node.note_silent(node.own.version) == ["mute"]
    node.add_interest(["b"], 3.0)
    assert node.is_known(node.own.version)
    node.take(wire.Known("mute", node.own.version, 1), 3.0)
    node.add_interest(["c"], 3.1)
    assert not node.is_known(node.own.version), "it answers, so it is waited for again"


def test_a_loss_is_told_before_what_follows_it():
    """A publisher that stood still gave its subscriber up, and went on for others."""
    two = Two()
    two.publish(b"1")
    two.carry_out("sub", two.subscriber.peer_down("pub", two.now_s))
    two.carry_out("pub", two.publisher.peer_down("sub", two.now_s - 3.0))
    two.carry_out("pub", two.publisher.tick(two.now_s))
    two.publish(b"2")  # quenched
    stopped, two.nodes = two.nodes, {"sub": two.subscriber}
    two.carry_out("sub", two.subscriber.peer_up("pub", two.now_s))
    two.publisher.peer_up("other", two.now_s)
    two.publisher.take(wire.Interest("other", WIRE, 1, 0, 2, ["a.>"]), two.now_s)
    two.publish(b"3")  # for the other one, but heard here
    assert two.got == [b"1"]
    two.nodes = stopped
    two.carry_out("pub", two.publisher.peer_up("sub", two.now_s))
    two.pass_time(2.0)
    assert two.losses == [Lost("pub", "a", 2, None)]
    two.publish(b"4")
    assert two.got in ([b"1", b"4"], [b"1", b"3", b"4"])
