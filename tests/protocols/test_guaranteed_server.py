"""Guaranteed delivery, serving half: a question is answered from the ledger, or waits."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import DeliveryError
from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames import guaranteed as wire
from infobus.protocols.frames import transactions
from infobus.protocols.frames.guaranteed import Durable, Fetch, Ledgers
from infobus.protocols.frames.items import Item, Items
from infobus.protocols.frames.transactions import GROUP, Group
from infobus.protocols.guaranteed.server import LedgerFailed
from infobus.stores.ledger.record import Record
from infobus.testing.simulation.nodes.guaranteed import let_go
from tests.protocols.ledgers import Serving, event, noted, numbers


class TestAnswers:
    def test_hold_what_the_consumer_wants_of_what_follows(self):
        serving = Serving()
        serving.open("L", event("a.x"), event("b.x"), event("a.y"), event("b.y"))
        serving.announce("a.>")
        (kept,) = serving.fetch(0)
        assert (kept.after, kept.upto, numbers(kept), kept.gone) == (0, 4, [1, 3], None)

    def test_hold_what_passes_the_filter(self):
        serving = Serving()
        serving.open("L", *(event(n=n) for n in range(6)))
        serving.announce(">", where="n > 3")
        (kept,) = serving.fetch(0)
        assert numbers(kept) == [5, 6]

    def test_a_filter_or_an_object_that_is_not_understood_lets_everything_through(self):
        serving = Serving()
        serving.open("L", event(n=1))
        serving.announce(">", name="newer", where="from a newer version(")
        serving.announce(">", name="other", where="n == 2")

        def fail(record):
            raise DeliveryError("its type is not known")

        serving.server.decode = fail
        serving.announce(">", name="third", where="n == 2")
        assert numbers(serving.fetch(0, name="newer")[0]) == [1]
        assert serving.fetch(0, name="other", now_s=9) == []
        assert numbers(serving.fetch(0, name="third")[0]) == [1]

    def test_hold_test_events_only_for_those_who_want_them(self):
        serving = Serving()
        serving.open("L", event(test=True), event())
        serving.announce(">", name="real")
        serving.announce(">", name="tester", test=True)
        assert numbers(serving.fetch(0, name="real")[0]) == [2]
        assert numbers(serving.fetch(0, name="tester")[0]) == [1, 2]

    def test_stay_within_the_credit_but_hold_at_least_one_event(self):
        serving = Serving()
        serving.open("L", *(event(text="x" * 100) for _ in range(9)))
        serving.announce(">")
        (kept,) = serving.fetch(0, credit_count=2)
        assert (numbers(kept), kept.upto) == ([1, 2], 2)
        (kept,) = serving.fetch(2, credit_bytes=350)
        assert numbers(kept) == [3, 4]
        (kept,) = serving.fetch(4, credit_count=0, credit_bytes=0)
        assert numbers(kept) == [5]
        (kept,) = serving.fetch(5, credit_count=2**63 - 1, credit_bytes=2**63 - 1)
        assert numbers(kept) == [6, 7, 8, 9]

    def test_wait_until_there_is_something(self):
        serving = Serving()
        serving.open("L", event("b"))
        serving.announce("a")
        assert serving.fetch(1) == []
        assert serving.append(event("b")) == []
        (kept,) = serving.append(event("a"), event("b"))
        assert (kept.after, kept.upto, numbers(kept)) == (1, 4, [3])
        assert serving.append(event("a")) == []  # nobody has asked for it yet
        (kept,) = serving.fetch(4)
        assert numbers(kept) == [5]

    def test_of_consumers_that_are_equally_far_on_take_one_reading(self):
        serving = Serving()
        ledger = serving.open("L", event("a"))
        readings, read = [], ledger.read
        ledger.read = lambda *place: readings.append(place[0]) or read(*place)
        for name, pattern in (("one", ">"), ("two", "a"), ("three", "b")):
            serving.announce(pattern, name=name)
            assert serving.fetch(1, name=name) == []
        found = serving.append(event("a"), event("b"))
        assert {kept.name: numbers(kept) for kept in found} == {
            "one": [2, 3],
            "two": [2],
            "three": [3],
        }
        assert readings == [1]
        (kept,) = serving.fetch(1, name="two")  # what was read is not kept
        assert (numbers(kept), readings) == ([2], [1, 1])

    def test_that_got_lost_are_given_again(self):
        serving = Serving()
        serving.open("L", event(), event())
        serving.announce(">")
        assert serving.fetch(0) == serving.fetch(0) != []

    def test_say_after_a_while_how_far_there_is_nothing(self):
        serving = Serving(skip_s=5.0)
        serving.open()
        serving.announce("a")
        serving.fetch(0)
        serving.append(event("b"), event("b"))
        serving.effects = serving.server.tick(4.9)
        assert serving.answers() == []
        serving.effects = serving.server.tick(5.0)
        (kept,) = serving.answers()
        assert (kept.after, kept.upto, kept.entries) == (0, 2, [])
        serving.fetch(2, now_s=5.0)
        assert serving.server.tick(100.0) == []  # there is nothing to say

    def test_take_turns_and_are_cut_into_slices(self):
        serving = Serving(slice_count=10)
        serving.open("L", *(event("b") for _ in range(35)), event("a"))
        serving.announce("a", name="rare")
        assert serving.fetch(0, name="rare") == []
        serving.announce("b", name="often")
        (kept,) = serving.fetch(0, name="often")  # need not wait until the others are through
        assert (kept.name, numbers(kept)) == ("often", list(range(1, 11)))
        rounds = 0
        while serving.server.has_work:
            serving.effects = serving.server.work(0.0)
            rounds += 1
        (kept,) = serving.answers()
        assert (kept.name, numbers(kept), rounds) == ("rare", [36], 2)

    def test_bring_descriptors_until_they_have_come(self):
        serving = Serving()
        typed = Record("a", 0.0, 7, b"\x80")
        serving.open("L", typed, typed, event())
        serving.announce(">")
        assert serving.fetch(0, credit_count=1)[0].descriptors == [b"type 7"]
        assert serving.fetch(0, credit_count=1)[0].descriptors == [b"type 7"]
        assert serving.fetch(1)[0].descriptors == []

    def test_may_hold_nil_in_the_reserved_place(self):
        places = [1, "a", 0.0, 7, b"\x80", None, None, False, "emergency", None]
        found = msgspec.convert(places, wire.Entry)
        assert found == msgspec.convert(places[:-1], wire.Entry)
        assert (found.number, found.priority) == (1, "emergency")

    def test_bring_descriptors_of_what_sits_inside(self):
        ext = msgspec.msgpack.Ext(1, msgspec.msgpack.encode([9, {}, None]))
        items = [Item("a", 1, 0.0, 7, b"\x80"), Item("b", 2, 0.0, 8, b"\x80")]
        group = transactions.encode(Group(1, 1, 1, Items.of(items), 2))
        serving = Serving()
        serving.open(
            "L",
            Record("a", 0.0, GROUP, group),
            Record("a", 0.0, 0, msgspec.msgpack.encode({"x": [ext]})),
            Record("a", 0.0, GROUP, b"no transaction"),
        )
        serving.announce(">")
        assert serving.fetch(0)[0].descriptors == [b"type 7", b"type 8", b"type 9"]


class TestGone:
    def test_numbers_are_named_in_the_answer(self):
        serving = Serving()
        ledger = serving.open("L", *(event() for _ in range(6)))
        serving.announce(">")
        let_go(ledger, 4)
        (kept,) = serving.fetch(1)
        assert (kept.gone, numbers(kept)) == ((2, 4), [5, 6])

    def test_everything_is_gone(self):
        serving = Serving()
        ledger = serving.open("L", event(), event())
        serving.announce(">")
        let_go(ledger, 2)
        (kept,) = serving.fetch(0)
        assert (kept.gone, kept.upto, kept.entries) == ((1, 2), 2, [])

    def test_a_hole_is_named_even_if_what_follows_is_not_wanted(self):
        serving = Serving()
        ledger = serving.open("L", event("a"), event("a"), event("b"))
        serving.announce("a")
        serving.fetch(1)
        let_go(ledger, 2)
        (kept,) = serving.fetch(1)
        assert (kept.gone, kept.upto, kept.entries) == ((2, 2), 3, [])

    def test_each_hole_of_a_repaired_ledger_begins_an_answer(self):
        serving = Serving()
        ledger = serving.open("L", *(event() for _ in range(6)))
        records = [pair for pair in ledger.read(0, 6, 10**6) if pair[0] in (1, 3, 6)]
        ledger.read = lambda after, count_max, bytes_max: [
            pair for pair in records if pair[0] > after
        ]
        serving.announce(">")
        after, account = 0, []
        while after < 6:
            (kept,) = serving.fetch(after)
            account += list(range(kept.gone[0], kept.gone[1] + 1)) if kept.gone else []
            account += numbers(kept)
            after = kept.upto
        assert account == [1, 2, 3, 4, 5, 6]


class TestBeginning:
    def test_is_the_first_event_since_the_registration(self):
        serving = Serving()
        ledger = serving.open("L", event(time=1.0), event(time=2.0), event(time=3.0))
        serving.announce(">", registered_at=2.0)
        (kept,) = serving.fetch(-1)
        assert (kept.after, numbers(kept)) == (-1, [2, 3])
        assert noted(ledger) == {"billing": 1}

    def test_is_told_at_once_even_if_there_is_nothing_yet(self):
        serving = Serving()
        serving.open("L", event(time=1.0))
        serving.announce(">", registered_at=2.0)
        (kept,) = serving.fetch(-1)
        assert (kept.upto, kept.entries) == (1, [])

    def test_is_what_the_ledger_has_noted_whatever_the_clocks_say(self):
        serving = Serving()
        serving.open("L", event(time=1.0))
        serving.announce(">", registered_at=1_000.0)  # far ahead of the publisher's clock
        serving.append(event(time=2.0))
        (kept,) = serving.fetch(-1)
        assert numbers(kept) == [2]

    def test_a_ledger_opened_later_meets_those_who_are_there(self):
        serving = Serving()
        serving.announce(">", registered_at=1_000.0)
        assert serving.effects == []
        serving.open("L")
        assert serving.effects == [ToAll(Ledgers("server", ["L"]))]
        serving.append(event(time=2.0))
        (kept,) = serving.fetch(-1)
        assert numbers(kept) == [1]

    def test_what_may_have_been_gone_since_the_registration_is_reported(self):
        serving = Serving()
        ledger = serving.open("L", event(time=1.0), event(time=2.0), event(time=3.0))
        let_go(ledger, 2)
        serving.announce(">", name="late", registered_at=3.0)
        serving.announce(">", name="early", registered_at=1.5)
        assert serving.fetch(-1, name="late")[0].gone is None
        (kept,) = serving.fetch(-1, name="early")
        assert (kept.gone, numbers(kept)) == ((1, 2), [3])


class TestSettling:
    def test_what_is_settled_is_noted_and_never_goes_back(self):
        serving = Serving()
        ledger = serving.open("L", *(event() for _ in range(5)))
        serving.announce(">")
        serving.fetch(5, 3)
        assert noted(ledger) == {"billing": 3}
        serving.announce(">", session=2)
        serving.fetch(1, session=2)
        assert noted(ledger) == {"billing": 3}

    @pytest.mark.parametrize(("after", "settled"), [(3, 3), (2**63 - 1, 0), (1, 2)])
    def test_what_was_never_written_cannot_be_settled(self, after, settled):
        serving = Serving()
        ledger = serving.open("L", event(), event())
        serving.announce(">")
        (refused,) = serving.fetch(after, settled)
        assert (refused.why, noted(ledger)) == (wire.BEYOND, {"billing": 0})
        assert "ends at 2" in refused.detail
        assert any(isinstance(effect, Complain) for effect in serving.effects)

    def test_a_late_question_changes_nothing(self):
        serving = Serving()
        serving.open("L", event(), event())
        serving.announce(">")
        serving.fetch(2)
        assert serving.fetch(1) == []
        (kept,) = serving.append(event())
        assert kept.after == 2


class TestNames:
    def test_whoever_announces_itself_hears_which_ledgers_are_served(self):
        serving = Serving()
        serving.open("L")
        serving.open("M")
        serving.announce(">")
        assert serving.effects == [ToPeer("consumer", Ledgers("server", ["L", "M"]))]

    def test_a_question_of_a_stranger_or_about_a_strange_ledger_is_refused(self):
        serving = Serving()
        serving.open("L")
        assert serving.fetch(0)[0].why == wire.UNKNOWN
        serving.announce(">")
        assert serving.fetch(0, session=2)[0].why == wire.UNKNOWN
        assert serving.fetch(0, id="M")[0].why == wire.NOT_SERVED
        serving.server.closed("L")
        assert serving.fetch(0)[0].why == wire.NOT_SERVED

    def test_a_name_in_use_is_refused_to_another_node(self):
        serving = Serving()
        ledger = serving.open("L", event())
        serving.announce(">")
        (refused,) = serving.announce(">", node="other")
        assert (refused.why, refused.detail) == (wire.IN_USE, "consumer")
        (refused,) = serving.fetch(1, node="other")
        assert (refused.why, noted(ledger)) == (wire.IN_USE, {})

    def test_the_next_life_of_a_home_has_the_name_at_once(self):
        serving = Serving()
        serving.open("L", event(time=9.0))
        home = {"registered_at": 5.0}
        serving.announce(">", node="old", session=1, **home)
        serving.fetch(0, node="old", session=1)
        assert serving.announce(">", node="new", session=2, **home) == []
        assert numbers(serving.fetch(0, node="new", session=2)[0]) == [1]
        assert serving.announce(">", node="old", session=1, **home)[0].why == wire.IN_USE
        assert serving.announce(">", node="else", session=3)[0].why == wire.IN_USE

    @pytest.mark.parametrize("end", ["released", "node is down", "silent"])
    def test_a_name_is_free_when_its_user_has_let_go(self, end):
        serving = Serving(lease_s=15.0)
        serving.open("L", event())
        serving.announce(">")
        serving.fetch(1)
        serving.announce(node="other")  # cannot let go of what it does not hold
        assert serving.announce(">", node="other", now_s=14.9)[0].why == wire.IN_USE
        if end == "released":
            serving.announce()
        elif end == "node is down":
            serving.server.peer_down("consumer")
        now_s = 15.0 if end == "silent" else 1.0
        assert serving.announce(">", node="other", now_s=now_s) == []
        assert numbers(serving.fetch(0, node="other", now_s=now_s)[0]) == [1]
        assert serving.server.sessions["billing"].node == "other"

    def test_silent_ones_are_forgotten_and_nothing_waits_for_them(self):
        serving = Serving(lease_s=15.0)
        serving.open("L")
        serving.announce(">")
        serving.fetch(0)
        serving.server.tick(15.0)
        assert serving.server.sessions == {}
        assert serving.append(event(), now_s=15.0) == []

    def test_a_newer_session_of_the_same_node_replaces_the_older(self):
        serving = Serving()
        serving.open("L", event("a"), event("b"))
        serving.announce("a")
        serving.announce("b", session=2)
        serving.announce("a")  # late
        serving.announce()  # late
        assert serving.fetch(0) == []  # late
        assert numbers(serving.fetch(0, session=2)[0]) == [2]

    def test_too_many_are_refused(self):
        serving = Serving(consumers_count_max=2)
        serving.open("L", positions={"old": 0})
        serving.announce(">", name="first")
        serving.announce(">", name="second")
        assert serving.fetch(0, name="first") == []
        assert serving.fetch(0, name="second")[0].why == wire.TOO_MANY  # known to the server only
        assert serving.announce(">", name="third")[0].why == wire.TOO_MANY

    def test_a_name_reaches_the_disk_only_when_it_asks(self):
        serving = Serving()
        ledger = serving.open("L", event(), event())
        serving.announce(">", name="ghost")
        assert noted(ledger) == {}
        serving.append(event())
        serving.announce(">", name="ghost")  # again
        assert serving.fetch(-1, name="ghost") and noted(ledger) == {"ghost": 0}

    def test_names_that_never_ask_make_room_for_others(self):
        serving = Serving(consumers_count_max=3)
        ledger = serving.open("L")
        serving.announce(">", name="honest")
        serving.fetch(0, name="honest")
        for number in range(10):
            serving.announce(">", name=f"ghost{number}", node="enemy")
        serving.announce(">", name="late")
        assert serving.fetch(0, name="late") == []
        assert list(serving.server.sessions) == ["honest", "ghost9", "late"]
        assert noted(ledger) == {"honest": 0, "late": 0}

    def test_a_node_uses_so_many_names(self):
        serving = Serving(names_count_max=2)
        serving.open("L")
        for name in ("first", "second"):
            serving.announce(">", name=name)
            serving.fetch(0, name=name)
        assert serving.announce(">", name="third")[0].why == wire.TOO_MANY
        serving.announce(">", name="third", node="other")
        assert serving.fetch(0, name="third", node="other") == []

    def test_a_malformed_pattern_is_complained_about(self):
        serving = Serving()
        serving.announce("a..b")
        assert isinstance(serving.effects[0], Complain)
        assert serving.server.sessions == {}


def test_a_ledger_that_cannot_be_read_is_given_up_and_the_others_go_on():
    serving = Serving()
    broken = serving.open("L", event())
    serving.open("M", event())

    def fail(*arguments):
        raise DeliveryError("damaged")

    serving.announce(">")
    broken.read = fail
    assert [refused.why for refused in serving.fetch(0)] == [wire.NOT_SERVED]
    assert [effect.ledger for effect in serving.effects if isinstance(effect, LedgerFailed)] == [
        "L"
    ]
    assert serving.fetch(0)[0].why == wire.NOT_SERVED
    assert numbers(serving.fetch(0, id="M")[0]) == [1]
    broken.first_since = fail
    serving.effects = serving.server.opened("L", broken, 1, {}, 0.0)
    assert [type(effect) for effect in serving.effects] == [LedgerFailed]


NAMES = st.sampled_from(["billing", "other", "x" * 200])
COUNTS = st.sampled_from([0, 1, 2, 3, 4, 2**31, 2**63 - 1])
NODES = st.sampled_from(["consumer", "stranger"])
MESSAGES = st.one_of(
    st.builds(
        Durable,
        NODES,
        NAMES,
        COUNTS,
        st.lists(st.sampled_from([">", "a", "", "a..b", "*.>"]), max_size=2),
        st.sampled_from(["", "n > 1", "(", 'regex(n, "(")']),
        st.floats(),
        st.booleans(),
    ),
    st.builds(
        Fetch,
        NODES,
        NAMES,
        COUNTS,
        st.sampled_from(["L", "M"]),
        COUNTS | st.just(-1),
        COUNTS | st.just(-1),
        COUNTS,
        COUNTS,
    ),
    st.builds(Ledgers, NODES, st.lists(NAMES, max_size=2)),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(MESSAGES, st.sampled_from([0.0, 1.0, 20.0])), max_size=12))
def test_whatever_is_asked_nothing_untrue_is_noted_and_others_are_served(steps):
    serving = Serving()
    ledger = serving.open("L", event("a", n=1), event("b", n=2), event("a", n=3))
    serving.announce(">", name="honest", node="honest")
    now_s = 0.0
    for message, pause_s in steps:
        now_s += pause_s
        serving.server.take(message, now_s)
        serving.server.tick(now_s)
        assert all(0 <= position <= 3 for position in noted(ledger).values())
    serving.announce(">", name="honest", node="honest", now_s=now_s)
    assert numbers(serving.fetch(0, name="honest", node="honest", now_s=now_s)[0]) == [1, 2, 3]


@given(st.binary(max_size=60) | MESSAGES.map(msgspec.msgpack.encode), st.data())
def test_mangled_bytes_are_an_error_of_the_decoder_or_a_message(payload, data):
    at = data.draw(st.integers(0, len(payload)))
    mangled = payload[:at] + data.draw(st.binary(max_size=2)) + payload[at + 1 :]
    try:
        message = msgspec.msgpack.decode(mangled, type=wire.GuaranteedMessage)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    Serving().server.take(message, 0.0)


class TestALedgerThatIsNotTheNodesOwn:
    def test_is_wanted_until_every_consumer_in_use_has_settled_everything(self):
        serving = Serving()
        serving.open("L", event(), event(), positions={"away": 0})
        assert not serving.server.is_wanted("L")
        serving.announce(">", name="billing")
        serving.announce(">", name="audit", node="other")
        serving.fetch(2, name="billing")
        assert serving.server.is_wanted("L")
        serving.fetch(2, name="audit", node="other")
        assert not serving.server.is_wanted("L")

    def test_lacks_nothing_for_consumers_that_it_cannot_take_in(self):
        serving = Serving(consumers_count_max=1)
        serving.announce(">", name="billing")
        assert serving.server.is_lacking(3, {})
        assert not serving.server.is_lacking(3, {"audit": 0})

    def test_whoever_waits_for_it_is_told_that_it_is_let_go(self):
        serving = Serving()
        serving.open("L", event())
        serving.announce(">")
        assert serving.fetch(1) == []
        serving.effects = serving.server.closed("L")
        (refused,) = serving.answers()
        assert (refused.ledger, refused.why) == ("L", wire.NOT_SERVED)
        assert serving.server.tick(100.0) == []
