"""Members as plain values: what they refuse, what they keep, and what they tell programs."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.effects import Complain, ToPeer
from infobus.protocols.frames.membership import (
    Accept,
    AreYouAlive,
    Ballot,
    Candidate,
    Commit,
    Decide,
    Decided,
    Follow,
    GroupLabel,
    Here,
    Join,
    NewView,
    NumberedView,
    OperationRequest,
    Prepare,
    Promised,
    Propose,
    Said,
    Snapshot,
    ViewsTold,
    decode_membership,
)
from infobus.protocols.membership.effects import Answered, Installed, SaveState
from infobus.protocols.membership.follower import ToldState, ToldView, ViewFollower
from infobus.protocols.membership.groups import founded_group, goes_on, lone_group
from infobus.protocols.membership.member import GroupMember
from infobus.protocols.membership.primaries import (
    MALFORMED,
    CandidateEntry,
    PrimaryTable,
    entering,
    withdrawing,
)
from infobus.protocols.membership.reception import Reception
from infobus.protocols.membership.sequence import RESULTS_BYTES_MAX, AgreedSequence
from infobus.protocols.membership.terms import MembershipTerms

ALONE = MembershipTerms(heartbeat_s=1.0)


class Log:
    """A table that only counts."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def apply(self, slot: int, operation: bytes) -> bytes:
        self.entries.append(operation)
        return operation * 2

    def view(self, slot: int, members: tuple[str, ...]) -> None:
        pass

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.entries)

    def restore(self, state: bytes) -> None:
        self.entries = msgspec.msgpack.decode(state, type=list[bytes]) if state else []


def member(
    name: str, terms: MembershipTerms = ALONE, saved: Any = (), **tables: Any
) -> GroupMember:
    return GroupMember(f"node-{name}", name, terms, tables, dict(saved), 7, 0.0)


def alone(**tables: Any) -> GroupMember:
    """A member that has begun a group by itself."""
    one = member("oak", **tables)
    for tenths in range(40):
        one.tick(tenths / 10)
    assert one.seat.sequence.members == (one.id,)
    return one


FOUNDERS = MembershipTerms(founders=("ash", "elm", "oak"))
GROUP, MEMBERS = founded_group(FOUNDERS.founders)


def said(body: Any, by: str = "ash#0", slot: int = 0, to: str = "", **other: Any) -> Said:
    name = by.partition("#")[0]
    return Said(f"node-{name}", by, to, other.get("group", GROUP), slot, body)


def bodies(effects: list[Any]) -> list[Any]:
    return [one.message.body for one in effects if isinstance(one, ToPeer)]


class TestAnAcceptor:
    def test_has_on_disk_what_it_says(self) -> None:
        elm = member("elm", FOUNDERS)
        elm.peer_up("node-ash", 0.0)
        ballot = Ballot(0, "ash#0")
        effects = elm.take(said(Propose(ballot, NewView(MEMBERS))), 0.1)
        assert isinstance(effects[0], SaveState) and bodies(effects) == [Accept(ballot)]

    def test_remembers_after_a_restart_what_it_accepted(self) -> None:
        elm, disk = member("elm", FOUNDERS), {}
        ballot, view = Ballot(0, "ash#0"), NewView(MEMBERS)
        for effects in (elm.begin(), elm.take(said(Propose(ballot, view)), 0.1)):
            for one in effects:
                if isinstance(one, SaveState):
                    disk.update(one.changes)
        again = member("elm", FOUNDERS, disk)
        told = again.take(said(Prepare(Ballot(1, "oak#0")), by="oak#0"), 9.0)
        assert [one.accepted for one in bodies(told)] == [(ballot, view)]

    def test_does_not_follow_another_while_it_hears_the_leader(self) -> None:
        elm = member("elm", FOUNDERS)
        elm.take(said(AreYouAlive(Ballot(0, "ash#0"), 1)), 1.0)
        prepare = said(Prepare(Ballot(1, "oak#0")), by="oak#0")
        assert bodies(elm.take(prepare, 1.0 + 0.99 * FOUNDERS.loyal_s)) == []
        [promised] = bodies(elm.take(prepare, 1.0 + FOUNDERS.suspect_s))
        assert isinstance(promised, Promised) and promised.unheard_s == FOUNDERS.suspect_s

    def test_hears_no_leader_with_a_lower_ballot(self) -> None:
        elm = member("elm", FOUNDERS)
        elm.take(said(Prepare(Ballot(1, "oak#0")), by="oak#0"), 5.0)
        assert bodies(elm.take(said(AreYouAlive(Ballot(0, "ash#0"), 1)), 5.1)) == []

    def test_that_has_forgotten_what_it_was_joins_anew(self) -> None:
        """A founder that has lost its disk must not decide a second time."""
        elm = member("elm", FOUNDERS)
        elm.take(said(AreYouAlive(Ballot(0, "ash#0"), 1), slot=3), 0.1)
        assert elm.id == "elm#7" and not elm.seat.is_member


class TestOperations:
    def test_are_applied_once_however_often_they_are_requested(self) -> None:
        log = Log()
        one = alone(log=log)
        request = OperationRequest("r1", "log", b"x")
        for _ in range(3):
            effects = one.request(request, 5.0)
            assert Answered("r1", b"xx") in effects
        assert log.entries == [b"x"]

    def test_of_an_unknown_table_are_answered(self) -> None:
        assert Answered("r", b"") in alone().request(OperationRequest("r", "none", b"x"), 5.0)

    def test_leave_results_that_are_bounded(self) -> None:
        log = Log()
        one = alone(log=log)
        for number in range(100):
            one.request(OperationRequest(f"r{number}", "log", bytes(60_000)), 5.0)
        kept = sum(map(len, one.seat.sequence.results.values()))
        assert RESULTS_BYTES_MAX // 2 < kept <= RESULTS_BYTES_MAX

    def test_are_known_to_a_restarted_member(self) -> None:
        one, disk = member("oak", log=Log()), {}
        steps = [one.begin(), *(one.tick(tenths / 10) for tenths in range(40))]
        steps += [one.request(OperationRequest(f"r{n}", "log", b"%d" % n), 5.0) for n in range(600)]
        for change in (one for effects in steps for one in effects if isinstance(one, SaveState)):
            for key, value in change.changes.items():
                disk.pop(key, None) if value is None else disk.update({key: value})
        log = Log()
        again = member("oak", ALONE, disk, log=log)
        assert again.id == one.id and log.entries[-1] == b"599" and len(log.entries) == 600
        assert sum(key.startswith("decision/") for key in disk) <= 256


def test_a_snapshot_that_is_none_lets_nobody_in() -> None:
    joiner = member("fir")
    body = Snapshot((joiner.id,), {}, b"\xc1rubbish")
    effects = joiner.take(said(body, to=joiner.id), 0.1)
    assert [one for one in effects if isinstance(one, Complain)] and not joiner.seat.is_member


def test_two_members_of_one_name_are_told_so() -> None:
    one = alone()
    stranger = "oak#9"
    for number in range(1, 5):
        join = Said("node-far", stranger, "", GroupLabel(), 0, Join(number, number - 1, True))
        one.take(join, 4.0 + number / 10)
    effects = one.tick(4.9)
    assert any(isinstance(effect, Complain) and "'oak'" in effect.what for effect in effects)
    assert one.seat.sequence.members == (one.id,)


class TestGroupsThatMeet:
    def test_dissolve_the_smaller_one(self) -> None:
        one = alone()
        larger = lone_group(99, "elm#1")
        effects = one.take(said(Here(5), by="elm#1", slot=9, group=larger), 5.0)
        assert not one.seat.is_member and one.id == "oak#8"
        assert not [e for e in effects if isinstance(e, Installed)]

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 4)), min_size=2))
    def test_agree_on_which_that_is(self, drawn: list[tuple[bool, int, int]]) -> None:
        groups = []
        for number, (founded, era, size) in enumerate(drawn):
            base = founded_group((f"m{number % 2}",))[0] if founded else lone_group(number, "a#1")
            groups.append((GroupLabel(base.birth, era, f"maker{number}"), size))
        for mine, size in groups:
            for other, other_size in groups:
                if mine != other:
                    mine_goes = goes_on(mine, size, other, other_size)
                    assert mine_goes != goes_on(other, other_size, mine, size)


class TestPrimaries:
    def entered(self, *candidates: tuple[str, int, str]) -> PrimaryTable:
        table = PrimaryTable()
        table.view(0, ("oak#0", "elm#0"))
        for id, rank, home in candidates:
            table.apply(1, entering(CandidateEntry(id, "svc", rank, home)))
        return table

    def test_stay_until_they_are_gone_whatever_rank_comes(self) -> None:
        table = self.entered(("a", 0, "oak#0"), ("b", 5, "elm#0"), ("c", 9, "elm#0"))
        assert table.is_primary("a")
        table.apply(2, withdrawing("a", "oak#0"))
        assert table.is_primary("c")

    def test_stay_when_an_older_wish_of_another_member_comes_late(self) -> None:
        table = self.entered(("a", 0, "oak#0"), ("b", 0, "elm#0"))
        table.apply(2, withdrawing("a", "elm#0"))
        assert table.is_primary("a")

    def test_go_with_their_members(self) -> None:
        table = self.entered(("a", 0, "oak#0"), ("b", 0, "elm#0"))
        table.view(2, ("elm#0",))
        assert table.is_primary("b") and "a" not in table.entries

    def test_do_not_enter_by_a_member_that_has_gone(self) -> None:
        table = self.entered(("a", 0, "fir#9"))
        assert not table.entries

    def test_travel_in_snapshots(self) -> None:
        table = self.entered(("a", 0, "oak#0"), ("b", 0, "elm#0"))
        copy = PrimaryTable()
        copy.restore(table.snapshot())
        assert copy.snapshot() == table.snapshot() and copy.is_primary("a")

    @given(st.binary(max_size=60))
    def test_take_no_harm_from_any_bytes(self, operation: bytes) -> None:
        table = self.entered(("a", 0, "oak#0"))
        before = table.snapshot()
        if table.apply(1, operation) == MALFORMED:
            assert table.snapshot() == before


class TestAReception:
    def begin(self) -> Reception:
        primaries = PrimaryTable()
        return Reception(alone(primaries=primaries), primaries, list)

    def ask(self, reception: Reception, now_s: float, **options: Any) -> ViewsTold:
        follow = Follow("app", int(now_s * 10), GroupLabel(), 0, **options)
        told = [one.message for one in reception.take(follow, now_s) if isinstance(one, ToPeer)]
        return next(one for one in told if isinstance(one, ViewsTold) and one.number)

    def test_tells_a_program_the_view_and_how_long_it_is_stable(self) -> None:
        reception = self.begin()
        reception.tick(4.0)
        told = self.ask(reception, 4.1)
        assert told.views[-1].members == (reception.member.id,)
        assert 0 < told.left_s <= ALONE.lease_s

    def test_lets_no_hung_program_be_primary(self) -> None:
        reception = self.begin()
        candidates = [Candidate("app/1", "svc")]
        reception.tick(4.0)
        self.ask(reception, 4.1, candidates=candidates)
        told = self.ask(reception, 4.2, candidates=candidates)
        assert told.primary_of == ["app/1"]
        hung = self.ask(reception, 4.3, candidates=candidates, heard_s=9.0, for_s=2.0)
        assert hung.primary_of == []
        granted_s = 4.2 + told.left_s
        for tenths in range(44, 90):
            reception.tick(tenths / 10)
            if tenths / 10 < granted_s:  # its lease is not over: nobody else may follow
                assert reception.member.seat.sequence.tables["primaries"].is_primary("app/1")
        assert not reception.member.seat.sequence.tables["primaries"].is_primary("app/1")

    def test_has_the_operations_of_programs_decided(self) -> None:
        reception = self.begin()
        request = OperationRequest("app:1", "primaries", b"nonsense")
        effects = reception.take(Decide("app", request), 5.0)
        assert ToPeer("app", Decided("node-oak", "app:1", MALFORMED)) in effects


class TestAFollower:
    def follow(self) -> ViewFollower:
        follower = ViewFollower("app-1-x", "")
        follower.peer_up("oak-1-y", 0.0)
        return follower

    def views(self, number: int, *views: int, left_s: float = 1.0, **options: Any) -> ViewsTold:
        told = [NumberedView(n, ("oak#0",)) for n in views]
        is_anew = options.pop("is_anew", False)
        return ViewsTold("oak-1-y", number, "oak#0", GROUP, 0, told, is_anew, left_s, "", 1.0)

    def test_counts_a_lease_from_its_question(self) -> None:
        follower = self.follow()
        effects = follower.take(self.views(1, 1, is_anew=True), 0.7)
        assert [one.number for one in effects if isinstance(one, ToldView)] == [1]
        assert [one.until_s for one in effects if isinstance(one, ToldState)] == [1.0]

    def test_asks_when_a_view_was_lost_on_the_way(self) -> None:
        follower = self.follow()
        follower.take(self.views(1, 1, is_anew=True), 0.1)
        effects = follower.take(self.views(0, 3), 0.2)
        assert not [one for one in effects if isinstance(one, ToldView)]
        assert [one.message.after for one in effects if isinstance(one, ToPeer)] == [1]

    def test_has_no_lease_for_a_view_that_it_was_only_told_of(self) -> None:
        follower = self.follow()
        follower.take(self.views(1, 1, is_anew=True), 0.1)
        effects = follower.take(self.views(0, 2), 0.2)
        assert [one.until_s for one in effects if isinstance(one, ToldState)] == [-math.inf]

    def test_changes_to_another_member_when_its_own_is_silent(self) -> None:
        follower = self.follow()
        follower.peer_up("elm-1-z", 0.0)
        effects = [one for s in range(1, 8) for one in follower.tick(float(s))]
        asked = {one.peer for one in effects if isinstance(one, ToPeer)}
        assert asked == {"oak-1-y", "elm-1-z"}


@pytest.mark.parametrize(
    "by",
    ["oak", "oak#", "oak#x", "o k#1", "oak#1\n", "#1", "x" * 65 + "#1", "oak#" + "1" * 17],
)
def test_a_member_of_a_bad_name_is_not_heard(by: str) -> None:
    frame = msgspec.msgpack.encode(said(Here(1), by=by))
    with pytest.raises(BadFrame):
        decode_membership(frame)


@given(st.binary(max_size=80))
def test_no_bytes_harm_the_reader(payload: bytes) -> None:
    with contextlib.suppress(BadFrame):
        decode_membership(b"\x96\x32" + payload)


@given(st.data())
def test_no_frame_harms_a_member(data: st.DataObject) -> None:
    """Whatever a stranger says, in whatever group and at whatever slot: it answers or is silent."""
    one = alone()
    label = st.sampled_from([one.seat.sequence.group, GROUP, GroupLabel()])
    ids = st.sampled_from([one.id, "ash#0", "elm#3"])
    ballots = st.builds(Ballot, st.integers(0, 2**53), ids)
    views = st.builds(NewView, st.lists(ids, min_size=1, max_size=3).map(tuple))
    body = st.one_of(
        st.builds(AreYouAlive, ballots, st.integers(0, 2**53)),
        st.builds(Prepare, ballots),
        st.builds(Promised, ballots, st.none(), st.floats(-1e9, 1e9)),
        st.builds(Propose, ballots, views),
        st.builds(Accept, ballots),
        st.builds(Commit, st.integers(0, 5), st.lists(views, max_size=3)),
        st.builds(Here, st.integers(0, 2**53)),
        st.builds(Join, st.integers(0, 9), st.integers(0, 9), st.booleans()),
    )
    for number in range(data.draw(st.integers(1, 8))):
        frame = Said(
            data.draw(st.sampled_from(["node-ash", "node-x"])),
            data.draw(ids),
            data.draw(st.sampled_from(["", one.id])),
            data.draw(label),
            data.draw(st.integers(0, 2**53)),
            data.draw(body),
        )
        one.take(frame, 5.0 + number)
        one.tick(5.5 + number)


def test_members_at_a_slot_are_known_as_long_as_the_log_goes_back() -> None:
    sequence = AgreedSequence({})
    sequence.begin(GROUP, MEMBERS)
    sequence.install(NewView(MEMBERS[:2]))
    sequence.install(NewView(MEMBERS[:1]))
    assert [sequence.members_at(slot) for slot in range(3)] == [MEMBERS, MEMBERS[:2], MEMBERS[:1]]
    copy = AgreedSequence({})
    copy.restore(GROUP, 2, sequence.snapshot())
    assert copy.members_at(2) == MEMBERS[:1] and copy.members_at(0) == ()
