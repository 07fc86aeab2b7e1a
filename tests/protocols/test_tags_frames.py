"""Frames about tags from outside: mangled, of strangers, in other orders than they were sent."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.effects import ToPeer
from infobus.protocols.frames import tags as wire
from infobus.protocols.frames.tags import TagOperation, TagOutcome, TagRow, TagTerms, TagUser
from infobus.protocols.tags.holder import RequestDecided, TagHolder, TagsChanged
from infobus.protocols.tags.server import HaveAgreed, TagServer
from infobus.protocols.tags.table import TagTable

ROW = TagRow("a.>", "oven", TagTerms("Reading", 7, ("oven-*",), ("*",), "business", 3.0), 2)
CREATE = TagOperation("r1", "create", "a.>", "oven", declared=ROW.declared)
FRAMES = [
    wire.TagsWanted("p", 1, ["a", "a.>"], "r0", 2, True, True),
    wire.TagsTold("d", 1, "oak#1", "r0", 0, 2, True, [ROW], ["b"]),
    wire.TagRequest("p", CREATE),
    wire.TagDecided("d", "r1", TagOutcome("exists", "a.>", "press"), 2),
    wire.Publishes("p", 3, "oak#1", ["a.>"]),
    wire.PublishesKnown("d", 3),
    wire.WhoUses("p", 4, "a.>"),
    wire.UsedBy("d", 4, [TagUser("p", "oven")], []),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_frames_come_back_as_they_were(frame):
    assert wire.decode(msgspec.msgpack.encode(frame)) == frame


@given(st.sampled_from(FRAMES), st.integers(0, 200), st.binary(max_size=4))
def test_mangled_frames_are_refused_and_nothing_else_happens(frame, at, junk):
    payload = msgspec.msgpack.encode(frame)
    mangled = payload[:2] + payload[2:][: at % len(payload)] + junk
    with contextlib.suppress(BadFrame):
        wire.decode(mangled)


@pytest.mark.parametrize(
    "frame",
    [
        wire.TagsWanted("a b", 1, []),
        wire.TagsWanted("p", 1, ["x"] * 17),
        wire.Publishes("p", 1, "oak#1", ["x"] * 1001),
        wire.TagRequest("p", TagOperation("", "create", "a", "oven")),
        wire.TagRequest("p", TagOperation("r", "explode", "a", "oven")),
    ],
)
def test_what_is_out_of_bounds_is_refused(frame):
    with pytest.raises(BadFrame):
        wire.decode(msgspec.msgpack.encode(frame))


def test_kinds_of_frames_that_a_newer_version_adds_are_skipped():
    assert wire.decode(msgspec.msgpack.encode([69, "p", "something new"])) is None


def told(sender="d", *, since=0, upto=2, rows=(ROW,), history="r0", asked=0, whole=True):
    return wire.TagsTold(sender, asked, "oak#1", history, since, upto, whole, list(rows), [])


@pytest.fixture
def holder():
    """A program that asks the node `d`."""
    one = TagHolder("p")
    one.server_up("d", 0.0)
    return one


class TestTheHolder:
    def test_strangers_tell_it_nothing(self, holder):
        assert holder.take(told("stranger"), 1.0) == []
        assert not holder.tags

    def test_late_words_do_not_bring_back_what_was(self, holder):
        holder.take(told(upto=5, rows=()), 1.0)
        holder.take(told(upto=2), 1.1)
        assert (holder.tags, holder.held) == ({}, 5)

    def test_changes_after_something_it_lacks_make_it_ask_anew(self, holder):
        holder.take(told(upto=2), 1.0)
        (asked,) = holder.take(told(since=4, upto=5), 1.1)
        assert asked.message.held == 0

    def test_another_history_replaces_everything(self, holder):
        holder.take(told(upto=9), 1.0)
        effects = holder.take(told(upto=1, rows=(), history="r7"), 1.1)
        assert TagsChanged() in effects
        assert (holder.tags, holder.held) == ({}, 1)

    def test_an_answer_to_fewer_patterns_is_not_the_answer(self, holder):
        holder.take(told(whole=False), 1.0)
        holder.want(["b.>"], 1.1)
        holder.take(told(whole=False, asked=0), 1.2)
        assert not holder.is_covered("b.>")
        holder.take(told(whole=False, asked=1), 1.3)
        assert holder.is_covered("b.>")

    def test_a_request_is_repeated_and_answered_once(self, holder):
        (first,) = holder.request(CREATE, 1.0)
        assert first == ToPeer("d", wire.TagRequest("p", CREATE))
        assert first in holder.tick(1.6)
        answer = wire.TagDecided("d", "r1", TagOutcome(), 2)
        assert holder.take(answer, 1.7) == [RequestDecided("r1", TagOutcome(), 2)]
        assert holder.take(answer, 1.8) == []

    def test_a_silent_node_is_left_for_another(self, holder):
        holder.server_up("e", 0.1)
        holder.request(CREATE, 1.0)
        moved = holder.tick(3.1)
        assert {effect.peer for effect in moved} == {"e"}
        assert ToPeer("e", wire.TagRequest("p", CREATE)) in moved


@pytest.fixture
def server():
    """A node with a table, as the only member."""
    table = TagTable()
    one = TagServer("d", table, lambda: "oak#1")
    return one


class TestTheServer:
    def test_who_is_no_member_answers_nothing(self, server):
        assert server.take(FRAMES[0], 1.0) == []
        assert server.take(wire.TagRequest("p", CREATE), 1.0) == []

    def test_nobody_binds_a_tag_to_another_member(self, server):
        server.table.view(0, ("oak#1", "elm#1"))
        bound = msgspec.structs.replace(CREATE, host="elm#1")
        (agreed,) = server.take(wire.TagRequest("p", bound), 1.0)
        assert agreed == HaveAgreed(CREATE)
        nameless = msgspec.structs.replace(CREATE, id="r2", asker="p")
        (agreed,) = server.take(wire.TagRequest("p", nameless), 1.0)
        assert agreed.operation.host == "oak#1"

    def test_what_is_not_confirmed_is_told_again(self, server):
        server.table.view(0, ("oak#1",))
        (first,) = server.take(wire.TagsWanted("p", 0, []), 1.0)
        assert server.tick(1.2) == []
        assert server.tick(1.6) == [first]
        server.take(wire.TagsWanted("p", 0, [], first.message.history, first.message.upto), 1.7)
        assert server.tick(9.0) == []

    def test_who_was_taken_back_by_a_late_word_is_told_everything_anew(self, server):
        server.table.view(0, ("oak#1",))
        server.take(wire.TagsWanted("p", 0, []), 1.0)
        server.table.apply(1, msgspec.msgpack.encode(CREATE))
        (everything,) = server.decided(1.1)
        server.take(wire.TagsWanted("p", 0, [], "r1", 2, True), 1.2)
        (again,) = server.take(wire.TagsWanted("p", 0, [], "", 1, True), 1.3)
        assert again == everything

    def test_publishers_go_with_the_view_that_lacks_their_member(self, server):
        server.table.view(0, ("oak#1", "elm#1"))
        server.take(wire.Publishes("p", 1, "elm#1", ["a"]), 1.0)
        server.take(wire.Publishes("q", 1, "oak#1", ["a"]), 1.0)
        assert server.take(wire.Publishes("x", 1, "ash#9", ["a"]), 1.0) == []
        server.viewed(("oak#1",))
        assert [user.node for user in server.publishers("a")] == ["q"]

    def test_a_publisher_that_blinks_stays_and_one_that_dies_goes(self, server):
        server.table.view(0, ("oak#1",))
        for node in ("p", "q"):
            server.take(wire.Publishes(node, 1, "oak#1", ["a"]), 1.0)
            server.peer_down(node, 2.0)
        server.peer_up("p", 3.0)
        server.tick(13.0)
        assert [user.node for user in server.publishers("a")] == ["p"]

    def test_too_many_requests_are_refused(self):
        server = TagServer("d", TagTable(), lambda: "oak#1", pending_count_max=1)
        server.table.view(0, ("oak#1",))
        server.take(wire.TagRequest("p", CREATE), 1.0)
        more = msgspec.structs.replace(CREATE, id="r2")
        (refused,) = server.take(wire.TagRequest("p", more), 1.0)
        assert refused.message.outcome.why == "full"
        server.tick(99.0)  # nobody asks for the first any more
        assert isinstance(server.take(wire.TagRequest("p", more), 99.0)[0], HaveAgreed)
