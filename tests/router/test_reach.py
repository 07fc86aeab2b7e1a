"""How far an agreement reaches: both routers must be within the reach of the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.router.reach import AgreementReach, Notice, SitePlace, is_within, prefixes

HERE = SitePlace("a", "eu.se")
FAR = {"b": 1, "c": 2, "d": 3}

reaches = st.builds(
    AgreementReach,
    st.lists(st.sampled_from(["eu", "eu.se", "us", "eu.de"]), max_size=2).map(tuple),
    st.integers(0, 3),
    st.lists(st.sampled_from("abcd"), max_size=2).map(tuple),
)
places = st.builds(
    SitePlace, st.sampled_from("bcd"), st.sampled_from(["", "eu", "eu.se", "us", "eur"])
)


def notice(place: SitePlace, reach: AgreementReach) -> Notice:
    return Notice(place.site, place, reach.label, reach)


def heard(reach: AgreementReach, theirs: Notice) -> bool:
    found = prefixes(reach, HERE, [theirs], FAR)
    names = (f"{theirs.place.site}.{theirs.label}", f"*.{theirs.label}")
    return any(name in found for name in names)


@given(reaches, places, reaches)
def test_a_router_listens_to_another_exactly_if_each_is_within_the_reach_of_the_other(
    ours, place, theirs
):
    far = FAR[place.site]
    wanted = ours.includes(place, far) and theirs.includes(HERE, far)
    assert heard(ours, notice(place, theirs)) == wanted


@given(places, reaches)
def test_a_notice_is_read_as_it_was_written(place, reach):
    told = notice(place, reach)
    assert Notice.of(told.key) == told


@given(reaches, reaches)
def test_reaches_have_one_label_only_if_they_are_the_same(one, other):
    assert (one.label == other.label) == (one == other)


def test_a_router_that_no_path_leads_to_is_not_listened_to():
    theirs = notice(SitePlace("b", "eu"), AgreementReach(hops_max=3))
    assert prefixes(AgreementReach(), HERE, [theirs], {"b": 3}) == ["*.all", f"b.{theirs.label}"]
    assert prefixes(AgreementReach(), HERE, [theirs], {}) == ["*.all"]


def test_routers_of_ones_own_site_are_not_listened_to():
    theirs = notice(SitePlace("a", "eu.se"), AgreementReach(domains=("eu",)))
    assert prefixes(AgreementReach(domains=("eu",)), HERE, [theirs], {"a": 1}) == []


@pytest.mark.parametrize("key", ["reach", "reach/a/b/-/all", "reach/a/b/-/all/;x;", "l/a"])
def test_a_notice_that_is_none_is_refused(key):
    with pytest.raises(ValueError, match=r".*"):
        Notice.of(key)


def test_the_dots_of_a_domain_are_the_tree():
    assert is_within("eu.se.kiruna", "eu.se")
    assert not is_within("eu", "eu.se")
