"""Members in real processes: killed, frozen, outnumbered, and started again."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes.conftest import Start
from tests.processes.programs.node import Node

BEGIN = """
import pathlib
infobus.seen = seen = []
infobus.role = infobus.MembershipRole(
    bus, heartbeat_s=0.4, state=pathlib.Path(STATE), name=NAME, founders=FOUNDERS
)
bus.on_members(lambda view: seen.append(
    [view.number, list(view.members)] if isinstance(view, infobus.MembersView) else "excluded"
))
answer = infobus.role.id
"""
NOW = "answer = [infobus.role.is_stable, list(infobus.role.members), infobus.role.why_unstable]"
SEEN = "answer = infobus.seen"
WAIT_S = 60.0


class Site:
    """Some members, each in a process."""

    def __init__(self, start: Start, folder: Path, names: str) -> None:
        self._start, self._folder, self._names = start, folder, names.split()
        self.nodes: dict[str, Node] = {}
        for name, node in [(name, start(wait=False)) for name in self._names]:
            self.begin(name, node.wait_open())

    def begin(self, name: str, node: Node | None = None) -> None:
        node = node or self._start()
        code = BEGIN.replace("STATE", repr(str(self._folder / name)))
        node("exec", code.replace("NAME", repr(name)).replace("FOUNDERS", repr(self._names)))
        self.nodes[name] = node

    def kill(self, name: str) -> None:
        self.nodes.pop(name).kill()

    def now(self, name: str) -> tuple[bool, list[str], str]:
        is_stable, members, why = self.nodes[name]("exec", NOW)
        return is_stable, [member.partition("#")[0] for member in members], why

    def wait(self, *names: str) -> None:
        """Until these agree that they are the members, stably."""
        self.wait_until(
            lambda: all(self.now(name)[:2] == (True, [*names]) for name in sorted(names)),
            lambda: {name: self.now(name) for name in names},
        )

    def wait_until(self, is_so: Callable[[], bool], show: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline_s, show()
            time.sleep(0.05)

    def check_sequences(self) -> None:
        """What every program was told: the same views by number, and none left out."""
        told: dict[int, str] = {}
        for node in self.nodes.values():
            views = node("exec", SEEN)
            for before, view in itertools.pairwise(views):
                if "excluded" not in (before, view):
                    assert view[0] == before[0] + 1, views
            for number, members in (view for view in views if view != "excluded"):
                assert told.setdefault(number, json.dumps(members)) == json.dumps(members), views


@pytest.fixture
def site(start: Start, tmp_path: Path) -> Site:
    site = Site(start, tmp_path, "ash elm oak")
    site.wait("ash", "elm", "oak")
    return site


class TestThreeMembers:
    @pytest.mark.parametrize("lost", ["ash", "oak"])  # the leader, or another one
    def test_go_on_when_one_is_killed_and_take_it_in_again(self, site: Site, lost: str) -> None:
        site.kill(lost)
        rest = [name for name in ("ash", "elm", "oak") if name != lost]
        site.wait(*rest)
        site.check_sequences()
        site.begin(lost)
        site.wait(*rest, lost)
        site.check_sequences()

    def test_exclude_one_that_is_frozen_and_it_sees_what_it_missed(self, site: Site) -> None:
        site.nodes["ash"].freeze()
        site.wait("elm", "oak")
        site.nodes["ash"].thaw()
        site.wait("elm", "oak", "ash")
        site.check_sequences()
        views = [view for view in site.nodes["ash"]("exec", SEEN) if view != "excluded"]
        assert any(not any(one.startswith("ash#") for one in members) for _, members in views)

    def test_of_which_one_is_left_are_not_stable_until_a_second_is_back(self, site: Site) -> None:
        site.kill("ash")
        site.kill("elm")
        site.wait_until(lambda: not site.now("oak")[0], lambda: site.now("oak"))
        for _ in range(20):  # it waits, and is never stable alone
            assert not site.now("oak")[0]
            time.sleep(0.1)
        # It may be asking for a change of members just now, of which nothing can come.
        site.wait_until(lambda: "no quorum" in site.now("oak")[2], lambda: site.now("oak"))
        site.begin("elm")  # it is still the member that it was, by its disk
        site.wait_until(lambda: site.now("oak")[0] and site.now("elm")[0], lambda: site.now("oak"))
        site.check_sequences()

    def test_go_on_at_once_when_one_leaves(self, site: Site) -> None:
        site.nodes["ash"]("exec", "infobus.role.close()")
        del site.nodes["ash"]
        site.wait("elm", "oak")
        site.check_sequences()


PRIMARY = "infobus.p = bus.primary('svc.ledger', rank=RANK)"
IS_PRIMARY = "answer = infobus.p.is_primary"


class TestAPrimary:
    def test_is_followed_by_its_backup_when_its_program_is_killed(
        self, site: Site, start: Start
    ) -> None:
        first, second = start(), start()
        first("exec", PRIMARY.replace("RANK", "1"))
        site.wait_until(lambda: first("exec", IS_PRIMARY), lambda: "no primary")
        second("exec", PRIMARY.replace("RANK", "2"))  # a higher rank waits for its turn, too
        time.sleep(1.0)
        assert first("exec", IS_PRIMARY) and not second("exec", IS_PRIMARY)
        first.kill()
        site.wait_until(lambda: second("exec", IS_PRIMARY), lambda: "no primary")

    def test_that_is_hung_is_announced_and_replaced(self, site: Site, start: Start) -> None:
        first, second = start(), start()
        first("exec", "infobus.well = True")
        first("exec", "bus.alive_while(lambda: infobus.well, every_s=0.1, for_s=1.0)")
        first("exec", PRIMARY.replace("RANK", "1"))
        site.wait_until(lambda: first("exec", IS_PRIMARY), lambda: "no primary")
        second("exec", PRIMARY.replace("RANK", "1"))
        first("exec", "infobus.well = False")
        site.wait_until(lambda: second("exec", IS_PRIMARY), lambda: "no primary")
        assert not first("exec", IS_PRIMARY)
        hung = "answer = [p.node for r in bus.members.roster() for p in r.programs if p.is_hung]"
        assert second("exec", hung) == [first.name]
        first("exec", "infobus.well = True")
        site.wait_until(lambda: second("exec", hung) == [], lambda: "still hung")
