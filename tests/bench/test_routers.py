"""What the simulated backbone counts is what its routers said."""

import pytest

from infobus.bench.routers.backbone import TOPOLOGIES, Backbone
from infobus.bench.routers.benchmark import measure


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_all_topologies_are_one_backbone(name):
    links = TOPOLOGIES[name](35)
    assert {site for link in links for site in link} == set(range(35))
    assert all(one < other for one, other in links)
    backbone = Backbone(35, links)
    backbone.begin()
    backbone.settle()


def test_a_change_crosses_each_link_of_a_tree_once():
    cost = measure("tree of regions", 20)
    assert cost.rows == 20 * 13
    assert cost.declared.messages == cost.links == 19
    assert cost.link_cut is None


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_routers_that_are_handed_all_tables_are_at_rest(name):
    backbone = Backbone(20, TOPOLOGIES[name](20))
    backbone.begin_at_rest()
    assert backbone.is_settled()
    backbone.advance(2.0)
    assert backbone.is_settled()
    assert (backbone.messages, backbone.bytes) == (0, 0)
    backbone.declare("site0", "one/more")
    assert not backbone.is_settled()
    backbone.settle()
    assert backbone.messages >= 19
