"""Names of a site: one user at a time, who begins where the one before has come to."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.guaranteed import (
    Durable,
    NamePlace,
    NameProgress,
    SiteKeeper,
    SiteName,
)
from infobus.protocols.guaranteed.keeper import NameKeeper, SavePlaces


class Keeping:
    """A keeper whose effects are noted; what it saves outlives it."""

    def __init__(self, disk: dict[str, Any] | None = None, **bounds: int) -> None:
        self.disk = {} if disk is None else disk
        self.keeper = NameKeeper(node="keeper", saved=self.disk, **bounds)
        self.now_s = 0.0

    def use(
        self, node: str, name: str = "billing", session: int = 1, registered_at: float = 0.0
    ) -> list[tuple[str, SiteName]]:
        """Somebody begins to use a name; who is answered what."""
        told = Durable(node, name, session, ["orders.>"], registered_at=registered_at)
        effects = self.keeper.take(told, self.now_s)
        assert all(isinstance(one, ToPeer) for one in effects if not isinstance(one, SavePlaces))
        return [(one.peer, one.message) for one in effects if isinstance(one, ToPeer)]

    def stop(self, node: str, session: int = 1) -> None:
        assert not self.keeper.take(Durable(node, "billing", session, []), self.now_s)

    def progress(self, node: str, session: int = 1, **positions: int) -> None:
        places = {ledger: NamePlace(position) for ledger, position in positions.items()}
        assert not self.keeper.take(NameProgress(node, "billing", session, places), self.now_s)

    def save(self) -> None:
        for one in self.keeper.tick(self.now_s):
            assert isinstance(one, SavePlaces)
            if one.places:
                self.disk[one.name] = one.places
            else:
                self.disk.pop(one.name, None)


def test_nodes_are_told_that_there_is_a_keeper() -> None:
    assert Keeping().keeper.peer_up("a", 0.0) == [ToPeer("a", SiteKeeper("keeper"))]


def test_the_next_user_begins_where_the_last_one_has_come_to() -> None:
    site = Keeping()
    assert site.use("a") == [("a", SiteName("keeper", "billing", 1, "", {}))]
    site.progress("a", L=7, M=3)
    site.progress("a", L=9)
    site.stop("a")
    told = {"L": NamePlace(9), "M": NamePlace(3)}
    assert site.use("b") == [("b", SiteName("keeper", "billing", 1, "", told))]


def test_positions_outlive_the_keeper() -> None:
    site = Keeping()
    site.use("a")
    site.progress("a", L=7)
    site.save()
    ((_, answer),) = Keeping(site.disk).use("b")
    assert answer.places == {"L": NamePlace(7)}


def test_what_has_not_changed_is_not_saved_again() -> None:
    site = Keeping()
    site.use("a")
    site.progress("a", L=7)
    site.save()
    site.progress("a", L=7)
    assert site.keeper.tick(0.0) == []


def test_a_second_user_is_refused_at_once_and_changes_nothing() -> None:
    site = Keeping()
    site.use("a")
    site.now_s = 10.0
    assert site.use("b") == [("b", SiteName("keeper", "billing", 1, "a", {}))]
    site.progress("b", L=99)
    site.stop("b")
    assert site.use("b", session=2)[0][1].holder == "a"
    site.keeper.peer_down("a", 10.0)
    assert site.use("b", session=3) == [("b", SiteName("keeper", "billing", 3, "", {}))]


def test_who_says_every_few_seconds_that_it_uses_a_name_is_not_answered_again() -> None:
    site = Keeping()
    assert site.use("a")
    assert not site.use("a")
    assert site.use("a", session=2)


def test_what_an_earlier_use_says_late_counts_no_more() -> None:
    site = Keeping()
    site.use("a")
    site.use("a", session=2)
    site.progress("a", session=1, L=5)
    site.stop("a", session=1)
    assert site.keeper.names["billing"].places == {}


@given(st.permutations(["a", "b", "c"]))
def test_of_several_that_begin_at_once_all_keepers_choose_the_same(order: list[str]) -> None:
    site = Keeping()
    answers: dict[str, str] = {}
    for node in order:
        for told, answer in site.use(node):
            answers[told] = answer.holder
    assert answers["a"] == ""
    assert site.keeper.names["billing"].holder == "a"
    assert all(holder for node, holder in answers.items() if node != "a")


@given(st.permutations(["a-3", "b-2", "c-1"]), st.sampled_from([0.0, 10.0]))
def test_the_last_life_of_a_home_has_its_name_although_earlier_ones_are_still_seen(
    order: list[str], pause_s: float
) -> None:
    site = Keeping()
    for life in order:
        site.use(life, session=int(life[-1]), registered_at=5.0)
        site.now_s += pause_s
    assert site.keeper.names["billing"].holder == "a-3"
    site.progress("a-3", session=3, L=7)
    assert site.keeper.names["billing"].places == {"L": NamePlace(7)}


def test_the_next_life_of_a_home_is_told_that_it_has_the_name() -> None:
    site = Keeping()
    site.use("old", session=1, registered_at=5.0)
    site.progress("old", session=1, L=7)
    site.now_s = 10.0
    told = dict(site.use("new", session=2, registered_at=5.0))
    assert told["new"] == SiteName("keeper", "billing", 2, "", {"L": NamePlace(7)})
    assert told["old"].holder == "new"  # should it be a copy of the home that lives
    assert site.use("old", session=1, registered_at=5.0)[0][1].holder == "new"
    site.now_s = 20.0
    assert site.use("elsewhere", session=3, registered_at=6.0)[0][1].holder == "new"


@given(st.lists(st.integers(-1, 50), max_size=20))
def test_a_position_never_goes_back(positions: list[int]) -> None:
    site = Keeping()
    site.use("a")
    for position in positions:
        site.progress("a", L=position)
    places = site.keeper.names["billing"].places
    assert places.get("L", NamePlace(-1)).position == max(positions, default=-1)


def test_it_keeps_so_many_names_and_lets_go_of_one_that_is_not_in_use() -> None:
    site = Keeping(names_count_max=2)
    site.use("a", "one")
    site.use("a", "two")
    assert not site.use("a", "three")  # it does without a keeper
    site.keeper.peer_down("a", 0.0)
    assert site.use("b", "three")
    site.save()
    assert list(site.keeper.names) == ["two", "three"]


def test_it_keeps_so_many_positions_of_a_name() -> None:
    site = Keeping(places_count_max=2)
    site.use("a")
    site.progress("a", L=1)
    site.progress("a", M=1)
    site.progress("a", L=2)
    site.progress("a", N=1)
    assert site.keeper.names["billing"].places == {"L": NamePlace(2), "N": NamePlace(1)}
