"""Who is there, as programs of one process see it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import infobus
from infobus import Bus, BusClosed, MembershipRole, StoreError, StoreFull, Unstable, UsageError
from infobus.stores.member_state import MemberStateFile

HEARTBEAT_S = 0.2
WAIT_S = 60.0


def wait_until(is_so: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], Bus]]:
    name, opened = f"test-{uuid.uuid4().hex}", []

    def connect() -> Bus:
        opened.append(infobus.connect(name, engine="memory", home=tmp_path / "home"))
        return opened[-1]

    yield connect
    for bus in opened:
        bus.close()


@pytest.fixture
def bus(connect: Callable[[], Bus]) -> Bus:
    return connect()


@pytest.fixture
def join(connect: Callable[[], Bus], tmp_path: Path) -> Callable[..., MembershipRole]:
    def join(name: str, bus: Bus | None = None, **options: Any) -> MembershipRole:
        options.setdefault("heartbeat_s", HEARTBEAT_S)
        return MembershipRole(bus or connect(), state=tmp_path / name, name=name, **options)

    return join


def names(view: infobus.MembersView) -> list[str]:
    return [member.partition("#")[0] for member in view.members]


def test_without_a_daemon_nobody_knows(bus: Bus) -> None:
    with pytest.raises(Unstable, match="no daemon"):
        bus.members(0.1)
    with pytest.raises(Unstable, match="no daemon"):
        bus.members.stable(0.1)


def test_a_daemon_alone_begins_a_group(bus: Bus, join: Callable[..., MembershipRole]) -> None:
    role = join("oak")
    view = bus.members.stable(WAIT_S)
    assert (names(view), view.leader, view.stable) == (["oak"], role.id, True)
    assert view.nodes == {role.id: role.bus.node}


def test_daemons_that_begin_together_are_one_group(
    bus: Bus, join: Callable[..., MembershipRole]
) -> None:
    roles = [join(name) for name in ("oak", "elm", "ash")]
    wait_until(lambda: {len(role.members) for role in roles} == {3})
    assert sorted(names(bus.members.stable(WAIT_S))) == ["ash", "elm", "oak"]


def test_a_program_is_told_each_view_in_order(
    bus: Bus, join: Callable[..., MembershipRole]
) -> None:
    told: list[Any] = []
    oak = join("oak")
    bus.members.stable(WAIT_S)
    bus.on_members(told.append)
    elm = join("elm")
    wait_until(lambda: len(elm.members) == 2)
    elm.close()
    wait_until(lambda: told and told[-1].members == (oak.id,) and told[-1].number > 2)
    numbers = [view.number for view in told]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert [names(view) for view in told][-2] == ["oak", "elm"]


def test_a_program_goes_on_with_another_daemon(
    bus: Bus, join: Callable[..., MembershipRole]
) -> None:
    founders = ("ash", "elm", "oak")
    roles = {name: join(name, founders=founders) for name in founders}
    wait_until(lambda: {len(role.members) for role in roles.values()} == {3})
    told: list[Any] = []
    bus.members.stable(WAIT_S)
    bus.on_members(told.append)
    asked = {p.node: r.member for r in bus.members.roster() for p in r.programs}[bus.node]
    roles[asked.partition("#")[0]].abandon()
    wait_until(lambda: told and asked not in told[-1].members)
    wait_until(lambda: bus.members().stable)
    numbers = [view.number for view in told if isinstance(view, infobus.MembersView)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


class TestTwoDaemons:
    @pytest.fixture
    def pair(self, join: Callable[..., MembershipRole], request: Any) -> list[MembershipRole]:
        mode = getattr(request, "param", "majority")
        senior = join("oak", mode=mode)
        wait_until(lambda: senior.is_stable)
        junior = join("elm", mode=mode)
        wait_until(lambda: len(senior.members) == len(junior.members) == 2)
        wait_until(lambda: senior.is_stable and junior.is_stable)
        return [senior, junior]

    def test_stop_deciding_when_the_senior_one_is_lost(self, pair: list[MembershipRole]) -> None:
        senior, junior = pair
        senior.abandon()
        wait_until(lambda: not junior.is_stable and "no quorum" in junior.why_unstable)
        assert len(junior.members) == 2

    def test_go_on_when_the_senior_one_leaves(self, pair: list[MembershipRole]) -> None:
        senior, junior = pair
        senior.close(WAIT_S)
        wait_until(lambda: junior.is_stable)
        assert junior.members == (junior.id,)

    @pytest.mark.parametrize("pair", ["any"], indirect=True)
    def test_go_on_without_a_majority_if_that_is_allowed(
        self, pair: list[MembershipRole], join: Callable[..., MembershipRole]
    ) -> None:
        senior, junior = pair
        senior.abandon()
        wait_until(lambda: junior.is_stable and junior.members == (junior.id,))
        again = join("oak", mode="any")  # it finds the others further on, and joins them
        wait_until(lambda: again.is_stable and again.members == (junior.id, again.id))
        assert again.id != senior.id


def test_a_primary_is_one_alone(bus: Bus, join: Callable[..., MembershipRole]) -> None:
    join("oak")
    with bus.primary("svc.ledger") as first, bus.primary("svc.ledger") as second:
        changes = iter(first.changes())
        while not next(changes):
            pass
        assert first.is_primary and not second.is_primary
        first.close()
        assert not first.is_primary and [*changes] == []
        wait_until(lambda: second.is_primary)


def test_an_operation_is_decided_on_the_table_that_was_given(
    bus: Bus, join: Callable[..., MembershipRole]
) -> None:
    class Counter:
        count = 0

        def apply(self, slot: int, operation: bytes) -> bytes:
            self.count += 1
            return b"%d" % self.count

        def view(self, slot: int, members: tuple[str, ...]) -> None:
            pass

        def snapshot(self) -> bytes:
            return b"%d" % self.count

        def restore(self, state: bytes) -> None:
            self.count = int(state or b"0")

    join("oak", table=Counter())
    assert [bus.members.decide(b"+", timeout_s=WAIT_S) for _ in range(3)] == [b"1", b"2", b"3"]


def test_a_task_awaits_the_same(bus: Bus, join: Callable[..., MembershipRole]) -> None:
    async def program() -> None:
        with pytest.raises(Unstable):
            await bus.aio.members(0.1)
        join("oak")
        assert names(await bus.aio.members.stable(WAIT_S)) == ["oak"]
        role = await bus.aio.primary("svc.ledger")
        async for is_primary in role.changes():
            if is_primary:
                break
        role.close()

    asyncio.run(program())


class TestAMemberState:
    def test_is_used_by_one_member_at_a_time(self, join: Callable[..., MembershipRole]) -> None:
        join("oak")
        with pytest.raises(StoreError, match="in use by another"):
            join("oak")

    def test_keeps_name_and_incarnation(self, connect: Callable[[], Bus], tmp_path: Path) -> None:
        first = MembershipRole(connect(), heartbeat_s=HEARTBEAT_S, state=tmp_path / "s")
        wait_until(lambda: first.is_stable)
        first.abandon()
        again = MembershipRole(connect(), heartbeat_s=HEARTBEAT_S, state=tmp_path / "s")
        assert again.id == first.id
        wait_until(lambda: again.is_stable)
        again.abandon()
        with pytest.raises(UsageError, match="belongs to a member called"):
            MembershipRole(connect(), state=tmp_path / "s", name="other")

    def test_that_cannot_be_written_silences_its_member(
        self, join: Callable[..., MembershipRole], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is said that is not on disk; the others go on, and take it back later."""
        founders = ("ash", "elm", "oak")
        roles = {name: join(name, founders=founders) for name in founders}
        wait_until(lambda: {len(role.members) for role in roles.values()} == {3})
        full, save = roles["elm"].store, MemberStateFile.save

        def fail(self: MemberStateFile, changes: Any) -> None:
            if self is full:
                raise StoreFull("no room", path="there")
            save(self, changes)

        monkeypatch.setattr(MemberStateFile, "save", fail)
        roles["ash"].bus.members.decide(b"x", timeout_s=WAIT_S)  # the disk of elm is needed now
        wait_until(lambda: len(roles["ash"].members) == 2)
        assert not roles["elm"].is_stable
        monkeypatch.setattr(MemberStateFile, "save", save)
        wait_until(lambda: {len(role.members) for role in roles.values()} == {3})


@pytest.mark.parametrize(
    "options",
    [{"heartbeat_s": 0}, {"mode": "some"}, {"founders": ("a b",)}, {"name": "no/name"}],
)
def test_wrong_settings_are_refused(bus: Bus, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        MembershipRole(bus, state=tmp_path / "s", **options)


def test_a_closed_bus_has_no_members(bus: Bus, join: Callable[..., MembershipRole]) -> None:
    join("oak", bus)
    bus.members.stable(WAIT_S)
    bus.close()
    with pytest.raises(BusClosed):
        bus.members()
