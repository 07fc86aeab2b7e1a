"""Guaranteed delivery, consuming half: each event until it is settled, in order, or aloud."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.protocols.effects import Complain, Learn, ToAll, ToPeer
from infobus.protocols.frames import guaranteed as wire
from infobus.protocols.frames.guaranteed import (
    Durable,
    Fetch,
    Kept,
    Ledgers,
    NamePlace,
    NameProgress,
    NameRefused,
    SiteName,
)
from infobus.protocols.guaranteed import consumer
from infobus.protocols.guaranteed.consumer import DurableConsumer
from infobus.protocols.guaranteed.effects import (
    EXPIRED,
    TOO_OFTEN,
    Bury,
    ConsumerTerms,
    HandOver,
    LostForGood,
    Rewound,
    Save,
    UsedElsewhere,
)
from infobus.protocols.guaranteed.position import Saved
from tests.protocols.ledgers import entry

WALL_AHEAD_S = 500.0


class Using:
    """A durable consumer whose effects are noted; what is saved outlives it."""

    def __init__(self, disk=None, **options):
        terms = options.pop("terms", {})
        self.disk = {} if disk is None else disk
        self.consumer = DurableConsumer(
            node="me",
            name="billing",
            session=1,
            patterns=[">"],
            registered_at=1.0,
            terms=ConsumerTerms(**terms),
            saved=dict(self.disk),
            **options,
        )
        self.now_s = 0.0
        self.log = []
        self.do(self.consumer.start(0.0, WALL_AHEAD_S))

    def do(self, effects):
        self.effects = effects
        self.log += effects
        for effect in effects:
            if isinstance(effect, Save):
                self.disk[effect.ledger] = effect.saved
        return effects

    def take(self, message):
        return self.do(self.consumer.take(message, self.now_s))

    def serve(self, ledger="L", server="server"):
        return self.take(Ledgers(server, [ledger]))

    def answer(self, after, upto, *entries, ledger="L", **more):
        given = [one if isinstance(one, wire.Entry) else entry(one) for one in entries]
        return self.take(Kept("server", "billing", 1, ledger, after, upto, given, **more))

    def refuse(self, why, ledger="L", server="server", detail=""):
        return self.take(NameRefused(server, "billing", 1, ledger, why, detail))

    def settle(self, number, ledger="L"):
        return self.do(self.consumer.settled(ledger, number, self.now_s))

    def nack(self, number, ledger="L"):
        return self.do(self.consumer.nacked(ledger, number, self.now_s))

    def wait(self, seconds):
        self.now_s += seconds
        return self.do(self.consumer.tick(self.now_s, self.now_s + WALL_AHEAD_S))

    def all(self, kind, effects=None):
        return [one for one in (self.log if effects is None else effects) if type(one) is kind]

    @property
    def delivered(self):
        return [given.entry.number for given in self.all(HandOver)]

    def asked(self):
        """What the last call asked for."""
        sent = [one.message for one in self.effects if isinstance(one, ToPeer)]
        return [message for message in sent if isinstance(message, Fetch)]


def asking(**options):
    using = Using(**options)
    using.serve()
    return using


class TestAsking:
    def test_begins_by_making_itself_known(self):
        using = Using(where="n > 1", test=True)
        told = Durable("me", "billing", 1, [">"], "n > 1", 1.0, True)
        assert using.effects == [ToAll(told)]
        assert using.do(using.consumer.peer_up("late")) == [ToPeer("late", told)]
        assert using.wait(4.9) == []
        assert using.wait(0.1) == [ToAll(told)]

    def test_a_ledger_that_is_new_is_asked_to_say_where_to_begin(self):
        using = Using()
        using.serve()
        (fetch,) = using.asked()
        assert (fetch.ledger, fetch.after, fetch.settled) == ("L", -1, -1)
        assert using.serve() == []  # there is one question at a time

    def test_goes_on_from_what_was_saved(self):
        using = Using(disk={"L": Saved(7)})
        using.serve()
        (fetch,) = using.asked()
        assert (fetch.after, fetch.settled) == (7, 7)

    def test_is_repeated_with_growing_pauses(self):
        using = asking()
        times = []
        for _ in range(300):
            using.wait(0.125)
            times += [using.now_s] * len(using.asked())
        pauses = [b - a for a, b in pairwise([0.0, *times])]
        assert pauses[:5] == [0.5, 1.0, 2.0, 4.0, 5.0]

    def test_an_answer_to_another_question_is_ignored(self):
        using = asking(disk={"L": Saved(7)})
        assert using.answer(5, 9, 6, 8) == []
        assert using.take(Kept("other", "billing", 1, "L", 7, 9, [entry(8)])) == []
        assert using.take(Kept("server", "billing", 2, "L", 7, 9, [entry(8)])) == []
        using.answer(7, 9, 8)
        using.answer(7, 9, 8)  # doubled
        assert using.delivered == [8]

    def test_asks_on_while_events_are_held_but_not_for_too_many(self):
        using = asking(terms={"held_count_max": 8})  # a share of four
        assert using.asked()[0].credit_count == 4
        using.answer(-1, 3, 1, 2, 3)
        assert using.asked() == []  # more than half of the share is held
        using.settle(1)
        (fetch,) = using.asked()
        assert (fetch.after, fetch.settled, fetch.credit_count) == (3, 1, 2)

    def test_more_than_was_asked_for_is_cut_and_asked_for_again(self):
        using = asking(terms={"held_count_max": 3})
        using.answer(-1, 9, *range(1, 10))
        assert using.consumer.held_count == 3
        for number in range(1, 4):
            using.settle(number)
        (fetch,) = using.asked()
        assert (fetch.after, fetch.settled) == (3, 3)

    def test_does_not_ask_in_vain_while_another_ledger_has_all_the_room(self):
        using = asking(terms={"held_bytes_max": 100}, ordered=False)
        using.answer(-1, 1, 1)
        using.serve("M")
        using.answer(-1, 1, entry(1, body=bytes(200)), ledger="M")
        using.answer(1, 2, 2)  # there is no room for it
        assert using.asked() == []
        using.settle(1, ledger="M")
        using.wait(0.1)
        assert [fetch.after for fetch in using.asked() if fetch.ledger == "L"] == [1]

    def test_one_event_larger_than_all_room_is_held_alone(self):
        using = asking(terms={"held_bytes_max": 10})
        using.answer(-1, 2, entry(1, body=b"x" * 99), entry(2))
        assert (using.delivered, using.consumer.held_count) == ([1], 1)

    def test_a_ledger_that_is_stuck_does_not_stop_the_others(self):
        using = asking(terms={"held_count_max": 10})
        using.answer(-1, 5, 1, 2, 3, 4, 5)
        using.nack(1)
        using.serve("M")
        (fetch,) = using.asked()
        assert fetch.credit_count >= 1
        using.answer(-1, 1, 1, ledger="M")
        assert using.all(HandOver)[-1].ledger == "M"

    def test_progress_is_told_even_if_nothing_more_comes(self):
        using = asking()
        using.answer(-1, 1, 1)
        (fetch,) = using.asked()
        assert (fetch.after, fetch.settled) == (1, 0)
        using.settle(1)
        assert using.asked() == []
        told = [
            fetch.settled for _ in range(12) for _ in [using.wait(0.1)] for fetch in using.asked()
        ]
        assert 1 in told

    def test_another_node_takes_the_ledger_over(self):
        using = asking()
        using.do(using.consumer.peer_down("server"))
        assert using.wait(1.0) == []
        using.serve(server="heir")
        assert [one.peer for one in using.effects] == ["heir"]

    def test_what_the_server_forgot_is_told_again(self):
        using = asking()
        assert [type(one.message) for one in using.refuse(wire.UNKNOWN)] == [Durable]
        assert using.wait(1.0) == []  # asking again would be refused again
        using.serve()
        assert len(using.asked()) == 1

    def test_a_ledger_that_moved_is_waited_for(self):
        using = asking()
        using.refuse(wire.NOT_SERVED)
        assert using.wait(1.0) == []
        using.serve(server="heir")
        assert len(using.asked()) == 1
        using.refuse(wire.NOT_SERVED)  # late, of the former server
        assert using.consumer.streams["L"].server == "heir"

    def test_a_ledger_that_ends_before_what_was_settled_is_told_to_the_application_once(self):
        using = asking(disk={"L": Saved(7)})
        assert using.refuse(wire.BEYOND, server="stranger") == []
        assert using.refuse(wire.BEYOND, detail="it ends at 3") == [Rewound("L", 7, "it ends at 3")]
        using.serve()  # it is asked again, and refuses again
        assert using.refuse(wire.BEYOND, detail="it ends at 3") == []

    @pytest.mark.parametrize("why", [wire.TOO_MANY, "a newer reason"])
    def test_other_refusals_are_complained_about(self, why):
        using = asking()
        (complaint,) = using.refuse(why, detail="because")
        assert isinstance(complaint, Complain) and "because" in complaint.what

    def test_no_more_ledgers_are_followed_than_stated(self):
        using = Using(terms={"ledgers_count_max": 2})
        using.take(Ledgers("server", ["a", "b", "c", "d"]))
        assert sorted(using.consumer.streams) == ["a", "b"]
        assert isinstance(using.effects[-1], Complain)


class TestOrder:
    def test_the_next_event_comes_when_the_one_before_is_settled(self):
        using = asking()
        using.answer(-1, 5, 2, 3, 5)
        assert using.delivered == [2]
        using.settle(2)
        using.settle(3)
        assert using.delivered == [2, 3, 5]

    def test_ledgers_do_not_wait_for_each_other(self):
        using = asking()
        using.serve("M")
        using.answer(-1, 2, 1, 2)
        using.answer(-1, 2, 1, 2, ledger="M")
        assert [given.ledger for given in using.all(HandOver)] == ["L", "M"]

    def test_a_nacked_event_holds_those_after_it_and_comes_again(self):
        using = asking()
        using.answer(-1, 2, 1, 2)
        using.nack(1)
        using.wait(0.05)
        assert using.delivered == [1]
        using.wait(0.05)
        assert using.delivered == [1, 1]
        assert using.all(HandOver)[-1].deliveries == 2
        using.settle(1)
        assert using.delivered == [1, 1, 2]

    def test_without_order_the_others_go_on(self):
        using = asking(ordered=False, terms={"out_count_max": 2})
        using.answer(-1, 4, 1, 2, 3, 4)
        assert using.delivered == [1, 2]
        using.nack(1)
        using.settle(2)
        assert using.delivered == [1, 2, 3, 4]
        using.settle(4)
        using.wait(0.1)
        assert using.delivered == [1, 2, 3, 4, 1]
        assert using.disk["L"].position == 0
        assert using.disk["L"].above == {2, 4}

    def test_without_order_not_too_much_is_settled_out_of_turn(self):
        using = asking(ordered=False, terms={"above_count_max": 3, "held_count_max": 4})
        after, last = -1, 0
        while using.asked():
            last += 1
            using.answer(after, last, last)
            after = last
            if last > 1:
                using.settle(last)
        assert last <= 5  # the first is not settled, so no more are asked for
        using.settle(1)
        assert len(using.asked()) == 1

    def test_it_has_been_settled_out_of_turn_before_the_restart(self):
        using = asking(disk={"L": Saved(1, frozenset({3, 4}), {2: 1})}, ordered=False)
        using.answer(1, 5, 2, 3, 4, 5)
        assert [(d.entry.number, d.deliveries) for d in using.all(HandOver)] == [(2, 2), (5, 1)]


class TestDeadLetters:
    def test_come_after_the_stated_number_of_deliveries_and_growing_pauses(self):
        using = asking(terms={"deliveries_max": 4, "pause_s": 0.125})
        using.answer(-1, 2, 1, 2)
        times = []
        while not using.all(Bury):
            times.append(using.now_s)
            using.nack(1)
            while using.consumer.out_count == 0 and not using.all(Bury):
                using.wait(0.125)
        assert [b - a for a, b in pairwise(times)] == [0.125, 0.25, 0.5]
        (dead,) = using.all(Bury)
        assert (dead.ledger, dead.entry.number, dead.deliveries, dead.why) == ("L", 1, 4, TOO_OFTEN)
        assert using.delivered == [1] * 4
        using.do(using.consumer.dead_lettered("L", 1, using.now_s))
        assert using.delivered == [1] * 4 + [2]
        using.wait(0.1)
        assert using.disk["L"].position == 1

    def test_that_could_not_be_published_are_tried_again(self):
        using = asking(terms={"deliveries_max": 1})
        using.answer(-1, 1, 1)
        using.nack(1)
        using.do(using.consumer.dead_letter_failed("L", 1, using.now_s))
        using.wait(0.1)
        assert (len(using.all(Bury)), using.delivered) == (2, [1])

    def test_are_events_past_their_age_limit(self):
        using = asking()
        using.answer(-1, 2, entry(1, expires=WALL_AHEAD_S), entry(2, expires=WALL_AHEAD_S + 1))
        (dead,) = using.all(Bury)
        assert (dead.entry.number, dead.why) == (1, EXPIRED)
        using.do(using.consumer.dead_lettered("L", 1, 0.0))
        assert using.delivered == [2]

    def test_a_nacked_event_is_one_when_its_age_limit_comes(self):
        using = asking(terms={"pause_s": 20.0})
        using.answer(-1, 1, entry(1, expires=WALL_AHEAD_S + 1))
        using.nack(1)
        using.wait(0.9)
        assert using.all(Bury) == []
        using.wait(0.1)
        assert [dead.why for dead in using.all(Bury)] == [EXPIRED]

    def test_an_event_that_kills_the_process_becomes_one_and_its_neighbours_do_not(self):
        disk, killed = {}, 0
        for _ in range(10):
            using = asking(disk=disk)
            position = disk.get("L", Saved()).position
            using.answer(position, 9, *(n for n in range(1, 10) if n > position))
            while using.consumer.out_count:
                number = using.delivered[-1]
                if number == 3:
                    killed += 1
                    break
                using.settle(number)
            if using.all(Bury):
                break
        (dead,) = using.all(Bury)
        assert (dead.entry.number, killed) == (3, 5)


class TestSaving:
    def test_is_done_before_progress_is_told(self):
        using = asking()
        using.answer(-1, 3, 3)
        kinds = [type(one) for one in using.effects]
        assert kinds.index(Save) < kinds.index(ToPeer)
        assert using.disk["L"].position == 2  # those before it are not for this consumer

    def test_is_done_at_the_next_tick_or_when_asked_for(self):
        using = asking(terms={"careful_s": 0.0})
        using.answer(-1, 3, 1, 2, 3)
        using.settle(1)
        assert using.disk["L"].position == 0
        using.wait(0.1)
        assert using.disk["L"].position == 1
        using.settle(2)
        using.do(using.consumer.save())
        assert using.disk["L"].position == 2

    def test_a_second_delivery_is_counted_before_it_is_made(self):
        using = asking(terms={"careful_s": 0.0})
        using.answer(-1, 1, 1)
        using.nack(1)
        using.wait(0.1)
        assert [type(one) for one in using.effects][-2:] == [Save, HandOver]
        assert using.disk["L"].deliveries == {1: 2}

    def test_what_is_gone_is_reported_and_saved(self):
        using = asking(disk={"L": Saved(3)})
        using.answer(3, 9, 8, gone=(4, 6))
        assert using.all(LostForGood) == [LostForGood("L", 4, 6)]
        assert using.disk["L"].position == 7
        assert using.delivered == [8]

    def test_types_are_learnt_before_events_of_them_come(self):
        using = asking()
        using.answer(-1, 1, 1, descriptors=[b"type"])
        assert isinstance(using.effects[0], Learn)


class TestNames:
    def test_one_that_is_really_used_elsewhere_is_reported_once(self):
        using = asking(terms={"patience_s": 30.0})
        for _ in range(70):
            using.refuse(wire.IN_USE, ledger="", detail="rival")
            using.wait(1.0)
        assert using.all(UsedElsewhere) == [UsedElsewhere("rival")]

    def test_one_whose_former_user_has_just_died_is_not_reported(self):
        using = asking(terms={"patience_s": 30.0})
        using.refuse(wire.IN_USE, detail="former self")
        using.wait(15.0)
        using.serve()
        using.wait(60.0)
        assert using.all(UsedElsewhere) == []

    def test_one_is_given_back_and_then_nothing_happens_any_more(self):
        using = asking()
        using.answer(-1, 2, 1, 2)
        using.settle(1)
        effects = using.do(using.consumer.close())
        assert effects[-1] == ToAll(Durable("me", "billing", 1, []))
        assert using.disk["L"].position == 1
        assert using.settle(2) == using.serve("M") == using.wait(9.0) == []
        assert using.consumer.peer_up("late") == []


class TestNonsense:
    @pytest.mark.parametrize(
        "kept",
        [
            Kept("server", "billing", 1, "L", 7, 7),
            Kept("server", "billing", 1, "L", 7, 3),
            Kept("server", "billing", 1, "L", 7, 9, [entry(7)]),
            Kept("server", "billing", 1, "L", 7, 9, [entry(9), entry(8)]),
            Kept("server", "billing", 1, "L", 7, 9, [entry(8), entry(8)]),
            Kept("server", "billing", 1, "L", 7, 9, [entry(10)]),
            Kept("server", "billing", 1, "L", 7, 9, [entry(8)], gone=(8, 8)),
            Kept("server", "billing", 1, "L", 7, 9, gone=(7, 8)),
            Kept("server", "billing", 1, "L", 7, 9, gone=(9, 8)),
            Kept("server", "billing", 1, "L", 7, 9, gone=(8, 10)),
        ],
    )
    def test_an_answer_that_makes_no_sense_changes_nothing(self, kept):
        using = asking(disk={"L": Saved(7)})
        (complaint,) = using.take(kept)
        assert isinstance(complaint, Complain)
        using.answer(7, 9, 8)
        assert using.delivered == [8]

    def test_settling_what_was_never_delivered_changes_nothing(self):
        using = asking()
        using.answer(-1, 2, 1, 2)
        for number, ledger in [(2, "L"), (9, "L"), (1, "M")]:
            assert using.settle(number, ledger) == using.nack(number, ledger) == []
        using.settle(1)
        assert using.settle(1) == []
        assert using.consumer.dead_lettered("L", 2, 0.0) == []
        assert using.delivered == [1, 2]


NUMBERS = st.integers(1, 12)
STEPS = st.one_of(
    st.builds(lambda n: ("settle", n), NUMBERS),
    st.builds(lambda n: ("nack", n), NUMBERS),
    st.builds(lambda s: ("wait", s), st.sampled_from([0.1, 1.0, 40.0])),
    st.builds(
        lambda after, upto, entries, gone: ("answer", after, upto, *entries, gone),
        st.integers(-1, 8),
        st.integers(0, 12),
        st.lists(NUMBERS, max_size=5).map(sorted),
        st.none() | st.tuples(NUMBERS, NUMBERS),
    ),
    st.builds(lambda why: ("refuse", why), st.sampled_from(["unknown", "in use", "beyond", ""])),
    st.just(("serve",)),
    st.just(("bury",)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_whatever_comes_positions_grow_and_nothing_settled_comes_again(steps, ordered):
    using = asking(ordered=ordered, terms={"held_count_max": 4, "out_count_max": 3})
    done = set()
    position = -1
    for name, *arguments in steps:
        if name == "bury":
            for dead in using.all(Bury):
                if dead.entry.number not in done:
                    done.add(dead.entry.number)
                    number = dead.entry.number
                    using.do(using.consumer.dead_lettered("L", number, using.now_s))
        elif name == "answer":
            *arguments, gone = arguments
            using.answer(*arguments, gone=gone)
        else:
            if name == "settle" and arguments[0] in using.consumer.streams["L"].out:
                done.add(arguments[0])
            getattr(using, name)(*arguments)
        again = {given.entry.number for given in using.all(HandOver, using.effects)} & done
        assert not again
        saved = using.disk.get("L", Saved())
        assert saved.position >= position
        position = saved.position
        assert using.consumer.held_count <= 5
        assert using.consumer.out_count <= (1 if ordered else 3)


def test_messages_survive_the_wire():
    for message in [
        Durable("n", "billing", 1, ["a.>"], "n > 1", 2.5, True),
        Ledgers("n", ["L", "M"]),
        Fetch("n", "billing", 1, "L", -1, -1, 10, 1000),
        Kept("n", "billing", 1, "L", -1, 4, [entry(3, expires=9.5)], (1, 2), [b"type"]),
        NameRefused("n", "billing", 1, "", wire.IN_USE, "other"),
    ]:
        payload = msgspec.msgpack.encode(message)
        assert msgspec.msgpack.decode(payload, type=wire.GuaranteedMessage) == message


class TestWhereTheSiteHasKeepers:
    def asks(self, using):
        return [one.message for one in using.log if isinstance(getattr(one, "message", 0), Fetch)]

    def progress(self, effects):
        return [one for one in effects if isinstance(getattr(one, "message", 0), NameProgress)]

    def test_it_goes_on_where_another_use_of_the_name_has_come_to(self):
        using = Using(keepers={"keeper"})
        using.serve()
        assert not self.asks(using)
        using.take(SiteName("keeper", "billing", 1, "", {"L": NamePlace(7, [9])}))
        (fetch,) = self.asks(using)
        assert (fetch.after, fetch.settled) == (7, 7)
        assert using.disk["L"] == Saved(7, frozenset({9}))
        using.answer(7, 9, 8, 9)
        assert [one.entry.number for one in using.log if isinstance(one, HandOver)] == [8]

    def test_what_it_knows_better_stays(self):
        using = Using(disk={"L": Saved(12)}, keepers={"keeper"})
        using.serve()
        using.take(SiteName("keeper", "billing", 1, "", {"L": NamePlace(7, [9])}))
        assert using.disk["L"] == Saved(12)
        assert [one.after for one in self.asks(using)] == [12]

    def test_keepers_that_do_not_answer_are_not_waited_for_long(self):
        using = Using(keepers={"keeper", "other"})
        using.serve()
        using.take(SiteName("keeper", "billing", 1))
        assert not self.asks(using)
        using.wait(0.6)
        assert [one.after for one in self.asks(using)] == [-1]

    def test_nor_are_those_that_have_gone(self):
        using = Using(keepers={"keeper"})
        using.serve()
        using.do(using.consumer.peer_down("keeper"))
        using.wait(0.1)
        assert self.asks(using)

    def test_a_word_that_comes_too_late_changes_nothing(self):
        using = Using()
        using.serve()
        using.take(SiteName("keeper", "billing", 1, "", {"L": NamePlace(7)}))
        assert [one.after for one in self.asks(using)] == [-1]
        assert "L" not in using.disk

    def test_a_name_in_use_is_reported_once_and_at_once(self):
        using = Using(keepers={"keeper", "other"})
        using.take(SiteName("keeper", "billing", 1, "somebody"))
        using.take(SiteName("other", "billing", 1, "somebody"))
        assert using.log.count(UsedElsewhere("somebody")) == 1

    def test_they_are_told_what_is_on_disk_and_nothing_else(self):
        using = Using(keepers={"keeper"})
        using.take(SiteName("keeper", "billing", 1))
        using.serve()
        using.answer(-1, 3, 1, 2, 3)
        using.settle(1)
        told = self.progress(using.wait(0.1))
        assert [(one.peer, one.message.places) for one in told] == [("keeper", {"L": NamePlace(1)})]
        assert using.disk["L"].position == 1
        assert not self.progress(using.wait(0.1))
        using.settle(2)
        closing = using.do(using.consumer.close())
        assert self.progress(closing)[0].message.places == {"L": NamePlace(2)}
        assert using.disk["L"].position == 2

    def test_one_that_comes_later_is_told_everything(self):
        using = Using(disk={"L": Saved(12), "M": Saved(3)})
        using.take(SiteName("keeper", "billing", 1))
        (told,) = self.progress(using.wait(0.1))
        assert told.message.places == {"L": NamePlace(12), "M": NamePlace(3)}

    def test_of_very_many_ledgers_each_is_told_in_its_turn(self, monkeypatch):
        monkeypatch.setattr(consumer, "LEDGERS_TOLD_COUNT_MAX", 2)
        using = Using(disk={name: Saved(1) for name in "LMN"}, keepers={"keeper"})
        using.take(SiteName("new", "billing", 1))
        told = [self.progress(using.wait(0.1))[0].message.places for _ in range(2)]
        assert [sorted(places) for places in told] == [["L", "M"], ["N"]]


def of(number, site_number, subject="orders.new", body=b"\x80"):
    """What a router keeps of an event of another site."""
    return msgspec.structs.replace(
        entry(number, subject, body), origin=("far", site_number, "north")
    )


def handed(using):
    return [(e.ledger, e.entry.number) for e in using.log if isinstance(e, HandOver)]


def test_what_two_ledgers_keep_of_another_site_is_delivered_once():
    """Whichever came first; and the other copy counts as settled."""
    using = Using(ordered=False)
    using.serve("L"), using.serve("M")
    using.answer(-1, 2, of(1, 7), of(2, 8), ledger="L")
    using.answer(-1, 3, of(1, 8), of(2, 9), of(3, 10), ledger="M")
    using.answer(2, 3, of(3, 9), ledger="L")
    assert handed(using) == [("L", 1), ("L", 2), ("M", 2), ("M", 3)]
    for ledger, number in handed(using):
        using.settle(number, ledger)
    using.wait(1.0)
    assert (using.disk["L"].position, using.disk["M"].position) == (3, 3)


def test_parts_of_one_event_that_differ_are_no_doubles():
    using = Using(ordered=False)
    using.serve("L"), using.serve("M")
    using.answer(-1, 1, of(1, 7, body=b"\x81"), ledger="L")
    using.answer(-1, 2, of(1, 7, body=b"\x82"), of(2, 7, "stock"), ledger="M")
    assert handed(using) == [("L", 1), ("M", 1), ("M", 2)]
